"""Versions of FlashAttention: what a device reaches with an older one than its profile has measured.

The first, in Triton, reaches 30 to 50 % of the peak of A100 forward and 25 to 35 % backward, of which the middles are
taken, whatever the size of heads.  The second is what was measured on A100.  Neither has Hopper's own instructions,
without which H100 reaches 62.9 % of its peak; what was measured there is the third, whose authors' own charts have the
second at 0.58 to 0.68 of its speed for 4,096 positions and more.

Source:
    Dao, "FlashAttention-2", 2023, Sec. 1: the first one's shares of the peak.  Luo et al., "Benchmarking and Dissecting
    the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024: older instructions on H100.  Shah et al.,
    "FlashAttention-3", 2024, Figs. 5 and 6: H100, heads of 64 and 128.
"""

from dataclasses import replace

from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.fused_kernels import FUSED_PHASES, FusedEfficiency

ATTENTION_VERSIONS = (0, 1, 2, 3)
"""0: no fused attention; 1 and 2: these versions of FlashAttention; 3: the fastest that a profile has measured."""
_FIRST = {"forward": 0.40, "backward": 0.30}
_OLDER_INSTRUCTIONS = {"h100-80gb": 0.629, "h200": 0.629}
"""Share of the peak that a device reaches with the instructions of the one before."""
_OF_EIGHT_BITS = 0.5
"""Peak of products of sixteen bits, in which attention stays, as a share of that of eight bits."""


def with_attention(profile: ComputeProfile, version: int) -> ComputeProfile:
    """Return a profile whose fused attention is computed by a version of FlashAttention.

    A profile that knows no fused attention stays as it is.
    """
    older = _OLDER_INSTRUCTIONS.get(profile.name.partition("@")[0], 1.0)
    known = profile.fused.get(("attention", "forward"))
    if known is None or version not in (1, 2):
        return profile
    if version == 1:
        peak = older * (_OF_EIGHT_BITS if profile.element_bytes == 1 else 1.0)
        attention = {phase: FusedEfficiency(ceiling=share * peak, head_exponent=0.0) for phase, share in _FIRST.items()}
    else:
        measured = {phase: profile.fused.get(("attention", phase), known) for phase in FUSED_PHASES}
        attention = {phase: replace(each, ceiling=each.ceiling * older) for phase, each in measured.items()}
    parts = {("attention", phase): each for phase, each in attention.items()}
    return replace(profile, fused={**profile.fused, **parts})
