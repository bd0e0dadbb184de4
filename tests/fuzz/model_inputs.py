"""Model files, and what ``orrery import`` is given, as inputs."""

from pathlib import Path

__all__ = ["MODEL_COMMANDS", "MODEL_FILES", "put_model_files"]

MODEL_COMMANDS = {
    "model file": "plan model.yaml --cluster titanx-4 --batch 8 --strategy data --out new.json",
    "imported file": "plan u-net.yaml --cluster titanx-4 --batch 4 --strategy data --out new.json",
    "imported words": "import absent.pt2 --out new.yaml",
    "imported function": "import absent.module:build --input 8x3x32x32 --loss softmax --out new.yaml",
}
MODEL_FILES = {"model file": "model.yaml", "imported file": "u-net.yaml"}
"""The file of each command that is spoiled."""


def put_model_files(folder: Path) -> None:
    """Write a model file of built-in kinds, and one of imported kinds."""
    import planner.models
    from planner.model_files import model_text
    from planner.models import load_model

    (folder / "model.yaml").write_text(model_text(load_model("lenet5", batch=8)))
    imported = Path(planner.models.__file__).parent / "imported" / "u-net.yaml"
    (folder / "u-net.yaml").write_text(imported.read_text())
