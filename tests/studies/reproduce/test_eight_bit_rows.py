"""Every printed value has a row, each row says where the source contradicts itself, and other ways can join."""

import csv
import re
from pathlib import Path

import pytest

from studies.eight_bit.paper_tables import read_table
from studies.reproduce import eight_bit_claims as eight_bit
from studies.reproduce.papers import reproduce

PRINTED = Path(__file__).parents[4] / "shared" / "papers"


@pytest.fixture(scope="module")
def rows():
    """Rows of the closed form by what follows the paper's name."""
    found = [row for row in reproduce("eight-bit") if row.source.endswith(", closed form")]
    return {row.source.removeprefix("8-bit, ").removesuffix(", closed form"): row for row in found}


@pytest.mark.skipif(not PRINTED.exists(), reason="the decoded papers are not beside the checkout")
def test_printed_values_are_those_of_the_decoded_paper():
    for name in ("table3_communication", "table4_compute", "table5_infiniband", "table6_and_7"):
        text = (PRINTED / f"eight_bit_{name}.csv").read_text()
        assert read_table(name) == list(csv.DictReader(text.splitlines()))
    decoded = list(csv.DictReader((PRINTED / "eight_bit_claims.csv").read_text().splitlines()))
    told = {(line["value"], line["unit"]) for line in decoded}
    ours = [
        (line["value"], line["unit"]) for line in read_table("claims") if line["source"] in ("Table 1", "Sec. A.2.2")
    ]
    assert len(ours) == 3
    assert told >= set(ours)


def test_every_value_of_tables_1_6_and_7_has_a_row(rows):
    tables = [source.partition(":")[0] for source in rows]

    assert {name: tables.count(name) for name in ("Table 1", "Table 6", "Table 7", "Tables 1 and 7")} == {
        "Table 1": 2,
        "Table 6": 6 * 7,
        "Table 7": 12,
        "Tables 1 and 7": 12,
    }


def test_speedups_and_totals_agree_within_2_percent(rows):
    agreeing = [row for source, row in rows.items() if row.unit == "x" or source.endswith(("total", "overlap"))]

    assert len(agreeing) == 3 + 24 + 24
    for row in agreeing:
        assert row.ours == pytest.approx(row.printed, rel=0.02), row.source


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (
            "Sec. A.2.2: 96 GPUs, synchronisation of the gradient of the largest convolution",
            "with the text's time on .* 3.0",
        ),
        ("Table 6: sub-batch 2048, 32-bit, single pass", "needs a latency of 0.3 ms, as in the row above"),
        ("Table 6: sub-batch 12288, 8-bit, single pass", "needs a latency of 0.61 ms, ten times Table 5's"),
        ("Table 6: sub-batch 12288, 32-bit, full pass with overlap", "the printed value subtracts nothing"),
        ("Table 6: sub-batch 512, 32-bit, full pass with overlap", "whatever the number of sub-batches, here 24"),
        ("Tables 1 and 7: 96 GPUs, sub-batch 1024, 8-bit, nervana kernels", "a quarter, not an eighth, 37.4"),
        (
            "Tables 1 and 7: 96 GPUs, sub-batch 2048, 32-bit, nervana kernels",
            "2056; with single passes from Table 5 7.83",
        ),
        ("Table 3: fc1 activation, 32-bit, sync time", "that of the whole activation, not a fourth"),
        ("Table 1: 4 GPUs, sub-batch 128, 8-bit", "errors stayed in 32 bits 3.67"),
    ],
)
def test_rows_say_where_the_source_contradicts_itself(rows, source, note):
    assert re.search(note, rows[source].note)


def test_rows_far_from_the_printed_value_say_why(rows):
    for row in rows.values():
        assert abs(row.ours / row.printed - 1) < 0.03 or ";" in row.note, row.source


def test_another_way_is_another_row_where_it_speaks(monkeypatch):
    def halved(claim):
        return (float(claim.printed) / 2, "half") if claim.key[0] == "speedup" else None

    monkeypatch.setattr(eight_bit, "CLAIM_METHODS", {"closed form": eight_bit.closed_form, "halves": halved})
    told = []
    found = list(eight_bit.eight_bit_rows(lambda *step: told.append(step)))
    added = [row for row in found if row.source.endswith(", halves")]

    assert len(added) == 24
    assert {row.note for row in added} == {"-50%; half"}
    assert found[found.index(added[0]) - 1].source == added[0].source.replace("halves", "closed form")
    assert [done for _, done, _ in told] == list(range(len(eight_bit.claims())))
