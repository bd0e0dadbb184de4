"""Notebooks run without a kernel: plain Python without magics, cell by cell in one namespace.

Run as ``python tests/orrery/notebooks.py`` to store the outputs in ``docs/tutorial.ipynb``; the pictures of its figures
are drawn by a headless Chromium.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"
PICTURE = {"width": 1100, "height": 480}


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs_of(notebook: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Run the code cells in the present folder, in order and in one namespace, and yield the outputs of each."""
    names = {"__name__": "tutorial"}
    for number, cell in enumerate(code_cells(notebook), 1):
        body = ast.parse("".join(cell["source"]))
        last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            exec(compile(body, "tutorial", "exec"), names)
            if last:
                value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), names)
        outputs = []
        if printed.getvalue():
            outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
        if value is not None:
            outputs.append(
                {"data": shown(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
            )
        yield outputs


def lines(text: str) -> list[str]:
    """Return a text as notebooks store it."""
    return text.splitlines(keepends=True)


def shown(value: object) -> dict[str, Any]:
    """Return what a notebook shows of a value, by the type of the content."""
    if hasattr(value, "to_plotly_json"):
        return {"application/vnd.plotly.v1+json": json.loads(value.to_json())}
    html = getattr(value, "_repr_html_", None)
    return {**({"text/html": lines(html())} if html else {}), "text/plain": lines(repr(value))}


@contextlib.contextmanager
def drawing() -> Iterator[Callable[[dict[str, Any]], str]]:
    """Open a browser, and give a function that draws a figure as a PNG in base64."""
    import plotly.graph_objects as go
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
    from browsing import CHROMIUM, FLAGS

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page, path = browser.new_page(viewport=PICTURE), Path(folder) / "figure.html"

        def png(figure: dict[str, Any]) -> str:
            go.Figure(figure).write_html(path, include_plotlyjs=True)
            page.goto(path.as_uri())
            page.wait_for_selector(".main-svg")
            return base64.b64encode(page.screenshot()).decode()

        yield png
        browser.close()


def main() -> None:
    """Store the outputs of the tutorial in its file."""
    notebook = json.loads(TUTORIAL.read_text())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outputs = list(outputs_of(notebook))
    with drawing() as png:
        for number, (cell, made) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
            for output in made:
                figure = output.get("data", {}).get("application/vnd.plotly.v1+json")
                if figure:
                    output["data"]["image/png"] = png(figure)
            cell |= {"execution_count": number, "outputs": made}
    partial = TUTORIAL.with_suffix(".part")
    partial.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    os.replace(partial, TUTORIAL)


if __name__ == "__main__":
    main()
