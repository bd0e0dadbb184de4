"""``orrery serve``: the workbench in a browser."""

from pathlib import Path
from typing import Annotated

import typer


def orrery_serve(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Working folder: uploads, scenarios and pages; made if missing.")
    ],
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port on this machine; 0 takes any that is free.")
    ] = 8421,
) -> None:
    """Open a workbench in the browser: compare, change links and devices, keep scenarios, export pages."""
    from groundwork.errors import ConfigError

    try:
        from orrery.workbench.server import serve_workbench
    except ImportError as error:
        raise ConfigError(
            f"the workbench needs more packages ({error.name}): pip install 'orrery-training[serve]'"
        ) from None
    serve_workbench(folder, port=port)
