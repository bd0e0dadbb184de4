from .size_command import (
    size_app as size_app,
)
from .whatif_command import (
    whatif_app as whatif_app,
)
