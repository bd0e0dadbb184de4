"""Model files, and what ``orrery import`` is given, as inputs."""

from pathlib import Path

__all__ = ["MODEL_COMMANDS", "MODEL_FILES", "put_model_files"]

MODEL_COMMANDS = {
    "model file": "plan model.yaml --cluster titanx-4 --batch 8 --strategy data --out new.json",
    "imported file": "plan u-net.yaml --cluster titanx-4 --batch 4 --strategy data --out new.json",
    "onnx file": "import net.onnx --out new.yaml",
    "imported words": "import absent.pt2 --out new.yaml",
    "imported function": "import absent.module:build --input 8x3x32x32 --loss softmax --out new.yaml",
}
MODEL_FILES = {"model file": "model.yaml", "imported file": "u-net.yaml", "onnx file": "net.onnx"}
"""The file of each command that is spoiled."""


def put_model_files(folder: Path) -> None:
    """Write a model file of built-in kinds, and one of imported kinds."""
    import planner.models
    from planner.model_files import model_text
    from planner.models import load_model

    (folder / "model.yaml").write_text(model_text(load_model("lenet5", batch=8)))
    imported = Path(planner.models.__file__).parent / "imported" / "u-net.yaml"
    _put_onnx(folder / "net.onnx")
    (folder / "u-net.yaml").write_text(imported.read_text())


def _put_onnx(path: Path) -> None:
    """Write an ONNX file of a convolution, a reshape by sizes that it computes, and a product."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Shape", ["h"], ["sizes"], end=1),
        helper.make_node("Concat", ["sizes", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["h", "flat"], ["v"]),
        helper.make_node("Gemm", ["v", "m", "n"], ["y"], transB=1),
    ]
    weights = {"w": (4, 3, 3, 3), "b": (4,), "m": (10, 256), "n": (10,)}
    tensors = [numpy_helper.from_array(np.zeros(shape, dtype=np.float32), name) for name, shape in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([-1]), "rest"))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (2, 3, 8, 8)), ("y", (2, 10))))
    graph = helper.make_graph(nodes, "net", [x], [y], tensors)
    path.write_bytes(helper.make_model(graph).SerializeToString())
