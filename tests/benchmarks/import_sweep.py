"""Import, plan and simulate models of pytorchcv and transformers: ``python tests/benchmarks/import_sweep.py PACKAGES``.

PACKAGES is a folder with both packages: ``pip install --target PACKAGES --no-deps pytorchcv==0.0.74
transformers==5.23.0``, and what transformers needs.  One model of each of 60 families of pytorchcv is drawn, and 12 of
transformers with random configurations.  Parameters are compared with the module's, FLOP with ``FlopCounterMode`` of
the module or, where it reads values, of its exported program.  The exit code is 1 if a model fails.
"""

import argparse
import contextlib
import io
import random
import resource
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.graph.computation_graph import ComputationGraph
from planner.importing.graph_of import imported_graph
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan_request import PlanRequest
from planner.simulation.program_replay import replay
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

CLUSTER = "dgx-a100:nodes=2"
"""16 devices with room for images of 1024 x 2048."""
TOLERANCE = 0.01
PATIENCE_S = 60
"""Time for the layer-wise search, which takes long on graphs with many long branches side by side."""


@dataclass(frozen=True)
class Drawn:
    """A model to import."""

    name: str
    make: Callable[[], tuple[nn.Module, str]]
    """Returns the module and the sizes of its input, the batch first."""


def stubbed_torchvision() -> None:
    """Let pytorchcv be imported, of which one model needs a class of torchvision."""
    package, operations = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
    operations.DeformConv2d = type("DeformConv2d", (), {})
    package.ops = operations
    sys.modules |= {"torchvision": package, "torchvision.ops": operations}


def images(count: int, seed: int, batch: int) -> Iterator[Drawn]:
    """Draw one model of each of ``count`` families of pytorchcv that takes one image."""
    stubbed_torchvision()
    from pytorchcv import model_provider

    families: dict[str, list[str]] = {}
    for name, make in model_provider._models.items():
        families.setdefault(make.__module__.rpartition(".")[2], []).append(name)
    rng = random.Random(seed)
    for family in rng.sample(sorted(set(families) - NO_IMAGES), count):
        name = rng.choice(sorted(families[family]))

        def made(name: str = name) -> tuple[nn.Module, str]:
            module = model_provider.get_model(name)
            height, width = getattr(module, "in_size", (224, 224))
            return module, f"{batch}x{getattr(module, 'in_channels', 3)}x{height}x{width}"

        yield Drawn(name, made)


NO_IMAGES = {
    "raft",
    "propainter",
    "propainter_rfc",
    "propainter_ip",
    "jasper",
    "jasperdr",
    "quartznet",
    "voca",
    "nvpattexp",
    "visemenet",
    "superpointnet",
    "simplepose_coco",
    "simpleposemobile_coco",
    "alphapose_coco",
    "resdropresnet_cifar",
    "revnet",
    "lffd",
    "centernet",
    "ibppose_coco",
    "lwopenpose_cmupan",
    "pfpcnet",
    "ntsnet_cub",
}
"""Families that take other data than one image, or that choose or decode by values of tensors, which no export can."""


def texts(seed: int, batch: int) -> Iterator[Drawn]:
    """Draw 12 models of transformers with random configurations."""
    import transformers as hf

    rng = random.Random(seed)

    def sizes() -> dict[str, int]:
        heads = rng.choice([2, 4, 8])
        width = heads * rng.choice([16, 32, 64])
        return {
            "hidden_size": width,
            "num_hidden_layers": rng.randint(1, 3),
            "num_attention_heads": heads,
            "intermediate_size": width * rng.randint(2, 4),
        }

    length = rng.choice([64, 128, 192])
    ids, image = f"input_ids={batch}x{length}", f"{batch}x3x224x224"
    causal = {"use_cache": False}
    rows = [
        ("bert", hf.BertForMaskedLM, hf.BertConfig(**sizes()), ids),
        ("roberta", hf.RobertaForMaskedLM, hf.RobertaConfig(**sizes()), ids),
        ("electra", hf.ElectraForPreTraining, hf.ElectraConfig(**sizes()), ids),
        ("albert", hf.AlbertModel, hf.AlbertConfig(**sizes()), ids),
        ("gpt2", hf.GPT2LMHeadModel, _gpt2(hf, rng), ids),
        ("llama", hf.LlamaForCausalLM, hf.LlamaConfig(**_grouped(sizes(), rng), **causal), ids),
        ("mistral", hf.MistralForCausalLM, hf.MistralConfig(**_grouped(sizes(), rng), **causal), ids),
        ("gpt-neox", hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**sizes(), **causal), ids),
        ("vit", hf.ViTForImageClassification, hf.ViTConfig(**sizes()), image),
        (
            "dinov2",
            hf.Dinov2ForImageClassification,
            hf.Dinov2Config(hidden_size=64, num_attention_heads=4, num_hidden_layers=rng.randint(1, 3)),
            image,
        ),
        (
            "swin",
            hf.SwinForImageClassification,
            hf.SwinConfig(depths=[rng.randint(1, 2) * 2] * 3, embed_dim=48, num_heads=[2, 4, 8]),
            image,
        ),
        (
            "convnext",
            hf.ConvNextForImageClassification,
            hf.ConvNextConfig(depths=[rng.randint(1, 3) for _ in range(4)]),
            image,
        ),
    ]
    for name, model, config, spec in rows:
        yield Drawn(f"{name} {rng.randint(0, 999)}", lambda m=model, c=config, s=spec: (m(c), s))


def _gpt2(hf: types.ModuleType, rng: random.Random) -> object:
    heads = rng.choice([2, 4, 8])
    return hf.GPT2Config(n_layer=rng.randint(1, 3), n_head=heads, n_embd=heads * 32, use_cache=False)


def _grouped(sizes: dict[str, int], rng: random.Random) -> dict[str, int]:
    """Give keys and values fewer heads."""
    return sizes | {"num_key_value_heads": sizes["num_attention_heads"] // rng.choice([1, 2])}


def counted_flop(module: nn.Module, spec: str) -> int:
    """Return the FLOP of a forward pass by PyTorch's own counter."""
    (each,) = input_specs([spec])
    data = torch.zeros(each.shape, dtype=torch.float32 if each.floating else torch.int64, device="meta")
    arguments, named = ((), {each.name: data}) if each.name else ((data,), {})

    def count(run: nn.Module) -> int:
        with FlopCounterMode(display=False) as counter, contextlib.redirect_stdout(io.StringIO()):
            run(*arguments, **named)
        return int(counter.get_total_flops())

    try:
        return count(module)
    except RuntimeError:  # reads the value of a tensor while it is not exported
        return count(torch.export.export(module, arguments, named, strict=False).module())


def planned(graph: ComputationGraph, strategy: str) -> float:
    """Plan on 16 devices and simulate; return the seconds of an iteration."""
    cluster = load_cluster(CLUSTER)
    request = PlanRequest(model=graph.name, cluster=CLUSTER, batch=graph.batch, strategy=strategy)
    plan = make_plan(graph, cluster, request)
    return float(replay(lower_plan(plan, graph, cluster)).iteration_s)


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """End what takes longer."""

    def late(number: int, frame: types.FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def row(drawn: Drawn, strategies: list[str]) -> tuple[str, bool]:
    """Import, check, plan and simulate one model; return a line, and whether all is well."""
    start = time.perf_counter()
    try:
        with torch.device("meta"):
            module, spec = drawn.make()
    except Exception:
        module, spec = drawn.make()
    module = module.to("meta").train()
    try:
        imported = imported_graph(trace_of(module, input_specs([spec])), name=drawn.name)
    except ConfigError as error:
        return f"{drawn.name:36} refused: {error}", False
    import_s = time.perf_counter() - start
    graph, parameters = imported.graph, sum(p.numel() for p in module.parameters())
    unused = sum(module.get_parameter(key).numel() for key in imported.unread)
    flop = imported.product_flop / max(counted_flop(module, spec), 1)
    times = []
    for strategy in strategies:
        began = time.perf_counter()
        try:
            with limited(PATIENCE_S if strategy == "layerwise" else 600):
                iteration_s = planned(graph, strategy)
        except TimeoutError:
            times.append(f"{strategy} not within {PATIENCE_S} s")
            continue
        times.append(f"{strategy} {1e3 * iteration_s:.2f} ms in {time.perf_counter() - began:.1f} s")
    well = graph.parameter_count + unused == parameters and abs(flop - 1) <= TOLERANCE
    return (
        f"{drawn.name:36} {import_s:5.1f} s {len(graph.layers):5} layers {parameters:>12,} parameters, "
        f"{unused:,} unused, flop {flop:.4f}, by sample {len(imported.by_sample)}, {'; '.join(times)}"
        f"{'' if well else '  WRONG'}",
        well,
    )


def main() -> int:
    """Print a line for each model, and how many are well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages")
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--strategies", default="data,layerwise")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    sys.path.append(given.packages)
    wells = []
    for drawn in chain(texts(given.seed, given.batch), images(given.images, given.seed, given.batch)):
        if given.only in drawn.name:
            try:
                line, well = row(drawn, given.strategies.split(","))
            except Exception as error:
                line, well = f"{drawn.name:36} {type(error).__name__}: {str(error)[:200]}", False
            print(line, flush=True)
            wells.append(well)
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{sum(wells)} of {len(wells)} models are well; most memory {peak_gib:.1f} GiB")
    return 0 if all(wells) else 1


if __name__ == "__main__":
    sys.exit(main())
