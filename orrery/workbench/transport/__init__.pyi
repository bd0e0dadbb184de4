from .guard import (
    Guard as Guard,
    limited_body as limited_body,
)
from .loopback import (
    listening_socket as listening_socket,
    serve_application as serve_application,
)
