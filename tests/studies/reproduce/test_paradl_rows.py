"""ParaDL's printed values are those of the decoded paper, and ours say why they differ."""

import csv
from pathlib import Path

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from studies.reproduce import papers, paradl
from studies.reproduce.papers import reproduce
from studies.reproduce.rows import stored

SHARED = Path(__file__).parents[4] / "shared"


@pytest.fixture(scope="module")
def rows():
    return {found.source.partition(": ")[2]: found for found in reproduce("paradl")}


@pytest.mark.skipif(not SHARED.exists(), reason="the decoded papers are not beside the checkout")
def test_printed_values_are_those_of_the_decoded_paper_and_measured_ones_of_their_source():
    decoded = {
        (line["value"], line["unit"])
        for line in csv.DictReader((SHARED / "papers/paradl_claims.csv").read_text().splitlines())
    }
    printed = [line for line in stored("paradl_claims") if (line["value"], line["unit"]) not in decoded]
    assert printed == []

    text = (SHARED / "measured/tf_benchmarks_2017.csv").read_text()
    names = {"InceptionV3": "inception-v3", "AlexNet": "alexnet"}
    source = {
        (names.get(line["model"]), line["batch_per_gpu"], line["n_gpus"], line["images_per_sec"])
        for line in csv.DictReader(text.splitlines())
        if "K80" in line["gpu"]
    }
    kept = stored("paradl_measured")
    assert all((r["model"], r["batch_per_gpu"], r["gpus"], r["images_per_s"]) in source for r in kept)
    assert sum(line[2] != "1" for line in source) == sum(r["gpus"] != "1" for r in kept)


def test_every_claim_has_a_way_to_recompute_it_and_none_is_left_over():
    keys = [line["key"] for line in stored("paradl_claims")]

    assert len(set(keys)) == len(keys)
    assert {key.split()[0] for key in keys} == set(paradl.PARADL_CLAIMS)


def test_the_cluster_is_the_papers(rows):
    for claim in ("GPUs of a node", "nodes of a rack", "fat tree within a rack", "fat tree between racks"):
        assert rows[claim].printed == rows[claim].ours


def test_ranges_are_the_papers(rows):
    for claim in ("data and hybrids scaled over", "filter and channel scaled over"):
        assert rows[claim].printed == rows[claim].ours
    assert "conv1_1 has 64 filters" in rows["filter and channel scaled over"].note


def test_data_parallelism_is_projected_within_a_tenth_of_other_runs(rows):
    found = rows["projection accuracy of data parallelism"]

    assert found.ours > 90
    assert "with our profile's computation" in found.note


def test_every_difference_beyond_a_tenth_has_its_reason(rows):
    for found in rows.values():
        if isinstance(found.ours, float) and abs(found.ours / found.printed - 1) > 0.1:
            assert ";" in found.note


def test_the_paper_has_a_page(rows, tmp_path, monkeypatch):
    """The command writes the rows of the paper, which take seconds and are those of all tests here."""
    monkeypatch.setattr(papers, "reproduce", lambda paper, progress: list(rows.values()) if paper == "paradl" else [])
    assert run_app(app, ["reproduce", "paradl", "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "the farthest first" in page
    assert page[page.index('id="rows"') :].count("<tr") == 1 + len(rows)
