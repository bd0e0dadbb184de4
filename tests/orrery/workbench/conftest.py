"""One server for the tests of a module."""

import sys
from pathlib import Path

import pytest
from workbench_server import served

sys.path.append(str(Path(__file__).parents[2] / "reports"))

from browsing import close_chromium


@pytest.fixture(scope="module")
def server_python(warm_programs):
    """What runs the server: an interpreter that starts warm, but where tests look at its processes."""
    return str(warm_programs / "python")


@pytest.fixture(scope="module")
def server(tmp_path_factory, server_python):
    place = tmp_path_factory.mktemp("workbench")
    with served(place / "folder", place / "elsewhere", python=server_python) as running:
        yield running
    assert list((place / "elsewhere").iterdir()) == []  # it writes nowhere else


def pytest_sessionfinish():
    close_chromium()
