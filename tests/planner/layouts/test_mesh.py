"""Groups of a mesh, against the coordinates of its devices."""

import itertools

import pytest

from planner.layouts.mesh import Mesh


@pytest.mark.parametrize("sizes", [(4,), (2, 3), (3, 2, 2)])
def test_groups_differ_along_their_axis_alone(sizes):
    """Every device is in one group, at the place of its coordinate; devices are row-major, in any order."""
    coordinates = list(itertools.product(*map(range, sizes)))
    devices = [(7 * i + 3) % len(coordinates) for i in range(len(coordinates))]
    place = dict(zip(devices, coordinates, strict=True))
    mesh = Mesh(tuple((f"axis {i}", size) for i, size in enumerate(sizes)), tuple(devices))

    for axis, size in enumerate(sizes):
        groups = mesh.groups(axis).tolist()
        assert sorted(device for group in groups for device in group) == sorted(devices)
        for group in groups:
            assert [place[device][axis] for device in group] == list(range(size))
            assert len({place[device][:axis] + place[device][axis + 1 :] for device in group}) == 1
