"""A library of collectives, such as NCCL: its protocols, what a call and a step take, and what links then carry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryProtocol:
    """A way to hand data from device to device: the faster a step, the more bytes on the link."""

    name: str
    """``ll``, ``ll128`` or ``simple``."""
    call_s: float
    """Time from the call until data moves: launch, agreement of the ranks, first chunk."""
    hop_s: float
    far_hop_s: float
    wire_ratio: float
    """Bytes on a link for each byte of the buffer: flags beside data, or synchronisation; >= 1."""
    tree_hop_s: float
    """Latency of a step of a tree between devices of one node: a rank hands on whole chunks, after it added its own."""
    tree_far_hop_s: float
    far_wire_ratio: float
    """``wire_ratio`` of rings between nodes."""
    near_only: bool
    """True if nothing goes by it between nodes."""
    step_s: float = 0.0
    """Least time of each step of a ring that crosses nodes: what posting a message takes."""
    message_s: float = 0.0
    """Time for which a long message of a ring that crosses nodes keeps its channel."""
    later_hop_s: float
    """``far_hop_s`` of the steps of a ring for which no receive stands ready: those beyond the library's slots."""
    later_message_s: float
    """``message_s`` of these."""
    message_bytes: float = 2.0**16
    """Bytes from which a message is long; shorter ones take a share of that time by their length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InSwitchSums:
    """Sums that switches compute, those inside a node or those of the network: each byte goes out and comes in once."""

    call_s: float
    link_share: float
    """Share of a link's bandwidth that is reached, in (0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLibrary:
    """What a library adds to the links of a cluster.

    Source:
        The form, a latency by algorithm and protocol plus bytes over a bandwidth that the protocol reduces, is that of
        the tuner of NVIDIA's NCCL (src/graph/tuning.cc).
    """

    name: str
    protocols: tuple[LibraryProtocol, ...]
    copy_bytes_per_s: float
    """Rate at which a rank copies the part of the buffer that it does not send, before or after it sends others."""
    near_share: float
    """Share of the bandwidth of links inside a node that is reached, in (0, 1]."""
    tree_share: float | None
    """Share of the links' bandwidth that double binary trees reach, in (0, 1]; None where the library has none."""
    in_switch: InSwitchSums | None = None
    """Sums of the switches inside a node; None where these compute none."""
    in_network: InSwitchSums | None = None
    """Sums of the switches between nodes, such as NVIDIA's SHARP; None where these compute none."""
    send_call_s: float | None = None
    """Time from the call until data of sends by the last protocol moves; None: as long as that of collectives."""
    send_share: float = 1.0
    """Share of the bandwidth of links between nodes that sends reach, in (0, 1]."""
    split_trees: bool = True
    """True if each card of two nodes carries half of what it carries of trees over more; False: as much."""
    amd_hosts: bool = False
    """True if the hosts' processors are AMD's, of which the library's tuner has constants of their own."""
    release: tuple[int, ...] | None = None
    """Release, such as (2, 18), by which its tuner's constants go; None: one of those that are in use now."""
    declared_s: float = 0.0
    """Latency of a step between nodes that the network's plug-in declares to the library's tuner."""
    post_s: float = 0.0
    """Time in which a rank's thread posts a send to another node, one after another."""
    inline_s: float = 0.0
    """Time by which that of a send takes longer that processors copy from the device, as it goes with its command."""
    inline_bytes: float = 0.0
    """Bytes of the longest such send."""
    rank_bytes_per_s: float | None = None
    """Rate at which a rank's thread copies what it sends to other nodes; None: it copies nothing."""
