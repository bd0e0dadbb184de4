"""Versions of FlashAttention: what a device reaches with an older one than its profile has measured.

The first, in Triton, reaches 30 to 50 % of the peak of A100 forward and 25 to 35 % backward, of which the middles are
taken, whatever the size of heads.  It has none of Hopper's own instructions, without which H100 reaches 62.9 % of its
peak.

Source:
    Dao, "FlashAttention-2", 2023, Sec. 1: the first one's shares of the peak.  Luo et al., "Benchmarking and Dissecting
    the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024: older instructions on H100.
"""

from dataclasses import replace

from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.fused_kernels import FusedEfficiency

ATTENTION_VERSIONS = (0, 1, 2)
"""0: no fused attention; 1 and 2: versions of FlashAttention."""
_FIRST = {"forward": 0.40, "backward": 0.30}
_OLDER_INSTRUCTIONS = {"h100-80gb": 0.629}
"""Share of the peak that a device reaches with the instructions of the one before."""
_OF_EIGHT_BITS = 0.5
"""Peak of products of sixteen bits, in which attention stays, as a share of that of eight bits."""


def with_attention(profile: ComputeProfile, version: int) -> ComputeProfile:
    """Return a profile whose fused attention is computed by a version of FlashAttention.

    A profile that knows no fused attention stays as it is.
    """
    if version != 1 or ("attention", "forward") not in profile.fused:
        return profile
    device = profile.name.partition("@")[0]
    peak = _OLDER_INSTRUCTIONS.get(device, 1.0) * (_OF_EIGHT_BITS if profile.element_bytes == 1 else 1.0)
    attention = {
        ("attention", phase): FusedEfficiency(ceiling=share * peak, head_exponent=0.0)
        for phase, share in _FIRST.items()
    }
    return replace(profile, fused={**profile.fused, **attention})
