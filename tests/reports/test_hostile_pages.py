"""Names and notes from files reach every page as text, whatever they hold."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hwprofiles.catalogue.cluster_catalogue import cluster_path
from orrery.cli import app
from orrery.terminal.exit_codes import run_app

MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"`${7*7}{{7*7}}"


class Elements(HTMLParser):
    """Attributes that run code, and scripts that hold the mark outside a string."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [(tag, name) for name, value in attrs if name == "onerror" or (tag, value) == ("img", "x")]

    def handle_data(self, data):
        if data.strip() == "alert(1)":
            self.found.append(("script", data))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every kind of page that shows names from files, by its path."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        text = cluster_path("titanx-4").read_text().replace("name: titanx-4", f"name: {json.dumps(MARKUP)}", 1)
        Path("evil.yaml").write_text(text.replace("PCIe switch to host", json.dumps(MARKUP)))
        Path("sweep.yaml").write_text(
            f"version: 1\nname: {json.dumps(MARKUP)}\nmodels: [lenet5]\nclusters: [evil.yaml]\nbatch: [8, 16]\n"
            "strategies: [data]\n"
        )
        lenet = "lenet5 --cluster evil.yaml --batch 8"
        for words in (
            f"plan {lenet} --strategy data --out plain.json",
            f"compare {lenet} --strategies data --out compared",
            "sweep sweep.yaml --store rows.sqlite --processes 1",
            "results rows.sqlite --out rows.html",
        ):
            assert run_app(app, words.split()) == 0
        plan = json.loads(Path("plain.json").read_text())
        Path("plan.json").write_text(json.dumps(plan | {"notes": [MARKUP], "strategy": f"{MARKUP}.yaml"}))
        for words in ("timeline plan.json --out time.html", "show plan.json --out shown", "index . --out list.html"):
            assert run_app(app, words.split()) == 0
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}


def test_no_markup_reaches_a_page(pages):
    assert pages.keys() == {
        "compared/index.html",
        "rows.html",
        "time.html",
        "shown/index.html",
        "shown/timeline.html",
        "list.html",
    }
    assert [found for text in pages.values() for found in Elements(text).found] == []
    assert not any("<script>alert(1)" in text or "<img src=x" in text for text in pages.values())


def test_the_names_are_shown(pages):
    """The test above would pass on pages that leave them out."""
    for name in ("compared/index.html", "shown/index.html", "time.html"):
        assert "alert(1)" in pages[name], name
