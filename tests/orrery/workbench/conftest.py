"""One server for the tests of a module."""

import sys
from pathlib import Path

import pytest
from workbench_server import served

sys.path.append(str(Path(__file__).parents[2] / "reports"))

from browsing import close_chromium


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("workbench")
    with served(place / "folder", place / "elsewhere") as running:
        yield running
    assert list((place / "elsewhere").iterdir()) == []  # it writes nowhere else


def pytest_sessionfinish():
    close_chromium()
