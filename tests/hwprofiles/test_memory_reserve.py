"""What of a device's memory a network can have, against what drivers and frameworks report of real devices."""

import pytest
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError
from groundwork.units import GIB
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device import GPU_RESERVE, MemoryReserve

SIZES = st.floats(1.0, 1e13)


@pytest.mark.parametrize(("nominal_gib", "reported_gib"), [(40, 39.50), (32, 31.37), (11, 10.76)])
def test_a_network_has_less_than_the_driver_reports_for_programs(nominal_gib, reported_gib):
    """A context of 0.3 GiB at least comes off the total capacity that PyTorch states when memory is full."""
    usable = load_cluster(f"titanx-4:device.*.memory_gib={nominal_gib}").devices[0].usable_bytes / GIB
    assert 0.9 * reported_gib < usable < reported_gib - 0.3


def test_processors_of_the_laboratory_keep_nothing_back():
    assert all(device.usable_bytes == device.memory_bytes for device in load_cluster("lab-2x2").devices)


@given(sizes=st.tuples(SIZES, SIZES))
def test_more_memory_leaves_more_and_little_memory_leaves_most_of_it(sizes):
    less, more = (GPU_RESERVE.usable_bytes(size) for size in sorted(sizes))
    assert less <= more
    assert 0.8 * min(sizes) < less < min(sizes)


def test_a_change_of_the_memory_is_a_file_with_that_memory():
    changed = load_cluster("titanx-4:device.*.memory_gib=0.05").devices[0]
    assert changed.usable_bytes == pytest.approx(0.05 * GIB * (1 - 0.1 - 0.04))
    assert load_cluster("titanx-4:device.*.memory_gib=160").devices[0].usable_bytes == pytest.approx(
        (160 * 0.96 - 0.75) * GIB
    )


@pytest.mark.parametrize(
    ("field", "bad"), [("fixed_bytes", -1.0), ("fixed_bytes", float("inf")), ("share", 0.6), ("share", float("nan"))]
)
def test_reserves_that_are_none_are_refused(field, bad):
    with pytest.raises(ConfigError, match=rf"MemoryReserve\.{field} must be"):
        MemoryReserve(**{field: bad})
