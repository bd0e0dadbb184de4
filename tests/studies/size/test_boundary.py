"""The search for a boundary against trying every candidate."""

from hypothesis import given, strategies as st

from studies.size.boundary import find_boundary


def searched(values, limit, **options):
    """The boundary where values at most a limit hold, and how often each was asked for."""
    asked = []

    def value(at):
        asked.append(at)
        return values[at]

    found = find_boundary(len(values), value, lambda at: values[at] <= limit, **options)
    assert len(asked) == len(set(asked))
    assert found.tried == tuple(sorted(asked))
    return found


@given(st.lists(st.integers(0, 50), min_size=1, max_size=120), st.integers(-1, 51))
def test_falling_values_have_their_boundary_found_with_few_evaluations(values, limit):
    values = sorted(values, reverse=True)
    found = searched(values, limit)
    assert found.first == next((at for at, value in enumerate(values) if value <= limit), None)
    assert not found.scanned
    assert len(found.tried) <= 2 * len(values).bit_length() + 4
    edge = len(values) if found.first is None else found.first
    assert {at for at in (edge - 1, edge - 2) if at >= 0} <= set(found.tried)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 9))
def test_a_boundary_that_is_told_of_holds_and_a_scan_finds_the_first(values, limit):
    """Whatever the values: what holds is never wrong, and where a fault is seen nothing smaller is missed."""
    found = searched(values, limit)
    if found.first is not None:
        assert values[found.first] <= limit
        if found.scanned and found.complete:
            assert found.first == next(at for at, value in enumerate(values) if value <= limit)


def test_a_scan_that_would_take_too_long_says_so():
    """Two hundred candidates before the boundary, and a bump among those that are tried."""
    values = [300.0 - at for at in range(300)]
    values[7] = 1000.0
    found = searched(values, 20.0)
    assert (found.first, found.scanned, found.complete) == (280, True, False)
