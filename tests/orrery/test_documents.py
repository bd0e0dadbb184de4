"""Every example of the README and of docs/ runs.

Blocks of one page run in order, in one folder: ``python`` blocks share their names, ``sh`` blocks find
``orrery`` on the path, and a ``yaml NAME`` block is the contents of the file NAME.  Blocks marked
``set-up`` are what continuous integration itself runs; others are not examples.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from planner.models.registry import known_models

ROOT = Path(__file__).resolve().parents[2]
INTERNAL = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports")
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```(?P<language>\w+) ?(?P<word>[\w.-]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def run_shell(text, folder, programs):
    """Run commands until the first that fails."""
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", "-euo", "pipefail", "-c", text]
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{text}\n{ended.stderr}"


def commands_of(page):
    """Lines of the commands of a page, without what is said about them."""
    blocks = [block["text"] for block in BLOCK.finditer(page.read_text()) if block["language"] == "sh"]
    return [line.partition("#")[0].strip() for text in blocks for line in text.splitlines()]


WRITTEN = {line.partition(" --out ")[0] for page in PAGES for line in commands_of(page) if " --out " in line}
WRITTEN = {line for line in WRITTEN if "." not in line}  # files of one name differ from page to page


def once(text):
    """Commands without those that print what another page's write to a file; they leave nothing behind."""
    return "".join(line for line in text.splitlines(keepends=True) if line.partition("#")[0].strip() not in WRITTEN)


def test_every_example_is_found():
    """Whatever opens a block with a language runs, is written or is shown; none is overlooked."""
    assert len(PAGES) > 10
    for page in PAGES:
        text = page.read_text()
        opened = re.findall(r"^```(\w+)", text, re.MULTILINE)
        assert [block["language"] for block in BLOCK.finditer(text)] == opened, page.name
        assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(opened), page.name


@pytest.mark.usefixtures("warm_ranks", "warm_workers")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch, warm_programs):
    """Examples neither fail nor depend on anything outside their page, nor leave their models registered."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    with patch.dict(known_models()):
        for block in BLOCK.finditer(page.read_text()):
            if block["language"] == "yaml" and block["word"]:
                (tmp_path / block["word"]).write_text(block["text"])
            elif block["language"] == "python":
                exec(compile(block["text"], page.name, "exec"), names)
            elif block["language"] == "sh" and block["word"] != "set-up":
                run_shell(once(block["text"]), tmp_path, warm_programs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Relative links and pictures name files of the project."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "docs" / "examples").glob("*.py"))], ids=lambda page: page.name
)
def test_examples_import_public_names_alone(page):
    """What examples show is what the reference promises."""
    modules = re.findall(r"^ *(?:from|import) ([\w.]+)", page.read_text(), re.MULTILINE)

    assert [module for module in modules if module.partition(".")[0] in INTERNAL] == []
