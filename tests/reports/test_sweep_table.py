"""Results of sweeps fit the terminal, and what does not is said."""

import pandas as pd
import pytest
from rich.console import Console

from reports.pages.sweep_page import _column
from reports.tables.sweep_columns import fitting_columns, is_answer, reason_lines, sweep_table

FRAME = pd.DataFrame(
    {
        "model": ["vgg16", "vgg16", "resnet50"],
        "batch": [7, 64, 64],
        "link.nvlink1.bandwidth_factor": [0.5, 1.0, 2.0],
        "gradient_sync": ["ring"] * 3,
        "devices": [float("nan"), 8.0, 16.0],
        "expected_s": [float("nan"), 0.0543, 0.1123],
        "samples_per_s": [float("nan"), 1178.6, 569.9],
        "exposed_communication_s": [float("nan"), 0.01, 0.02],
        "peak_memory_bytes": [float("nan"), 2.0**30, 2.0**31],
        "status": ["refused", "ok", "ok"],
        "error": ["batch must be a multiple of the 8 devices", "", ""],
        "seconds": [0.1, 0.2, 0.3],
    }
)
VARIED = {"model", "batch", "link.nvlink1.bandwidth_factor"}


def printed(frame, width):
    """Lines of the table on a terminal."""
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(sweep_table(frame))
    return capture.get().splitlines()


@pytest.mark.parametrize("width", range(64, 200, 8))
def test_what_is_chosen_fits_and_is_not_cut(width):
    """Every row takes one line; whoever is wider has all that the narrower has, in the frame's order."""
    names = fitting_columns(FRAME, width)
    lines = printed(FRAME[names], width)

    assert VARIED | {"expected_s", "gradient_sync"} <= set(names) <= set(fitting_columns(FRAME, width + 8))
    assert [name for name in FRAME.columns if name in names] == names
    assert sum(line.startswith("│") for line in lines) == len(FRAME)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_all_fit_where_there_is_room():
    assert fitting_columns(FRAME, 400) == [name for name in FRAME.columns if name != "error"]


def test_the_time_is_shown_however_narrow():
    """Then the table folds, and still cuts nothing."""
    assert set(fitting_columns(FRAME, 20)) == VARIED | {"expected_s", "gradient_sync"}


def test_nothing_stored_is_an_empty_table():
    assert fitting_columns(pd.DataFrame(), 80) == []
    assert reason_lines(pd.DataFrame()) == []
    assert sweep_table(pd.DataFrame()).row_count == 0


def test_reasons_are_counted_by_how_points_end():
    more = pd.concat([FRAME, FRAME.head(1).assign(error="does not fit"), FRAME.head(1).assign(status="failed")])
    assert reason_lines(FRAME) == ["1 refused: batch must be a multiple of the 8 devices"]
    assert reason_lines(more) == [
        "1 failed: batch must be a multiple of the 8 devices",
        "2 refused: batch must be a multiple of the 8 devices (other reasons: 1, in the column error)",
    ]


@pytest.mark.parametrize(
    ("values", "texts"),
    [([True, False, True], ["yes", "no", "yes"]), ([True, None, False], ["yes", "–", "no"])],
)
def test_answers_are_yes_and_no(values, texts):
    """In the table and on the page, whose column filters by these words; numbers and words are no answers."""
    frame = pd.concat([FRAME.head(1)] * 3, ignore_index=True).assign(interference=pd.Series(values, dtype=object))
    assert is_answer(frame["interference"])
    assert [each for each in FRAME.columns if is_answer(FRAME[each])] == []
    table = sweep_table(frame[["interference"]])
    assert [str(cell) for cell in table.columns[0].cells] == texts
    column = _column(frame, "interference")
    assert (column["numeric"], column["role"]) == (False, "axis")
    assert column["values"] == [None if text == "–" else text for text in texts]


def test_times_of_an_iteration_have_one_unit():
    """Beside 900 µs stands 1,200 µs, not 1.2 ms, in the terminal and on the page; other times have their own."""
    frame = pd.DataFrame({"iteration_s": [9e-4, 8e-4], "expected_s": [1.2e-3, 1.1e-3], "seconds_s": [1.0, 2.0]})

    assert printed(frame, 80)[1].split() == [
        "┃",
        "iteration",
        "[µs]",
        "┃",
        "expected",
        "[µs]",
        "┃",
        "seconds",
        "[s]",
        "┃",
    ]
    assert [_column(frame, name)["unit"] for name in frame.columns] == ["µs", "µs", "s"]
