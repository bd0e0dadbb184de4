from .base import (
    DataType as DataType,
)
from .printed import (
    table_2 as table_2,
)
from .registry import (
    data_type as data_type,
)
