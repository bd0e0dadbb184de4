from .dataset import (
    Dataset as Dataset,
    Expected as Expected,
)
from .idx import (
    read_mnist as read_mnist,
)
from .load import (
    load_data as load_data,
)
