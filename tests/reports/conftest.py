"""The browser of all tests of a process ends with them."""

from browsing import close_chromium


def pytest_sessionfinish():
    close_chromium()
