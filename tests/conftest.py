"""What several test folders share: a fixed hypothesis profile and a headless browser."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# The machine may be shared: no test depends on how long an example takes, and failures repeat.
settings.register_profile("orrery", deadline=None, derandomize=True)
settings.load_profile("orrery")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, headless; skips where there is none."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("needs Chromium on the path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield launched
        launched.close()
