"""The options of a plan, each with its help, its choices and its default, as the command line and plan texts take them.

A new option of planning is one field here, and one place that uses it.
"""

from dataclasses import dataclass
from typing import Literal

from groundwork.requests import option, whole_number

SyncAlgorithm = Literal[
    "ring",
    "ps",
    "ps-spread",
    "tree",
    "double-tree",
    "halving",
    "direct",
    "hierarchical",
    "hierarchical-3",
    "auto",
    "library",
]
"""Algorithms that synchronise gradients, as ``planner.cost.all_reduce.GRADIENT_SYNCS`` lists them."""


Precision = Literal["float32", "float64", "tf32", "float16", "bfloat16", "float8"]
"""Data types that a network can be trained in."""
ElementType = Literal["float32", "float64", "float16", "bfloat16"]
"""Data types of elements in memory."""
MasterType = Literal["float32", "float64", "none"]
"""Data types of master weights."""
DTYPE_BYTES = {"float32": 4, "float64": 8, "tf32": 4, "float16": 2, "bfloat16": 2, "float8": 2}
"""Bytes of an element of tensors and messages, by data type."""


def layer_names(text: str) -> tuple[str, ...]:
    """Return the names of layers that commas separate."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """A network, a cluster, and how the one is to be trained on the other, as given: ``PlanRequest`` checks it."""

    model: str = option(help="Model, such as vgg16 or vgg16:classes=21841.", metavar="MODEL", positional=True)
    """Name and parameters."""
    cluster: str = option(help="Cluster of the catalogue, such as p100-4x4:nodes=8, or a cluster file.", metavar="C")
    """Catalogue entry or path, with parameters."""
    batch: int = option(help="Samples in a mini-batch, over all devices.", metavar="N", parser=whole_number)
    strategy: str = option(
        "",
        help="Name, degrees or file of a strategy, and options of this command as further words, such as "
        "pipeline=4,schedule=gpipe; else pipeline where one of its options is given, data where an option is given "
        "that no search knows, or layerwise.",
        metavar="S",
    )
    """``data``, ``layerwise``, ... or a file; words that set other fields (``planner.plan.plan_text``) are taken out,
    and what ``""`` stands for is set, when the request is made."""
    text: str = ""
    """Strategy as it was given, with the words that set other fields: the name of the plan."""
    gradient_sync: SyncAlgorithm | None = option(
        None,
        help="All-reduce that synchronises gradients; auto picks the fastest for each layer; else auto where gradients "
        "are compressed to a type that has no sum, library where the cluster describes one, or ring.",
    )
    """One of ``planner.cost.all_reduce.GRADIENT_SYNCS``; None: what ``resolved`` says."""
    gradient_sync_order: Literal["end", "ready", "reuse"] = option(
        "end",
        help="Order of gradient synchronisation: end updates all layers at the end of the iteration; ready and reuse "
        "update each layer once its gradients are synchronised, as they are computed or first layers first.",
    )
    """One of ``planner.search.gradient_order.GRADIENT_SYNC_ORDERS``; ``end`` for strategies that are searched."""
    framework: str | None = option(
        None,
        help="Training software: ideal synchronises every layer by itself; ddp joins gradients into buckets and "
        "updates after the last; horovod joins what is ready at each cycle; ps keeps parameters in hosts' memory; "
        "else ddp where the cluster describes a library of collectives, or ideal.",
        metavar="F",
    )
    """One of ``planner.cost.framework.FRAMEWORKS``, with parameters; None: ``ddp`` where the cluster describes a
    library of collectives and the request has nothing that buckets cannot do, else ``ideal``."""
    software: str = option(
        "ideal",
        help="Software of one device: pytorch runs one call after another, launched by its host; torch-compile joins "
        "elementwise calls; cuda-graph has no launches; megatron-2021 keeps attention's scores in memory; ideal joins "
        "calls and has no launches.",
        metavar="W",
    )
    """One of ``planner.cost.software.SOFTWARE``, with parameters."""
    input_images_per_s: float | None = option(
        None,
        help="Samples a second that storage and decoding bring to all devices together; else no bound.",
        metavar="R",
    )
    """Iterations begin once their samples are there; > 0."""
    interference: bool | None = option(
        None,
        help="Let messages and arithmetic take from one another; else where the cluster declares channels.",
    )
    spread: bool | None = option(
        None, help="Let iterations wait for the slowest rank; else where the cluster declares a spread."
    )
    batch_norm: Literal["local", "reduced"] = option(
        "local", help="Normalise by the statistics of each part, or of the whole batch by an all-reduce over the parts."
    )
    dtype: Precision = option(
        "float32",
        help="Data type of tensors and messages: float32 multiplies outside tensor cores; tf32 rounds in products "
        "only, for tensor cores; float16 and bfloat16 keep master weights in float32; float8 multiplies in eight bits "
        "what is kept in sixteen.",
    )
    """One of ``DTYPE_BYTES``."""
    parameter_dtype: ElementType | None = option(
        None,
        help="Data type in which parameters are kept between their uses, which are in dtype; else that. FSDP keeps "
        "shards in float32 and gathers bfloat16.",
    )
    """As ``planner.graph.type_roles.DataTypes`` takes it, and so the next four."""
    gradient_dtype: ElementType | None = option(
        None,
        help="Data type in which gradients are accumulated and, but for message-dtype, sent; else that of tensors.",
    )
    message_dtype: ElementType | None = option(
        None, help="Data type in which gradients are summed over replicas that divide them; else gradient-dtype."
    )
    master_dtype: MasterType | None = option(
        None,
        help="Data type of the copies of parameters that the optimizer updates; none: it updates the parameters; else "
        "float32 beside parameters of sixteen bits.",
    )
    state_dtype: ElementType | None = option(
        None, help="Data type of the optimizer's state; else that of what it updates."
    )
    sub_batches: int = option(
        1,
        help="Split the batch of the fully connected layers into K micro-batches, so that communication of one "
        "overlaps computation of another.",
        metavar="K",
        parser=whole_number,
    )
    sub_batch_from: str = option(
        "", help="First layer that computes in micro-batches; else the first fully connected one.", metavar="LAYER"
    )
    sub_batch_order: Literal["each", "all"] = option(
        "each", help="Run each micro-batch forward and backward before the next, or all forward, then all backward."
    )
    update_each: bool = option(
        False, help="Update parameters after every micro-batch, not once an iteration.", names=("--update-each",)
    )
    stages: int | None = option(
        None, help="Stages of a pipeline; else one for each device.", metavar="S", parser=whole_number
    )
    micro_batches: int | None = option(
        None,
        help="Micro-batches of all layers: gradients are accumulated over them, and synchronised after the last; "
        "else 1, and for a pipeline the most that divide the batch, up to 4 S.",
        metavar="M",
        parser=whole_number,
    )
    schedule: str = option(
        "", help="Schedule of a pipeline: gpipe, 1f1b (the default), interleaved or zero-bubble.", metavar="K"
    )
    stage_at: tuple[str, ...] = option(
        (),
        help="First layers of the later stages of a pipeline, separated by commas; else the fastest division.",
        metavar="LAYERS",
        parser=layer_names,
    )
    compress_gradients: str = option(
        "",
        help="Data type that gradients are compressed to for their synchronisation, such as dynamic-tree.",
        metavar="TYPE",
    )
    compress_activations: str = option(
        "", help="Data type that tensors between layers, and their gradients, are compressed to.", metavar="TYPE"
    )
    compress_where: Literal["all", "pays"] = option(
        "all", help="Compress all of these messages, or those that shorten the simulated iteration."
    )
    gradient_layers: tuple[str, ...] | None = None
    """Layers whose gradients are compressed; None: all.  Set from Python only."""
    activation_layers: tuple[str, ...] | None = None
    """Layers whose outputs are compressed, with their gradients; None: all.  Set from Python only."""
    recompute: str = option(
        "none",
        help="Activations that are dropped and computed again in the backward pass: none; full, all but the input of "
        "each block; selective, attention's scores; segments, about the square root of the number of layers; or the "
        "last layers of the segments, A,B. Behind any of these, or alone, gathers: what collectives gathered, again.",
        metavar="R",
    )
    optimizer: Literal["sgd", "momentum", "adam"] = option(
        "momentum", help="Optimizer whose state must fit in memory beside the parameters."
    )
    mesh: bool = option(
        False,
        help="Let layerwise also search on a mesh of all devices, where layers may split what they sum over, or repeat "
        "a computation; let hybrid search tensor, sequence, expert and context parallelism in place of splits of "
        "positions and output channels.",
        names=("--mesh",),
    )
    refine: int = option(
        0,
        help="Plans to simulate to improve on the layer-wise optimum; 0 compares it with the usual strategies only.",
        metavar="N",
        low=0,
    )
