"""The architecture: imports point down and name what defines a thing, torch stays in the executor, all is documented.

A package is a folder at the top (``planner``), a subpackage a folder with Python files in one (``planner/cost``).
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")
"""Each imports those before it."""
TORCH_AT_TOP = {"executor"}
TORCH_INSIDE_FUNCTIONS = {"executor", "planner"}

FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree: not all processes that collect tests need all of them."""
    return ast.parse(path.read_text(), filename=path)


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that one import statement names: ``from a import b`` names ``a.b``."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import on line {node.lineno}"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, also inside functions; looking through their expressions takes five times as long."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, field, ()):
            yield node
            yield from statements(node)


def at_top(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run on import: not those inside functions, nor those only for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from at_top(node)


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports, also inside functions."""
    return frozenset(name for node in statements(tree_of(path)) for name in imports(node))


@cache
def imported_at_top(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports when it is loaded."""
    return frozenset(name for node in at_top(tree_of(path)) for name in imports(node))


def module_of(name: str) -> str | None:
    """Return the module of ours that a dotted name lies in."""
    return name if name in MODULES else module_of(name.rpartition(".")[0]) if "." in name else None


def public_definitions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the module, its public classes and functions, and the public methods of those classes."""
    yield tree
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")]
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node


def package_of(path: Path) -> str:
    """Return the package that a file lies in."""
    return path.relative_to(ROOT).parts[0]


def folder_of(module: str) -> str:
    """Return the package or subpackage that a module lies in; it lies in itself."""
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


@cache
def defined(module: str) -> frozenset[str]:
    """Return the names that a module defines itself."""
    nodes = list(ast.walk(tree_of(MODULES[module])))
    definitions = {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    return frozenset(definitions | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})


def test_imports_point_down():
    """A package imports itself and the packages below it, also inside functions."""
    above = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name in imported(path)
        if name.split(".")[0] in PACKAGES[PACKAGES.index(package_of(path)) + 1 :]
    }

    assert above == set()


def test_names_are_imported_from_the_modules_that_define_them():
    """No name is taken from a module or package that merely imported it; ``orrery`` itself is for users."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    through = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*FILES, *tests]
        for name in imported(path)
        if name not in MODULES and (module := module_of(name)) not in (None, "orrery")
        if name.removeprefix(f"{module}.") not in defined(module)
    }

    assert through == set()


def test_torch_stays_in_the_executor():
    """Torch is loaded at import by the executor alone; the planner may use it inside a function."""
    top, anywhere = (
        {path for path in FILES if any(name.split(".")[0] == "torch" for name in names(path))}
        for names in (imported_at_top, imported)
    )

    assert {path for path in top if package_of(path) not in TORCH_AT_TOP} == set()
    assert {path for path in anywhere if package_of(path) not in TORCH_INSIDE_FUNCTIONS} == set()


def test_no_import_cycles():
    """Modules can be put in an order in which each comes after all that it imports, also inside functions."""
    graph = {
        module: {found for name in imported(path) if (found := module_of(name)) and found != module}
        for module, path in MODULES.items()
    }

    order = list(TopologicalSorter(graph).static_order())  # raises CycleError with the cycle

    assert set(order) == set(MODULES)


def test_no_two_subpackages_import_each_other():
    """Packages and subpackages can be put in an order in which each comes after all that it imports."""
    graph = {folder_of(module): set[str]() for module in MODULES}
    for module, path in MODULES.items():
        for name in imported(path):
            found = module_of(name)
            if found and folder_of(found) != folder_of(module):
                graph[folder_of(module)].add(folder_of(found))

    order = list(TopologicalSorter(graph).static_order())  # raises CycleError with the cycle

    assert set(order) == set(graph)


def test_no_name_is_public_in_two_places():
    """Each public class, function and constant is defined in one module of the whole tree."""
    homes = defaultdict[str, set[str]](set)
    for module, path in MODULES.items():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names = [node.name]
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            else:
                continue
            for name in names:
                homes[name] |= {module}

    assert {name: sorted(where) for name, where in homes.items() if len(where) > 1 and name[0] != "_"} == {}


def test_everything_public_is_documented():
    """Modules, public classes, functions and methods have docstrings; what overrides has that of the base."""
    missing = [
        f"{path.relative_to(ROOT)}: {getattr(node, 'name', 'module')}"
        for path in FILES
        for node in public_definitions(tree_of(path))
        if not ast.get_docstring(node)
        and "override" not in [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
    ]

    assert missing == []


SMALL_PLAN = """
import importlib, sys
sys.modules["torch"] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
assert run_app(app, "plan lenet5 --cluster titanx-4 --batch 64 --out /dev/null".split()) == 0
assert "numba" not in sys.modules
"""


def test_everything_but_the_executor_works_without_torch():
    """Simulator, planner, reports and command line load where torch cannot be imported, a small plan without numba."""
    modules = [name for name in MODULES if not name.startswith("executor") and name != "orrery.__main__"]

    ended = subprocess.run([sys.executable, "-c", SMALL_PLAN, *modules], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
