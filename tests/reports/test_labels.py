"""Words beside points keep off one another, off points and off the edge, or are left out."""

from itertools import combinations

from hypothesis import given, strategies as st

from reports.figures.agreement import _box, label_places

SHARES = st.floats(0, 1)
POINTS = st.lists(st.tuples(st.sampled_from(["owt", "data", "layerwise"]), SHARES, SHARES), max_size=8)


@given(points=POINTS)
def test_no_words_cover_others_or_leave_the_picture(points):
    places = label_places(points)
    boxes = [_box(words, x, y, place) for (words, x, y), place in zip(points, places, strict=True) if place]
    assert len(places) == len(points)
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for box in boxes:
        assert min(box) >= 0
        assert max(box) <= 1
        for _, x, y in points:
            assert not (box[0] < x < box[2] and box[1] < y < box[3])


def test_the_first_of_several_in_one_place_is_named():
    assert label_places([("owt", 0.5, 0.5)]) == ["top center"]
    places = label_places([("layerwise", 0.5, 0.5)] * 6)
    assert places[0] == "top center"
    assert "" in places
