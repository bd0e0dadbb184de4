"""Summaries of errors, against numbers by hand."""

import math

import numpy as np
import pytest
from fidelity_rows import make_row

from hwprofiles.measured.measured_tables import measured_table
from reports.pages.fidelity_page import fidelity_html
from reports.tables.fidelity_text import fidelity_cells, fidelity_headers
from studies.fidelity.error_summary import ErrorSummary, held_out_errors
from studies.fidelity.fidelity_table import kendall, summarised


def test_errors_of_a_comparison_are_those_by_hand():
    """Five predictions of 1 s: 10 % and 50 % too short, 5, 30 and 100 % too long; one row has none."""
    rows = [make_row(1.0, predicted_s) for predicted_s in (0.9, 0.5, 1.05, 1.3, 2.0)]
    table = summarised([*rows, make_row(1.0, math.nan, reason="no profile of it")])
    (found,) = table.comparisons

    assert (found.rows, found.without, found.without_reason, found.fitted) == (5, 1, "no profile of it", "no")
    assert found.median == pytest.approx(0.3)
    assert found.p90 == pytest.approx(0.5 + 0.6 * 0.5)  # between the fourth and the fifth of five
    assert found.worst == pytest.approx(1.0)
    assert found.bias == pytest.approx(math.log(0.9 * 0.5 * 1.05 * 1.3 * 2.0) / 5)
    assert found.close == pytest.approx(2 / 6)
    assert [row.error for row in found.worst_rows] == pytest.approx([-0.5, 1.0, 0.3])


def test_plans_are_ranked_by_flop_per_s():
    """Of plans of 6 to 2 FLOP/s two neighbours are predicted the other way round: 9 pairs of 10 agree."""
    speeds = zip((6, 5, 4, 3, 2), (6, 4, 5, 3, 2), strict=True)
    rows = [make_row(1 / measured, 1 / predicted, peak_s=1.0) for measured, predicted in speeds]
    (note,) = summarised([*rows, make_row(1.0, 0.1, peak_s=1.0, fitted=True)]).notes
    assert note.startswith("table, device: ranks of 5 plans")
    assert "correlate by 0.80" in note


def test_kendall_counts_ties_as_its_inventor_does():
    # Kendall, Biometrika 33, 1945: pairs that are equal in a row count in neither order; here 4 of 5 in each row
    assert kendall(np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0, 3.0])) == pytest.approx(4 / 5)
    values = np.random.default_rng(0).normal(size=9)
    assert kendall(values, values**3) == 1.0
    assert kendall(values, -values) == -1.0


def test_rows_that_were_fitted_to_are_counted_apart():
    table = summarised([make_row(1.0, 1.5), make_row(1.0, 1.1, fitted=True)])

    assert [(each.name, each.rows, each.fitted) for each in table.measures] == [
        ("training on one GPU", 1, "no"),
        ("training on one GPU, fitted to", 1, "yes"),
    ]
    assert table.comparisons[0].fitted == "part"
    assert table.errors["computation"].rows == 1


def test_worst_rows_have_their_reasons():
    table = summarised([make_row(1.0, 0.3, label="resnet50, batch 2, fp32"), make_row(1.0, 0.2)])

    reasons = {row.label: row.reason for row in table.measures[0].worst_rows}
    assert reasons["table, device: resnet50, batch 2, fp32"].startswith("bound by the host's launches")
    assert reasons["table, device: resnet50, batch 32"] == ""


def test_the_table_names_precision_and_software_beside_rows():
    rows = [make_row(1.0, 1.0, arithmetic="float32", software="MXNet") for _ in range(2)]
    rows.append(make_row(1.0, 1.0, arithmetic="float16", software="MXNet"))
    (measure,) = summarised(rows).measures
    assert (measure.arithmetic, measure.software) == ("float32 (2), float16 (1)", "MXNet")
    cells = dict(zip(fidelity_headers(), fidelity_cells(measure), strict=True))
    assert cells["measured in"] == "float32 (2), float16 (1); MXNet"
    assert ">float32 (2), float16 (1); MXNet</td>" in fidelity_html(summarised(rows))


def test_held_out_rows_of_kernels_count_where_their_kind_does():
    """The bars of products are not those of experts, whatever the order."""
    cases = {
        "float16 product": (30, 0.04),
        "bfloat16 moe forward": (10, 0.4),
        "convolution weight gradient": (10, 0.08),
    }
    held_out = [
        ErrorSummary(name=f"{case}, p100, held out", kind="kernels", fitted="held out", rows=rows, median=median)
        for case, (rows, median) in cases.items()
    ]
    table = summarised([], held_out)

    assert {each.name: (each.rows, each.median_bar) for each in table.measures} == {
        "convolutions, products and attention, held out": (40, 0.08),
        "norms, elementwise chains and experts, held out": (10, None),
    }
    assert table.measures[0].median == pytest.approx((30 * 0.04 + 10 * 0.08) / 40)
    assert sorted(each.name for each in table.comparisons) == sorted(each.name for each in held_out)


def test_notes_compare_losses_of_several_gpus_with_none():
    """Losses of 10, 20 and 40 % that are predicted exactly; iterations in seconds lose nothing."""
    several = "several GPUs relative to one"
    losses = [make_row(1 + loss, 1 + loss, measure=several, profile="p100") for loss in (0.1, 0.2, 0.4)]
    seconds = [make_row(s, s, measure="layers of GPT", profile="a100-80gb") for s in (1.0, 2.0, 3.0)]
    (note,) = summarised([*losses, *seconds]).notes
    assert note.startswith(f"{several}: ")
    assert "by 1.00;" in note
    assert note.endswith("predicting no loss at all errs by 16.7 % in the median")


@pytest.mark.parametrize(
    ("kind", "tables"),
    [
        ("product", ("deepbench_gemm", "gemm_recent")),
        ("attention", ("attention_recent",)),
        ("moe", ("experts_recent",)),
    ],
)
def test_every_measured_kernel_is_held_out_once(kind, tables):
    """Cards of one name with two memories, or two libraries, have a profile each and were measured once.

    Of our own products those of three kinds of arithmetic were fitted to; of attention forward H200's rows were not.
    """
    own = measured_table("h200_products").query("precision in ('float64', 'float32', 'float8')")
    lent = measured_table("attention_recent").query("gpu == 'H200' and `pass` == 'fwd'")
    counted = sum(each.rows for each in held_out_errors("kernels") if kind in each.name.partition(",")[0].split())
    more = {"product": len(own), "attention": -len(lent), "moe": 0}[kind]
    assert counted == sum(len(measured_table(name)) for name in tables) + more
