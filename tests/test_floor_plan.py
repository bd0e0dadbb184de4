"""The house holds: imports point down, rooms show what they lend, torch stays in the executor, all is documented.

A floor is a folder at the top (``planner``), a room is a folder with Python files (``planner/cost``).
"""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")
"""From the ground up."""
TORCH_AT_TOP = {"executor"}
TORCH_INSIDE_FUNCTIONS = {"executor", "planner"}

FILES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
ROOMS = {module: path.with_suffix(".pyi") for module, path in MODULES.items() if path.name == "__init__.py"}
"""Every room with the stub that lists what others may use of it; rooms that nobody uses have none."""
MOST_FILES = 16
ENTRANCES = {"orrery": "the command line and the public names import whatever they show"}


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
    return frozenset(name for node in ast.walk(tree_of(path)) for name in imports(node))


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


def floor_of(path: Path) -> str:
    """Return the floor that a file lies on."""
    return path.relative_to(ROOT).parts[0]


def test_imports_point_down():
    """A folder imports itself and the folders below it, also inside functions."""
    above = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name in imported(path)
        if name.split(".")[0] in FLOORS[FLOORS.index(floor_of(path)) + 1 :]
    }

    assert above == set()


def test_torch_stays_in_the_executor():
    """Torch is loaded at import by the executor alone; the planner may use it inside a function."""
    top, anywhere = (
        {path for path in FILES if any(name.split(".")[0] == "torch" for name in names(path))}
        for names in (imported_at_top, imported)
    )

    assert {path for path in top if floor_of(path) not in TORCH_AT_TOP} == set()
    assert {path for path in anywhere if floor_of(path) not in TORCH_INSIDE_FUNCTIONS} == set()


def test_no_import_cycles():
    """Modules can be loaded in an order in which each comes after all that it imports."""
    graph = {
        module: {found for name in imported_at_top(path) if (found := module_of(name))}
        for module, path in MODULES.items()
    }

    order = list(TopologicalSorter(graph).static_order())  # raises CycleError with the cycle

    assert set(order) == set(MODULES)


def room_of(module: str) -> str:
    """Return the room that a module lies in; a room lies in itself."""
    return module if module in ROOMS else module.rpartition(".")[0]


def imports_between_rooms() -> Iterator[tuple[str, str, str]]:
    """Yield (module, room, imported name) for every import of another room, also inside functions."""
    for module, path in MODULES.items():
        for name in imported(path):
            found = module_of(name)
            if found and room_of(found) != room_of(module):
                yield module, room_of(found), name


def listed(room: str) -> set[str]:
    """Return the names that a room lends to others, by its stub."""
    if not ROOMS[room].exists():
        return set()
    tree = ast.parse(ROOMS[room].read_text())
    return {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_rooms_import_one_another_through_their_lists():
    """No file reaches past the list of another room to one of its modules."""
    past = {
        f"{module}: {name}" for module, room, name in imports_between_rooms() if name.count(".") > room.count(".") + 1
    }

    assert past == set()


def test_rooms_list_what_others_use_and_nothing_else():
    """The list of a room is what is imported from it."""
    used = {room: set[str]() for room in ROOMS}
    for _, room, name in imports_between_rooms():
        used[room].add(name.rpartition(".")[2])
    public = imported(MODULES["orrery"])

    for room in ROOMS.keys() - ENTRANCES.keys():
        lent = used[room] | {name.rpartition(".")[2] for name in public if name.rpartition(".")[0] == room}
        assert listed(room) == lent, room


def test_no_two_rooms_import_each_other():
    """Rooms can be put in an order in which each comes after all that it imports."""
    graph = {room: set[str]() for room in ROOMS}
    for module, room, _ in imports_between_rooms():
        graph[room_of(module)].add(room)

    order = list(TopologicalSorter(graph).static_order())  # raises CycleError with the cycle

    assert set(order) == set(ROOMS)


def test_rooms_are_no_larger_than_one_can_take_in():
    """A room holds few files, and most files are short."""
    files = Counter(room_of(module) for module in MODULES)
    lengths = sorted(len(path.read_text().splitlines()) for path in FILES)

    assert {room: count for room, count in files.items() if count > MOST_FILES} == {}
    assert lengths[len(lengths) // 2] <= 130
    assert lengths[len(lengths) * 9 // 10] <= 320


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


def test_modules_say_what_is_public():
    """Every module with code has one ``__all__``."""
    silent = []
    for path in FILES:
        tree = tree_of(path)
        assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        targets = [node.targets if isinstance(node, ast.Assign) else [node.target] for node in assigned]
        said = [each for each in targets if any("__all__" in ast.unparse(target) for target in each)]
        if len(said) != 1 and not (len(tree.body) == 1 and ast.get_docstring(tree)):
            silent.append(path)

    assert silent == []


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


def test_everything_but_the_executor_works_without_torch():
    """Simulator, planner, reports and command line load where torch cannot be imported."""
    modules = [name for name in MODULES if not name.startswith("executor") and name != "orrery.__main__"]
    script = "import importlib, sys; sys.modules['torch'] = None; [importlib.import_module(m) for m in sys.argv[1:]]"

    ended = subprocess.run([sys.executable, "-c", script, *modules], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
