"""Whether something fits is decided by what a device has left for it, not by all that it has."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("executor", "groundwork", "hwprofiles", "orrery", "planner", "reports", "simulator", "studies")
OTHERS = {"self", "work", "kernels", "costs"}
"""Owners of other attributes of this name: a device or profile that checks its field, traffic of kernels, a need."""


def compares_all_memory(source):
    """Whether code compares an attribute ``memory_bytes`` with anything, by order."""
    return "memory_bytes" in source and any(
        isinstance(node, ast.Compare)
        and any(isinstance(order, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for order in node.ops)
        and any(
            isinstance(each, ast.Attribute) and each.attr == "memory_bytes" and ast.unparse(each.value) not in OTHERS
            for each in ast.walk(node)
        )
        for node in ast.walk(ast.parse(source))
    )


def test_nothing_is_compared_with_all_memory_of_a_device():
    assert compares_all_memory("fits = needed.max() <= min(device.memory_bytes for device in devices)")
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if compares_all_memory(path.read_text())}
    assert found == set()
