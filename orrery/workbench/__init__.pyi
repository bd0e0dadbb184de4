from .server import (
    serve_workbench as serve_workbench,
)
