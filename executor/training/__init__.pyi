from .session import (
    Session as Session,
    open_session as open_session,
)
