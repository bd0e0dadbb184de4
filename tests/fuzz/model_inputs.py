"""Model files, and what ``orrery import`` is given, as inputs."""

import random
import subprocess
import sys
from pathlib import Path

MODEL_COMMANDS = {
    "model file": "plan model.yaml --cluster titanx-4 --batch 8 --strategy data --out new.json",
    "imported file": "plan u-net.yaml --cluster titanx-4 --batch 4 --strategy data --out new.json",
    "recorded file": "run words.json --steps 1 --device cuda --threads 1",
    "onnx file": "import net.onnx --out new.yaml",
    "exported file": "import net.pt2 --out new.yaml",
    "imported words": "import absent.pt2 --out new.yaml",
    "imported function": "import absent.module:build --input 8x3x32x32 --loss softmax --out new.yaml",
}
MODEL_FILES = {
    "model file": "model.yaml",
    "imported file": "u-net.yaml",
    "recorded file": "words.yaml",
    "onnx file": "net.onnx",
    "exported file": "net.pt2",
}
"""The file of each command that is spoiled."""


_EXPORT = """
import sys, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.rows, self.norm, self.head = nn.Linear(8, 24), nn.LayerNorm(8), nn.Linear(8, 10)
    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        q, k, v = self.rows(x).chunk(3, -1)
        return self.head(self.norm(nn.functional.scaled_dot_product_attention(q, k, v)).mean(1))
torch.export.save(torch.export.export(Net(), (torch.zeros(2, 3, 8, 8),)), sys.argv[1])
"""


def put_model_files(folder: Path) -> None:
    """Write a model file of built-in kinds, and one of imported kinds."""
    from planner.model_files.model_text import model_text
    from planner.models.registry import load_model

    (folder / "model.yaml").write_text(model_text(load_model("lenet5", batch=8)))
    _put_onnx(folder / "net.onnx")
    # not in this process, which all cases are forked from: torch would be loaded in each
    subprocess.run([sys.executable, "-c", _EXPORT, folder / "net.pt2"], check=True, capture_output=True)
    (folder / "u-net.yaml").write_text(model_text(load_model("u-net", batch=2)))
    _put_recorded(folder)


_WORDS = """\
format: orrery model 2
data:
  input: {channel: 1, length: 6}
layers:
- name: words
  kind: embedding
  inputs: [input]
  output: {channel: 4, length: 6}
  reads:
  - {sample: sample, channel: all, length: length}
  parameters:
    weight: {shape: [8, 4], split: true, axis: 1, key: words.weight, aliases: [head.weight]}
  computes:
  - {form: embedding, call: embedding, out: [sample, length, channel], of: {weight: {parameter: weight, shape: [8, 4],
    along: 1}, indices: {input: 0, axes: [sample, length]}}, with: {padding_idx: -1}}
- name: add
  kind: elementwise
  inputs: [words]
  steps: [add]
  saves: nothing
  output: {channel: 4, length: 6}
  reads:
  - {sample: sample, channel: channel, length: length}
  parameters:
    weight: {shape: [6, 4], split: true, axis: 1, frozen: true, key: places.weight}
  computes:
  - {form: pointwise, call: add, out: [sample, length, channel], of: {self: {input: 0, axes: [sample, length,
    channel.2.2-channel.2.1]}, other: {call: embedding, shape: [6, 4], along: 1, of: {weight: {parameter: weight,
    shape: [6, 4], along: 1}, indices: {call: values, shape: [6], with: {values: "0 1 2 3 5 4", dtype: int64}}}}},
    with: {alpha: 1}}
  - {form: take, call: roll, out: [sample, length, channel], of: {self: {step: 0, axes: [sample, length, channel]}},
    with: {shifts: [0], dims: [1]}}
- name: mean
  kind: reduction
  inputs: [add]
  function: mean
  output: {channel: 4}
  reads:
  - {sample: sample, channel: channel, length: all}
  computes:
  - {form: reduce, call: mean, out: [sample, channel], of: {self: {input: 0, axes: [sample, length, channel]}},
    with: {dim: [1], keepdim: false, axes: [1]}}
- name: head
  kind: matrix_product
  inputs: [mean]
  depth: 4
  output: {channel: 8}
  reads:
  - {sample: sample, channel: all}
  parameters:
    weight: {shape: [8, 4], split: true, shared: words, key: words.weight}
  computes:
  - {form: contract, call: einsum, out: [sample, channel], of: {one: {input: 0, axes: [sample, channel]},
    two: {parameter: weight, shape: [8, 4], along: 0}}, with: {first: [x0, k], second: ["n", k], out: [x0, "n"]}}
- {name: softmax, kind: softmax, inputs: [head]}
"""


def _put_recorded(folder: Path) -> None:
    """Write a model file whose layers say what they compute, and a plan of it."""
    from dataclasses import replace

    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from planner.models.registry import load_model
    from planner.plan.make_plan import make_plan
    from planner.plan.plan_file import save_plan

    (folder / "words.yaml").write_text(_WORDS)
    plan = make_plan(load_model("words.yaml", batch=4), load_cluster("lab-4:nodes=2"), strategy="data")
    save_plan(replace(plan, request=replace(plan.request, cluster="lab-4:nodes=2")), folder / "words.json")


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


def spoiled_onnx(content: bytes, rng: random.Random) -> bytes:
    """Return an ONNX file that can be read, of whose graph one to three parts are other ones, or are not there."""
    import onnx

    model = onnx.load_from_string(content)
    graph = model.graph
    sizes = [0, -1, 1, 7, 2**31, 2**62]
    for _ in range(rng.choice([1, 1, 2, 3])):
        node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
        change = rng.randrange(9)
        if change == 0:
            tensor.data_type = rng.choice([0, 7, 8, 16, 99])
        elif change == 1:
            tensor.dims[:] = rng.choice([[], [*tensor.dims, rng.choice(sizes)], [rng.choice(sizes)] * len(tensor.dims)])
        elif change == 2:
            tensor.raw_data = tensor.raw_data[: rng.randrange(8)]
        elif change == 3:
            node.op_type = rng.choice(["Relu", "Loop", "Einsum", "NoSuch", "", "Reshape", "MatMul"])
        elif change == 4:
            node.input[rng.randrange(len(node.input))] = rng.choice(["", "nowhere", "x", "y", "h"])
        elif change == 5:
            del node.input[rng.randrange(len(node.input)) :]
            node.input.extend(["x"] * (not node.input))
        elif change == 6:
            given = rng.choice(graph.input).type.tensor_type
            given.elem_type = rng.choice([0, 1, 7, 8, 99])
            rng.choice(given.shape.dim).dim_value = rng.choice(sizes)
        elif change == 7:
            graph.node.insert(rng.randrange(len(graph.node)), graph.node.pop())
        else:
            model.opset_import[0].version = rng.choice([0, 1, 9, 2**40])
    return bytes(model.SerializeToString())
