"""Storage: the layout at rest of parameters, gradients and optimizer state over the replicas of each layer.

Replicas of a layer hold the same parameters.  What each of them keeps of four shards, of four replicas::

    zero    parameters   gradients   optimizer state   messages of an iteration
    0       all          all         all               all-reduce of gradients
    1       all          all         one shard         reduce-scatter of gradients, all-gather of parameters
    2       all          one shard   one shard         the same, of each micro-batch's gradients
    3       one shard    one shard   one shard         all-gathers before use, reduce-scatter of gradients

Source:
    Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, Fig. 1.
    Zhao et al., "PyTorch FSDP", VLDB 2023, Sec. 3.2: full and hybrid sharding.
"""

from dataclasses import dataclass

STAGES = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How replicas divide among themselves what they would each hold."""

    zero: int = 0
    """One of ``STAGES``."""
    group: int = 0
    """Replicas that divide it, of which others hold copies (hybrid sharding); 0: all replicas of a layer."""
    gathers_again: bool = True
    """True if gathered parameters are released after the forward pass, and gathered once more for the backward pass."""

    @property
    def divides(self) -> bool:
        """True if anything is divided."""
        return self.zero > 0

    def shards(self, replicas: int) -> int:
        """Return the number of shards of a layer with so many replicas."""
        return self.group if self.group and replicas % self.group == 0 else replicas


REPLICATED_STORAGE = Storage()
"""Every replica holds all of it."""
