"""Data types of a plan by role: in which type it multiplies, keeps, sums, sends and updates.

What an element of a parameter is, through an iteration in mixed precision::

    parameter, at rest ---> as products read it --(product)--> gradient ---> message ---> accumulation
        ^                                                                                     |
        +------------------------- master, beside the optimizer's state <---------------------+

Gradients of parameters are made in the type of activations, sent in that of messages, and summed over micro-batches in
that of accumulation.  Without master weights the optimizer updates the parameters themselves.

Source:
    Micikevicius et al., "Mixed Precision Training", ICLR 2018, Sec. 3.1: master weights.
    PyTorch FSDP, ``MixedPrecisionPolicy``: ``param_dtype`` of gathered parameters, ``reduce_dtype`` of sums.
    NVIDIA/Megatron-LM, ``accumulate_allreduce_grads_in_fp32``, ``main_params_dtype``, ``exp_avg_dtype``.
"""

from dataclasses import dataclass

from groundwork.errors import ConfigError

TYPE_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
"""Bytes of an element in memory and in messages."""
_KEPT = {"tf32": "float32", "float8": "bfloat16"}
"""Type in which the operands of products in another arithmetic are kept."""
NO_MASTER = "none"
"""Word for parameters that the optimizer updates themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTypes:
    """A type for each role; made by ``of``."""

    product: str
    """Arithmetic of products; empty: that of the compute profiles."""
    activation: str
    """Tensors between layers, their gradients, parameters as products read them, and gradients of parameters."""
    parameter: str
    """Parameters between their uses."""
    accumulation: str
    """Gradients as they are summed over micro-batches, and kept until the update."""
    message: str
    """Gradients as they are summed over replicas."""
    master: str
    """Copies of parameters that the optimizer updates; empty where it updates the parameters themselves."""
    state: str
    """State of the optimizer."""

    @classmethod
    def of(
        cls,
        dtype: str,
        *,
        parameter: str | None = None,
        gradient: str | None = None,
        message: str | None = None,
        master: str | None = None,
        state: str | None = None,
    ) -> "DataTypes":
        """Return the types that a word stands for, with others for single roles.

        Args:
            dtype: ``float32``, ``float64``, ``tf32``, ``float16``, ``bfloat16`` or ``float8``: parameters of sixteen
                bits have master weights in float32, and state has the type of what is updated.
            parameter: Parameters between their uses; None: those of activations.
            gradient: Accumulation; None: the type of activations.
            message: Messages with gradients; None: the type of accumulation.
            master: Master weights; ``none``: without.
            state: State of the optimizer.

        Raises:
            ConfigError: Parameters are narrower than activations, messages wider than what is accumulated, or master
                weights not wider than parameters.
        """
        activation = _KEPT.get(dtype, dtype)
        kept, summed = parameter or activation, gradient or activation
        if TYPE_BYTES[kept] < TYPE_BYTES[activation] or (
            kept != activation and TYPE_BYTES[kept] < TYPE_BYTES["float32"]
        ):
            raise ConfigError(f"parameter_dtype must be {activation}, as activations, or wider, got {kept!r}")
        if master is None and TYPE_BYTES[kept] < TYPE_BYTES["float32"]:
            master = "float32"
        master = "" if master in (None, NO_MASTER) else master
        if master and TYPE_BYTES[master] <= TYPE_BYTES[kept]:
            raise ConfigError(f"master_dtype must be wider than parameters in {kept}, or none, got {master!r}")
        if message and message != summed and TYPE_BYTES[message] >= TYPE_BYTES[summed]:
            raise ConfigError(f"message_dtype must be {summed}, as gradients, or narrower, got {message!r}")
        return cls(
            product=dtype,
            activation=activation,
            parameter=kept,
            accumulation=summed,
            message=message or summed,
            master=master,
            state=state or master or kept,
        )

    @property
    def updated(self) -> str:
        """Type of what the optimizer updates."""
        return self.master or self.parameter

    def at_rest(self, *, divided: bool) -> tuple[str, str]:
        """Return the types in which a device keeps a parameter, and a copy of it that is updated; empty without one.

        Args:
            divided: Whether replicas divide the parameter, and gather it in the type of activations.  Else it is kept
                as products read it.
        """
        if divided or self.parameter == self.activation:
            return self.parameter, self.master
        return self.activation, self.updated


def types_of(element_bytes: int) -> DataTypes:
    """Return the types of a network whose elements have so many bytes, 2, 4 or 8, in the profiles' own arithmetic."""
    types = DataTypes.of({2: "bfloat16", 4: "float32", 8: "float64"}[element_bytes])
    return DataTypes(**{**{name: getattr(types, name) for name in DataTypes.__slots__}, "product": ""})
