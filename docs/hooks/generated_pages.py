"""Pages of the documentation that are made from other files: the reference, the tutorial and the changes.

MkDocs calls the functions whose names begin with ``on_``.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("planner", "studies", "simulator", "hwprofiles", "executor", "reports")
"""Folders whose rooms have reference pages, in the order of the navigation."""
NAMED_BLOCK = re.compile(r"^```(\w+) ([\w.-]+)$", re.MULTILINE)


def docstring_of(path: Path) -> str:
    """Return the docstring of a Python file."""
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def listed(room: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for every name that the stub of a room lists."""
    package = ".".join(room.relative_to(ROOT).parts)
    for node in ast.parse((room / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{package}.{node.module}", alias.name) for alias in node.names)


def entry(module: str, name: str) -> str:
    """Return the block that stands for one name; constants that are assigned together are named alone."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    together = [
        target
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
        for target in node.targets[0].elts
    ]
    if any(isinstance(target, ast.Name) and target.id == name for target in together):
        return f"## `{name}`\n\nA constant of `{module}`."
    return f"::: {module}.{name}"


def rooms(floor: str) -> list[Path]:
    """Return the folders of a floor that list names for others, the floor itself included."""
    return sorted(stub.parent for stub in (ROOT / floor).rglob("__init__.pyi"))


def room_page(room: Path) -> str:
    """Return the reference page of one room in Markdown."""
    package = ".".join(room.relative_to(ROOT).parts)
    entries = [entry(module, name) for module, name in listed(room)]
    head = f"# {package}\n\n{docstring_of(room / '__init__.py')}\n\nNames are imported from the room: "
    example = f"`from {package} import {next(iter(listed(room)))[1]}`.\n"
    return "\n\n".join([head + example, *entries]) + "\n"


def public_names() -> list[tuple[str, str]]:
    """Return (module, name) for the names that ``import orrery`` offers, by name."""
    stub = ROOT / "orrery" / "__init__.pyi"
    source = stub if stub.exists() else stub.with_suffix(".py")
    found = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FLOORS:
            homes = {name: module for module, name in listed(ROOT.joinpath(*node.module.split(".")))}
            found += [(homes[alias.name], alias.name) for alias in node.names]
    return sorted(found, key=lambda pair: pair[1].lower())


def summary(module: str, name: str) -> str:
    """Return the first line of the docstring of a class or function."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def public_page() -> str:
    """Return the page of the names that ``import orrery`` offers, each with a link to its full description."""
    rows = [f"| [`orrery.{name}`][{module}.{name}] | {summary(module, name)} |" for module, name in public_names()]
    table = "\n".join(["| name | meaning |", "|---|---|", *rows])
    return f"# orrery\n\n{docstring_of(ROOT / 'orrery' / '__init__.py')}\n\n{table}\n"


def tutorial_page() -> str:
    """Return the tutorial notebook as Markdown: its texts, its code, and what running it printed and drew."""
    blocks = ["*The same as a notebook: [tutorial.ipynb](tutorial.ipynb).*"]
    for cell in json.loads((ROOT / "docs" / "tutorial.ipynb").read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
        else:
            blocks += [f"```python\n{source}\n```", *map(output_block, cell["outputs"])]
    title, *rest = (block for block in blocks if not block.startswith("*The same"))
    return "\n\n".join([title, blocks[0], *rest]) + "\n"


def output_block(output: dict[str, Any]) -> str:
    """Return one output of a notebook cell as Markdown or HTML."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output["data"]
    if "image/png" in data:
        source = f"data:image/png;base64,{data['image/png'].strip()}"
        return f'<p class="figure"><img alt="The figure that the code draws" src="{source}"></p>'
    if "text/html" in data:
        table = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        return re.sub(r"\s*\n\s*", "", table)
    return f"```text\n{''.join(data['text/plain'])}\n```"


def changes_page() -> str:
    """Return the changes, whose links begin at the root of the project."""
    return (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")


def generated() -> dict[str, str]:
    """Return every generated page by its address in the folder of documents."""
    pages = {"reference/orrery.md": public_page(), "tutorial.md": tutorial_page(), "changes.md": changes_page()}
    for floor in FLOORS:
        for room in rooms(floor):
            pages[f"reference/{'.'.join(room.relative_to(ROOT).parts)}.md"] = room_page(room)
    return pages


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    reference: list[Any] = [{"orrery": "reference/orrery.md"}]
    for floor in FLOORS:
        names = [".".join(room.relative_to(ROOT).parts) for room in rooms(floor)]
        reference.append({floor: [{name: f"reference/{name}.md"} for name in names]})
    assert config.nav is not None
    config.nav.insert(3, {"Tutorial": "tutorial.md"})
    config.nav += [{"Reference": reference}, {"Changes": "changes.md"}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of the site."""
    for address, content in generated().items():
        files.append(File.generated(config, address, content=content))
    return files


def rooms_table() -> str:
    """Return a table of all floors and rooms with the first sentences of their docstrings."""
    rows = ["| room | contents |", "|---|---|"]
    for floor in ("hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery"):
        for file in sorted((ROOT / floor).rglob("__init__.py")):
            package = ".".join(file.parent.relative_to(ROOT).parts)
            page = f"reference/{package}.md"
            listed_here = file.with_suffix(".pyi").exists() and floor in FLOORS
            name = f"[`{package}`]({page})" if listed_here else f"`{package}`"
            rows.append(f"| {f'**{name}**' if package == floor else name} | {docstring_of(file).splitlines()[0]} |")
    return "\n".join(rows)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Insert the table of rooms, and show the names of files whose contents a page gives above them."""
    if "<!-- rooms -->" in markdown:
        markdown = markdown.replace("<!-- rooms -->", rooms_table())
    return NAMED_BLOCK.sub(r'```\1 title="\2"', markdown)
