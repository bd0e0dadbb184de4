"""The engine of these tests is the compiled one, as for large graphs."""

import pytest

from simulator.engines.engine import prepare


@pytest.fixture(autouse=True, scope="session")
def _compiled():
    prepare("compiled")
