"""The workbench on this machine: its folder, its address with a secret, and all that ends with it."""

import secrets
from pathlib import Path

from orrery.workbench.transport.loopback import listening_socket, serve_application
from orrery.workbench.working_folder import WorkingFolder

_TOKEN_BYTES = 24


def serve_workbench(path: Path, *, port: int) -> None:
    """Serve the workbench on this machine alone, until Ctrl-C, SIGTERM or SIGHUP.

    Raises:
        ConfigError: The folder cannot be written, or the port cannot be had.
        KeyboardInterrupt: A signal has come.
    """
    folder = WorkingFolder(path)
    listening = listening_socket(port)  # what is wrong is said at once, before seconds of imports
    from orrery.workbench.application import application
    from orrery.workbench.processes import end_processes

    host, port = listening.getsockname()
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    app = application(folder, token=token, port=port)
    print(f"Workbench: http://{host}:{port}/{token}/", flush=True)
    print(f"Files: {folder.path}; Ctrl-C ends.", flush=True)
    serve_application(app, listening, end=end_processes)
