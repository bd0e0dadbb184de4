"""Several files about one machine made one: what each knows, and where two contradict each other."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from groundwork.errors import ConfigError
from hwprofiles.machines.gpu_names import GpuKind, gpu_of_capability, gpu_of_model
from hwprofiles.readers.facts import (
    BELOW_HOST,
    LEVEL_NAMES,
    Card,
    CardList,
    Collectives,
    Facts,
    Gpu,
    GpuList,
    PairRates,
    Topology,
)


def merged_topology(topologies: Sequence[Topology]) -> Topology:
    """Return one topology that knows what any of several files of the machine knows.

    The first file that shows NVLinks, or else the first one, says how GPUs are joined; the others add addresses, names,
    rates of cards, and cards where it has none.

    Raises:
        ConfigError: Two files contradict each other.
    """
    base = next((each for each in topologies if each.nvlinks is not None), topologies[0])
    for other in topologies:
        if other is not base:
            base = _joined(base, _in_order_of(base, other))
    return base


def _in_order_of(base: Topology, other: Topology) -> Topology:
    """Return a topology with its GPUs in the order of another, by their PCI addresses where both have them."""
    if len(base.gpus) != len(other.gpus):
        raise ConfigError(f"contradiction: {base.origin} shows {len(base.gpus)} GPUs, {other.origin} {len(other.gpus)}")
    ours, theirs = ([gpu.bus for gpu in each.gpus] for each in (base, other))
    if not all(ours) or not all(theirs):
        return other
    if set(ours) != set(theirs):
        missing = next(iter(sorted(set(ours) - set(theirs))))
        raise ConfigError(f"contradiction: {base.origin} shows a GPU at {missing}, {other.origin} none")
    order = [theirs.index(bus) for bus in ours]
    entries = [*order, *range(len(order), len(order) + len(other.cards))]
    return replace(
        other,
        gpus=tuple(other.gpus[i] for i in order),
        levels=tuple(tuple(other.levels[i][j] for j in entries) for i in entries),
        nvlinks=None if other.nvlinks is None else tuple(tuple(other.nvlinks[i][j] for j in order) for i in order),
        switch_links=tuple(other.switch_links[i] for i in order) if other.switch_links else (),
    )


def _joined(base: Topology, other: Topology) -> Topology:
    """Return a topology with what another one adds; GPUs are in one order."""
    _compare_nvlinks(base, other)
    _compare_levels(base, other)
    gpus = tuple(
        Gpu(
            model=ours.model or theirs.model,
            bus=ours.bus or theirs.bus,
            memory_bytes=ours.memory_bytes or theirs.memory_bytes,
            capability=ours.capability or theirs.capability,
            pcie_bytes_per_s=ours.pcie_bytes_per_s or theirs.pcie_bytes_per_s,
            affinity=ours.affinity or theirs.affinity,
        )
        for ours, theirs in zip(base.gpus, other.gpus, strict=True)
    )
    count = len(gpus)
    # The PCIe relation of GPUs that NVLinks hide in one file may be plain in another.
    levels = [
        [ours if ours is not None else other.levels[i][j] for j, ours in enumerate(row[:count])] + list(row[count:])
        for i, row in enumerate(base.levels[:count])
    ] + [list(row) for row in base.levels[count:]]
    if base.cards or not other.cards:
        rates = {card.name: card.bits_per_s for card in other.cards}
        cards = tuple(replace(card, bits_per_s=card.bits_per_s or rates.get(card.name)) for card in base.cards)
        return replace(base, gpus=gpus, cards=cards, levels=tuple(map(tuple, levels)))
    levels = [row[:count] + list(other.levels[i][count:]) for i, row in enumerate(levels[:count])]
    levels += [list(row) for row in other.levels[count:]]
    return replace(base, gpus=gpus, cards=other.cards, levels=tuple(map(tuple, levels)))


def _compare_nvlinks(base: Topology, other: Topology) -> None:
    """Raise where two files show different NVLinks."""
    if base.nvlinks is None or other.nvlinks is None:
        return
    if bool(base.switch_links) != bool(other.switch_links):
        switched, plain = (base, other) if base.switch_links else (other, base)
        raise ConfigError(f"contradiction: {switched.origin} shows a switch of NVLinks, {plain.origin} none")
    for a, row in enumerate(base.nvlinks):
        for b in range(a):
            if row[b] != other.nvlinks[a][b]:
                raise ConfigError(
                    f"contradiction: {row[b]} NVLinks join GPU{b} and GPU{a} in {base.origin},"
                    f" {other.nvlinks[a][b]} in {other.origin}"
                )


def _compare_levels(base: Topology, other: Topology) -> None:
    """Raise where GPUs share a switch, or a socket, in one file and not in another.

    Programs differ in how they tell the levels between apart.
    """
    for a in range(len(base.gpus)):
        for b in range(a):
            ours, theirs = base.levels[a][b], other.levels[a][b]
            if ours is None or theirs is None:
                continue
            for near, far, one, two in ((ours, theirs, base, other), (theirs, ours, other, base)):
                if near <= BELOW_HOST and far == len(LEVEL_NAMES) - 1:
                    raise ConfigError(
                        f"contradiction: GPU{b} and GPU{a} share a PCIe switch in {one.origin}, and no socket in"
                        f" {two.origin}"
                    )


def named_gpu(facts: Iterable[Facts]) -> GpuKind | None:
    """Return the GPU that files name, None if none does.

    Raises:
        ConfigError: Two files, or two GPUs of a machine, are of different products; or the catalogue has no profile.
    """
    models: dict[str, tuple[str, float | None]] = {}
    capabilities: dict[int, str] = {}
    for each in facts:
        for gpu in each.gpus if isinstance(each, Topology | GpuList) else ():
            if gpu.model:
                models.setdefault(gpu.model, (each.origin, gpu.memory_bytes))
            elif gpu.capability:
                capabilities.setdefault(gpu.capability, each.origin)
        for model in each.models if isinstance(each, PairRates | Collectives) else ():
            models.setdefault(model, (each.origin, None))
    kinds = {model: gpu_of_model(model, origin, memory) for model, (origin, memory) in models.items() if model}
    if len({kind.profile for kind in kinds.values()}) > 1:
        (one, two), (first, second) = list(models)[:2], [origin for origin, _ in models.values()][:2]
        raise ConfigError(
            f"contradiction: GPUs are {one!r} in {first}, and {two!r} in {second}; name one with --device"
        )
    if kinds:
        return next(iter(kinds.values()))
    if len(capabilities) > 1:
        raise ConfigError("contradiction: GPUs have different compute capabilities; name one profile with --device")
    return next((gpu_of_capability(each, origin) for each, origin in capabilities.items()), None)


def check_counts(count: int, origin: str, facts: Iterable[Facts]) -> None:
    """Raise where a file shows another number of GPUs of the machine."""
    for each in facts:
        shown = len(each.gpus) if isinstance(each, GpuList) else count
        shown = len(each.bytes_per_s) if isinstance(each, PairRates) else shown
        if shown != count:
            raise ConfigError(f"contradiction: {origin} shows {count} GPUs, {each.origin} {shown}")
        if isinstance(each, Collectives):
            most = max(each.hosts.count(host) for host in set(each.hosts))
            if most > count:
                raise ConfigError(f"contradiction: {origin} shows {count} GPUs, {each.origin} {most} a machine")


def with_cards(topology: Topology, cards: CardList) -> Topology:
    """Return a topology with the rates of cards; those that are down carry nothing, and go.

    Raises:
        ConfigError: A card is not in the topology, or has another rate there.
    """
    rates = {card.name: card.bits_per_s for card in cards.cards}
    layers = {card.name: card.transport for card in cards.cards}
    known = {card.name: card for card in topology.cards}
    for name, rate in rates.items():
        if topology.cards and name not in known:
            raise ConfigError(f"contradiction: {cards.origin} shows the card {name}, {topology.origin} does not")
        before = known[name].bits_per_s if name in known else None
        if before and rate and abs(before - rate) > 0.02 * rate:
            raise ConfigError(
                f"contradiction: card {name} has {before / 1e9:g} Gbit/s in {topology.origin}, {rate / 1e9:g} in"
                f" {cards.origin}"
            )
    count = len(topology.gpus)
    kept = [i for i, card in enumerate(topology.cards) if card.name not in cards.down]
    entries = [*range(count), *(count + i for i in kept)]
    levels = tuple(tuple(topology.levels[i][j] for j in entries) for i in entries)
    old = tuple(
        replace(each, bits_per_s=rates.get(each.name, each.bits_per_s), transport=layers.get(each.name, each.transport))
        for each in (topology.cards[i] for i in kept)
    )
    return replace(topology, cards=old, levels=levels) if topology.cards else placed_cards(topology, cards.cards)


def placed_cards(topology: Topology, cards: Sequence[Card]) -> Topology:
    """Return a topology with cards whose place is not known: they meet GPUs at the farthest level."""
    far = len(LEVEL_NAMES) - 1
    rows = [[*row, *(far for _ in cards)] for row in topology.levels]
    width = len(rows) + len(cards)
    rows += [[None if i == len(topology.levels) + at else far for i in range(width)] for at in range(len(cards))]
    return replace(topology, cards=(*topology.cards, *cards), levels=tuple(map(tuple, rows)))


def without_slow_cards(topology: Topology) -> Topology:
    """Return a topology without cards of less than half the fastest one's rate: libraries do not use them."""
    fastest = max((card.bits_per_s or 0.0 for card in topology.cards), default=0.0)
    slow = tuple(card.name for card in topology.cards if card.bits_per_s and card.bits_per_s < fastest / 2)
    return with_cards(topology, CardList(origin=topology.origin, cards=(), down=slow)) if slow else topology
