"""Software of one device: the kernels that it makes of a network, and who launches them.

A chain of elementwise operations is one kernel where a compiler joins them, else one for each operation, which reads
its operands from memory and writes its result there.  A host launches kernels one after the other, ahead of its device;
the device waits where they are shorter than their launches, unless a graph of all of them was recorded:

    host      |f1|f2|f3|b3|b2|b1|u |          launches, one behind another
    device       |f1|f2 |f3    |b3   |b2...   each kernel behind its launch, and behind the one before

Source:
    Paszke et al., "PyTorch", NeurIPS 2019, Sec. 5.1 and 5.2: control on the host runs ahead of the device.
    NVIDIA/Megatron-LM of 2021, megatron/timers.py and p2p_communication.py: timers of passes, and receives, wait for
    the device; fused_softmax.py: the kernel of attention's scores; model/distributed.py: each gradient is added to a
    buffer that was set to zero; mpu/cross_entropy.py: its loss; optimizer: gradients of words are summed over stages.
    NVIDIA/Megatron-LM of 2024, --overlap-param-gather: parameters are gathered under the next forward pass.
    huggingface/nanotron, optim/gradient_accumulator.py: the same, in float32; parallel/tensor_parallel/functional.py;
    parallel/pipeline_parallel/p2p.py: sizes of what stages send are read by hosts, and messages waited for.
    pytorch/pytorch, autograd/functions/accumulate_grad.h: the first gradient is kept, others are added to it;
    torch/_inductor/fx_passes/pad_mm.py: a compiler pads operands of products where a trial run is faster so;
    torch.nn.functional.scaled_dot_product_attention: as many heads of keys and values as of queries, unless asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from groundwork.units import MIB, MICRO
from hwprofiles.compute.attention_versions import ATTENTION_VERSIONS
from planner.cost.framework import parameter_values
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.operations.loss import LOSS_CALLS, Loss
from planner.operations.products import Attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What software makes of a network on one device."""

    text: str = "ideal"
    """The name with parameters, as it was given."""
    fused: bool = True
    """True if a chain of elementwise operations is one kernel, and gradients are added where they are made."""
    launch_s: float = 0.0
    """Time of the host for each kernel that it launches; 0 where none is waited for."""
    peer_s: float = 0.0
    """Time of the host for each device of a collective of activations, where stages lie on different machines."""
    waits: int = 0
    """When the host waits for its device.  0: at the end of an iteration; 1: also at each pass of a micro-batch through
    a stage of a pipeline; 2: at each pass of a micro-batch."""
    channels_first: bool = False
    """True if images lie in memory channel by channel, so that libraries transpose them for tensor cores and back."""
    flash: int = ATTENTION_VERSIONS[-1]
    """Version of FlashAttention that computes attention; 0: separate kernels, with all scores in memory."""
    pads: bool = False
    """True if operands of products whose features fill no vector of tensor cores are padded, where that is faster."""
    update: int = 0
    """Kernels of an update.  0: one for all; 1: one for parameters and optimizer state, others that convert gradients
    and parameters of sixteen bits; 2: one for each operation of the optimizer, and those."""
    clips: int = 0
    """Times that each gradient is read or written to clip it: 1 for the norm, 2 more where it is scaled."""
    loss: str = ""
    """How the cross-entropy of positions is computed, one of ``LOSS_CALLS``."""
    sums: int = 0
    """Kernels that add a gradient to those of the micro-batches before.  0: none, as the product adds to what it reads;
    1: one a tensor, from the second micro-batch on; 2: one a tensor in every micro-batch, to a buffer that was zero."""
    ahead: bool = False
    """True if parameters whose update replicas divide are gathered in the order in which the next iteration reads them,
    so that it begins when the first have arrived; else all at once."""
    trains_copies: bool = False
    """True if a stage trains a copy of a parameter that it shares with another, and so holds its gradient and state."""
    gradient_buffer: bool = False
    """True if sums of gradients lie in a buffer for the whole run, to which each is added as soon as it is made."""
    workspace_bytes: float = 0.0
    """Memory that libraries of matrix products hold for the whole run."""

    def graph_of(self, graph: ComputationGraph) -> ComputationGraph:
        """Return a network with its attention and its loss as the software computes them."""
        layers = [self._layer_of(layer) for layer in graph.layers]
        same = all(new is old for new, old in zip(layers, graph.layers, strict=True))
        return graph if same else graph.with_layers(layers)

    def _layer_of(self, layer: Layer) -> Layer:
        """Return a layer as the software computes it; the same one where that is by one kernel."""
        operation = layer.operation
        if isinstance(operation, Attention):
            repeats = not self.fused and self.flash not in _GROUPED
            if repeats or not self.flash:
                return replace(layer, operation=replace(operation, fused=self.flash > 0, repeats=repeats))
        if isinstance(operation, Loss) and operation.reads_rows and operation.calls != self.loss:
            return replace(layer, operation=replace(operation, calls=self.loss))
        return layer


_GROUPED = (1, 2)
"""Versions of FlashAttention that are called by themselves, and take heads of keys that several heads share."""
IDEAL_SOFTWARE = Software()
"""Chains are one kernel each, and launches take no time."""
_LAUNCH_US = 26.0
"""Microseconds from one launch to the next by PyTorch, Python and automatic differentiation included: of steps of GPT-2
and Llama that are bound by it, 24 to 28, compiled ones not less (``hwprofiles/measured/h200_language_models.csv``)."""
_MEGATRON_LAUNCH_US = 47.0
"""The same of Megatron-LM in 2021: fitted to the 55 iterations of vTrain with a hidden size of 1,024 that are neither
tensor- nor pipeline-parallel.  Their mean error is 5.2 % with 47, 5.3 with 46, 5.5 with 48, 6.8 with 50."""
_NANOTRON_HOST = {"launch_us": 53, "peer_us": 245, "waits": 1}
"""The same of nanotron 0.5 in 2025: two iterations on one machine that split tensors 4 and 8 times, in micro-batches of
one sequence, of which 128 and 256, take 71 and 74 ms a micro-batch, for 1,357 launches.  They are no rows of
``nanotron_iterations.csv``.  Where its stages lie on different machines of AWS, collectives of tensors take its hosts
longer by as much for each device; why is not known.  Fitted to three iterations on two machines, with two stages and
tensors split 2, 4 and 8 times, which agree within 4 %."""
_ALONE = {
    **{"fused": 1, "launch_us": 0, "peer_us": 0, "waits": 0, "flash": 3, "channels_first": 0, "pads": 0},
    **{"loss": 0, "sums": 0, "copies": 0, "buffer": 0, "ahead": 0, "update": 0, "clips": 0, "workspace_mib": 0},
}
_WORKSPACE_MIB = 16.25
"""MiB of PyTorch for cuBLAS: 8,320 KiB for each of two threads, as the backward pass has its own; 32 MiB on Hopper."""
_PYTORCH = {**_ALONE, "launch_us": _LAUNCH_US, "sums": 1, "update": 2, "workspace_mib": _WORKSPACE_MIB}
_MEGATRON = {**_ALONE, "loss": 2, "sums": 2, "copies": 1, "buffer": 1, "update": 1, "workspace_mib": _WORKSPACE_MIB}
SOFTWARE: Mapping[str, Mapping[str, float]] = {
    "ideal": _ALONE,
    "pytorch": {**_PYTORCH, "fused": 0, "channels_first": 1, "loss": 1},
    "torch-compile": {**_PYTORCH, "pads": 1},
    "megatron-2021": {**_MEGATRON, "launch_us": _MEGATRON_LAUNCH_US, "waits": 2, "flash": 0, "clips": 1},
    "megatron-core": {**_MEGATRON, "launch_us": _LAUNCH_US, "sums": 0, "ahead": 1, "clips": 1},
    "nanotron": {**_MEGATRON, **_NANOTRON_HOST, "fused": 0, "flash": 2, "clips": 3},
    "cuda-graph": {**_PYTORCH, "fused": 0, "launch_us": 0, "channels_first": 1, "loss": 1},
}
"""Software by name, with the defaults of its parameters."""


def software_of(text: str) -> Software:
    """Return the software of a name, with parameters behind a colon: ``pytorch:launch_us=45,flash=0``.

    Raises:
        ConfigError: The name or a parameter is unknown, or a value breaks its rule.
    """
    name, _, rest = text.partition(":")
    if name not in SOFTWARE:
        raise ConfigError(f"software must be one of {', '.join(SOFTWARE)}, got {name!r}{did_you_mean(name, SOFTWARE)}")
    values = parameter_values("software", name, rest, SOFTWARE[name])
    for switch in ("fused", "channels_first", "pads", "copies", "buffer", "ahead"):
        if values[switch] not in (0, 1):
            raise ConfigError(f"{name}.{switch} must be 0 or 1, got {values[switch]:g}")
    if values["flash"] not in ATTENTION_VERSIONS:
        versions = ", ".join(map(str, ATTENTION_VERSIONS))
        raise ConfigError(f"{name}.flash must be one of {versions}, got {values['flash']:g}")
    for choice, most in (("waits", 2), ("update", 2), ("clips", 3), ("loss", 2), ("sums", 2)):
        if values[choice] not in range(most + 1):
            raise ConfigError(f"{name}.{choice} must be a whole number from 0 to {most}, got {values[choice]:g}")
    return Software(
        text=text,
        fused=values["fused"] > 0,
        launch_s=values["launch_us"] * MICRO,
        peer_s=values["peer_us"] * MICRO,
        waits=int(values["waits"]),
        channels_first=values["channels_first"] > 0,
        flash=int(values["flash"]),
        pads=values["pads"] > 0,
        update=int(values["update"]),
        clips=int(values["clips"]),
        loss=LOSS_CALLS[int(values["loss"])],
        sums=int(values["sums"]),
        trains_copies=values["copies"] > 0,
        gradient_buffer=values["buffer"] > 0,
        workspace_bytes=values["workspace_mib"] * MIB,
        ahead=values["ahead"] > 0,
    )
