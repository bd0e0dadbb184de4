"""The request for a plan: everything that ``orrery plan`` takes, checked once, on its way into the plan file.

A new option of planning is one field here with its line of help, and one place that uses it.
"""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal

from groundwork.errors import ConfigError
from groundwork.input_files import text_of
from groundwork.requests import check_fields, option, whole_number

if TYPE_CHECKING:
    from hwprofiles.devices.device_graph import DeviceGraph
    from planner.graph.type_roles import DataTypes


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
class PlanRequest:
    """A network, a cluster, and how the one is to be trained on the other.

    Raises:
        ConfigError: A field has a value that is no choice of it; ``refine`` is negative, or positive for a strategy
            that is not searched; a word of ``strategy`` is wrong or contradicts a field; micro-batches, compression,
            recomputation or an order of gradient synchronisation are requested of a search, which does not know them;
            options of a pipeline are given for another strategy; or ``compress_where`` where nothing is compressed.
    """

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
        "last layers of the segments, A,B.",
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

    def __post_init__(self) -> None:
        # Here and not at the top: reading the fields for --help must not load NumPy.
        from planner.cost.framework import framework_of
        from planner.cost.software import software_of
        from planner.parallel.strategies import SEARCHED
        from planner.search.pipeline_strategy import has_stages

        for each in ("model", "cluster", "strategy"):  # a path counts as its text, which a plan file holds
            object.__setattr__(self, each, text_of(getattr(self, each), each))
        self._take_text()
        check_fields(self)
        if not self.strategy:
            object.__setattr__(self, "strategy", self._default_strategy)
        object.__setattr__(self, "text", self.text or self.strategy)
        name, searched = self.strategy, self.strategy in SEARCHED
        self._check_search(searched=searched)
        if self.sub_batches > 1 and has_stages(name):
            raise ConfigError(
                f"sub_batches must be 1 for {name}, which has micro-batches of its own, got {self.sub_batches}"
            )
        if self.sub_batches == 1:
            self._check_whole_batch()
        elif self.micro_batches:
            raise ConfigError(f"sub_batches must be 1 beside micro_batches of all layers, got {self.sub_batches}")
        if (self.stages or self.schedule or self.stage_at) and not has_stages(name):
            raise ConfigError(f"stages, schedule and stage_at are for the strategy pipeline, not {name}")
        software_of(self.software)
        self._check_messages()
        if self.input_images_per_s is not None and not 0 < self.input_images_per_s < float("inf"):
            raise ConfigError(f"input_images_per_s must be a number > 0, got {self.input_images_per_s:g}")
        joins_buckets = self.framework is not None and framework_of(self.framework).is_synchronous
        if joins_buckets and self._needs_ideal:
            raise ConfigError(f"framework must be ideal where {self._needs_ideal}, got {self.framework!r}")
        if self.compress_where == "pays" and not self.compressed_types:
            raise ConfigError("compress_where must be all where nothing is compressed, got 'pays'")
        if searched and self._unknown_to_searches:
            field, only, given = self._unknown_to_searches
            raise ConfigError(f"{field} must be {only} for {name}, whose search does not know it, got {given!r}")

    def _check_messages(self) -> None:
        """Refuse data types that make no sense, and messages in a type of their own where gradients are kept whole."""
        from planner.parallel.degrees import storage_of

        types = self.types
        if types.message != types.accumulation and storage_of(self.strategy).zero < 2:
            raise ConfigError(
                f"message_dtype must be {types.accumulation}, as gradients, where replicas keep them whole (without "
                f"zero=2 or fsdp), got {types.message!r}: compress-gradients={types.message} sends them so"
            )

    def _check_search(self, *, searched: bool) -> None:
        """Refuse options of searches beside strategies that are not searched so."""
        if self.refine < 0 or (self.refine and not searched):
            raise ConfigError(
                "refine must be >= 0, and 0 for strategies other than layerwise and hybrid, "
                f"got {self.refine} for {self.strategy}"
            )
        if self.mesh and (not searched or self.refine):
            raise ConfigError(
                f"mesh must be left out except for strategies layerwise and hybrid with refine 0, got {self.strategy} "
                f"with refine {self.refine}"
            )

    def resolved(self, cluster: "DeviceGraph") -> "PlanRequest":
        """Return the request with the conditions that a cluster declares where none are given.

        Args:
            cluster: The cluster of the request.

        Raises:
            ConfigError: The cluster declares nothing of what is asked for.
        """
        from planner.compression.data_types import compression
        from planner.compression.settings import can_synchronise
        from planner.cost.conditions import Conditions

        framework = "ideal" if self.framework is None and self._needs_ideal else self.framework
        declared: SyncAlgorithm = "library" if cluster.library and not self.compresses_gradients else "ring"
        if self.compresses_gradients and not can_synchronise(compression(self.compress_gradients), declared):
            declared = "auto"
        conditions = Conditions.of(cluster, framework, interference=self.interference, spread=self.spread)
        return replace(
            self,
            gradient_sync=self.gradient_sync or declared,
            framework=conditions.framework.text,
            interference=conditions.interference,
            spread=conditions.spread,
        )

    def _take_text(self) -> None:
        """Set the fields that words of the strategy set, and keep the text that says all this.

        Raises:
            ConfigError: A word is wrong, or contradicts its field.
        """
        from planner.plan.plan_text import read_plan_text

        strategy, said = read_plan_text(self.strategy)
        for each in fields(self):
            if each.name in said:
                given, value = getattr(self, each.name), said[each.name]
                if given not in (each.default, value):
                    rule = f"{each.name} must be {value!r} or left out beside strategy {self.strategy!r}"
                    raise ConfigError(f"{rule}, got {given!r}")
                object.__setattr__(self, each.name, value)
        if said:
            object.__setattr__(self, "text", self.strategy)
            object.__setattr__(self, "strategy", strategy)
        elif self.text:  # copied from the request that this one was made from
            strategy, said = read_plan_text(self.text)
            still = strategy in ("", self.strategy) and all(getattr(self, name) == said[name] for name in said)
            object.__setattr__(self, "text", self.text if still else "")

    def _check_whole_batch(self) -> None:
        """Refuse options of micro-batches where the batch is not split."""
        order = "" if self.sub_batch_order == "each" else self.sub_batch_order
        given = {"sub_batch_from": self.sub_batch_from, "sub_batch_order": order, "update_each": self.update_each}
        for name, value in given.items():
            if value:
                raise ConfigError(f"{name} must be left out where sub_batches is 1, got {value!r}")

    @property
    def _unknown_to_searches(self) -> tuple[str, object, object] | None:
        """An option that no search knows, the value that it must have for one, and its own value; None without one."""
        options: list[tuple[str, object, object]] = [
            ("sub_batches", 1, self.sub_batches),
            ("micro_batches", "left out", self.micro_batches or "left out"),
            ("compression", "none", next(iter(self.compressed_types), "none")),
            ("recompute", "none", self.recompute or "none"),
            ("gradient_sync_order", "end", self.gradient_sync_order),
        ]
        return next((option for option in options if option[1] != option[2]), None)

    @property
    def _default_strategy(self) -> str:
        """The strategy where none is given."""
        if self.has_pipeline_options:
            return "pipeline"
        return "data" if self._unknown_to_searches and not self.mesh else "layerwise"

    @property
    def types(self) -> "DataTypes":
        """Data types by role."""
        from planner.graph.type_roles import DataTypes

        return DataTypes.of(
            self.dtype,
            parameter=self.parameter_dtype,
            gradient=self.gradient_dtype,
            message=self.message_dtype,
            master=self.master_dtype,
            state=self.state_dtype,
        )

    @property
    def element_bytes(self) -> int:
        """Size of an element of a tensor: 2, 4 or 8."""
        return DTYPE_BYTES[self.dtype]

    @property
    def compresses_gradients(self) -> bool:
        """True if gradients are compressed for their synchronisation."""
        return self.compress_gradients not in ("", self.types.message)

    @property
    def _needs_ideal(self) -> str:
        """Reason why gradients cannot be joined into buckets; empty without one."""
        reasons = {
            "gradients are compressed": self.compresses_gradients,
            "gradient_sync_order is not end": self.gradient_sync_order != "end",
            "update_each is given": self.update_each,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def has_pipeline_options(self) -> bool:
        """True if an option is given that only pipelines have."""
        return bool(self.stages or self.micro_batches or self.schedule or self.stage_at)

    @property
    def compressed_types(self) -> tuple[str, ...]:
        """Data types that messages are compressed to, gradients first; the type that they have compresses nothing."""
        types = self.types
        pairs = (self.compress_gradients, types.message), (self.compress_activations, types.activation)
        return tuple(kind for kind, plain in pairs if kind not in ("", plain))
