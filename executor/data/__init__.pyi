from .dataset import (
    DataRequirements as DataRequirements,
    Dataset as Dataset,
    words_of as words_of,
)
from .idx import (
    read_mnist as read_mnist,
)
from .load import (
    load_data as load_data,
)
