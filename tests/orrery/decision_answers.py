"""The commands of docs/decisions.md with the answers that the page prints; run as a program it makes them anew."""

import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "decisions.md"
_BLOCK = re.compile(r"```text\n\$ (orrery .*?)\n(.*?)```\n", re.DOTALL)
_SHOWN = (
    "why",
    "time left",
    "change",
    "fails",
    "next offer",
    "failures",
    "To be faster",
    "data: ",
    "owt: ",
    "  no way",
)


def questions(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of the page with the lines below them."""
    return [(block[1], block[2].splitlines()) for block in _BLOCK.finditer(text)]


def answer_lines(printed: str) -> list[str]:
    """Return the lines of an answer that the page shows: the headline, and reasons."""
    lines = [line for line in printed.splitlines() if line.strip()]
    first = next(i for i, line in enumerate(lines) if not re.match(r"[\s┏┃┡│└├]", line))
    reasons = [line for line in lines[first + 1 :] if line.startswith(_SHOWN) or ", data: " in line]
    return [lines[first], *reasons]


def write_scenarios(folder: Path) -> None:
    """Write the file of scenarios that the page shows."""
    text = re.search(r"```yaml scenarios.yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "scenarios.yaml").write_text(text[1])


def _answered(command: str, folder: Path) -> str:
    """Run a command and return its block."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = command.replace("orrery", f"{sys.executable} -m orrery", 1).split()
    environment = os.environ | {"ORRERY_PROGRESS": "off", "PYTHONPATH": str(PAGE.parents[1])}
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:6.1f} s of processor time: {command}", flush=True)
    lines = "\n".join(answer_lines(ended.stdout))
    return f"```text\n$ {command}\n{lines}\n```\n"


def main() -> None:
    """Make all answers of the page anew."""
    with tempfile.TemporaryDirectory() as folder:
        write_scenarios(Path(folder))
        text = _BLOCK.sub(lambda block: _answered(block[1], Path(folder)), PAGE.read_text())
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
