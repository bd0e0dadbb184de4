from .decoder_networks import (
    mpt_network as mpt_network,
)
from .sharded_iteration import (
    FITTED_HEAD as FITTED_HEAD,
    llama_iteration_s as llama_iteration_s,
    mpt_iteration_s as mpt_iteration_s,
)
