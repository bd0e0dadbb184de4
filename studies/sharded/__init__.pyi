from .sharded_iteration import (
    FITTED_HEAD as FITTED_HEAD,
    mpt_iteration_s as mpt_iteration_s,
)
