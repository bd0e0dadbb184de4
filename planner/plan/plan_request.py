"""The request for a plan: everything that ``orrery plan`` takes, checked once, on its way into the plan file."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from groundwork.errors import ConfigError
from groundwork.input_files import text_of
from groundwork.requests import check_fields
from planner.plan.plan_options import DTYPE_BYTES, PlanOptions, SyncAlgorithm

if TYPE_CHECKING:
    from hwprofiles.devices.device_graph import DeviceGraph
    from planner.graph.type_roles import DataTypes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest(PlanOptions):
    """A network, a cluster, and how the one is to be trained on the other.

    Raises:
        ConfigError: A field has a value that is no choice of it; ``refine`` is negative, or positive for a strategy
            that is not searched; a word of ``strategy`` is wrong or contradicts a field; micro-batches, compression,
            recomputation or an order of gradient synchronisation are requested of a search, which does not know them;
            options of a pipeline are given for another strategy; or ``compress_where`` where nothing is compressed.
    """

    def __post_init__(self) -> None:
        # Here and not at the top: reading the fields for --help must not load NumPy.
        from planner.cost.framework import framework_of
        from planner.cost.software import software_of
        from planner.search.pipeline_strategy import has_stages
        from planner.strategies.named_strategies import is_searched

        for each in ("model", "cluster", "strategy"):  # a path counts as its text, which a plan file holds
            object.__setattr__(self, each, text_of(getattr(self, each), each))
        self._take_text()
        check_fields(self)
        if not self.strategy:
            object.__setattr__(self, "strategy", self._default_strategy)
        object.__setattr__(self, "text", self.text or self.strategy)
        name, searched = self.strategy, is_searched(self.strategy)
        self._check_search(searched=searched)
        if self.sub_batches > 1 and has_stages(name):
            raise ConfigError(
                f"sub_batches must be 1 for {name}, which has micro-batches of its own, got {self.sub_batches}"
            )
        if self.sub_batches == 1:
            self._check_whole_batch()
        elif self.micro_batches:
            raise ConfigError(f"sub_batches must be 1 beside micro_batches of all layers, got {self.sub_batches}")
        if (self.stages or self.stage_at or (self.schedule and not self._finds_hybrid)) and not has_stages(name):
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
        from planner.strategies.degrees import storage_of

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
                "mesh must be left out except for strategies layerwise and hybrid with refine 0, as refinement changes "
                f"degrees of layers, not axes of a mesh, got {self.strategy} with refine {self.refine}"
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
    def _finds_hybrid(self) -> bool:
        """True if a hybrid is searched, with the micro-batches, schedule and recomputation that are given."""
        from planner.strategies.degrees import SEARCHED_HYBRID

        return self.strategy.partition(",")[0] == SEARCHED_HYBRID

    @property
    def _unknown_to_searches(self) -> tuple[str, object, object] | None:
        """An option that no search knows, the value that it must have for one, and its own value; None without one."""
        options: list[tuple[str, object, object]] = [
            ("sub_batches", 1, self.sub_batches),
            ("compression", "none", next(iter(self.compressed_types), "none")),
            ("gradient_sync_order", "end", self.gradient_sync_order),
        ]
        if not self._finds_hybrid or self.refine:
            options += [
                ("micro_batches", "left out", self.micro_batches or "left out"),
                ("recompute", "none", self.recompute or "none"),
            ]
        return next((option for option in options if option[1] != option[2]), None)

    @property
    def _default_strategy(self) -> str:
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


def check_plan_text(text: str) -> None:
    """Refuse a text that no plan can have, whatever is trained and on what.

    Raises:
        ConfigError: Its strategy or an option is unknown, or an option has a wrong value.
    """
    from planner.strategies.named_strategies import check_strategy

    strategy = PlanRequest(model="", cluster="", batch=1, strategy=text).strategy
    check_strategy(strategy if text else "")  # alone an empty text is the default; in a list it names nothing
