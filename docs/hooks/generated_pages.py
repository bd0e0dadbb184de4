"""Pages of the documentation, or parts of them, that are made from other files: reference, tutorial, changes.

MkDocs calls the functions whose names begin with ``on_``.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")
"""Each imports those before it."""
NAMED_BLOCK = re.compile(r"^```(\w+) ([\w.-]+)$", re.MULTILINE)


def docstring_of(path: Path) -> str:
    """Return the docstring of a Python file."""
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def public_names() -> str:
    """Return the groups of the names that ``import orrery`` offers, with the block that stands for each name."""
    blocks = []
    for node in ast.parse((ROOT / "orrery" / "__init__.pyi").read_text()).body[1:]:
        if isinstance(node, ast.Expr):
            title, _, about = ast.literal_eval(node.value).partition(": ")
            blocks.append(f"## {title}\n\n{about[0].upper()}{about[1:]}")
        elif isinstance(node, ast.ImportFrom):
            blocks += [entry(f"{node.module}.{alias.name}", alias.name) for alias in node.names]
    return "\n\n".join(blocks)


def entry(path: str, name: str) -> str:
    """Return the block that stands for one public name."""
    return f"::: {path}\n    options:\n      heading: orrery.{name}\n      toc_label: {name}"


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


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    assert config.nav is not None
    config.nav.insert(3, {"Tutorial": "tutorial.md"})
    config.nav.append({"Changes": "changes.md"})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the files of the site."""
    for address, content in {"tutorial.md": tutorial_page(), "changes.md": changes_page()}.items():
        files.append(File.generated(config, address, content=content))
    return files


def packages_table() -> str:
    """Return a table of all packages and subpackages with the first sentences of their docstrings."""
    rows = ["| package | contents |", "|---|---|"]
    for top in PACKAGES:
        for file in sorted((ROOT / top).rglob("__init__.py")):
            package = ".".join(file.parent.relative_to(ROOT).parts)
            name = f"**`{package}`**" if package == top else f"`{package}`"
            rows.append(f"| {name} | {docstring_of(file).splitlines()[0]} |")
    return "\n".join(rows)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Insert the table of packages and the public names, and show the names of files above their contents."""
    for mark, content in (("<!-- packages -->", packages_table), ("<!-- public names -->", public_names)):
        if mark in markdown:
            markdown = markdown.replace(mark, content())
    return NAMED_BLOCK.sub(r'```\1 title="\2"', markdown)
