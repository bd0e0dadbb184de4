"""One server for the tests of a module."""

import pytest
from workbench_server import served


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("workbench")
    with served(place / "folder", place / "elsewhere") as running:
        yield running
    assert list((place / "elsewhere").iterdir()) == []  # it writes nowhere else
