"""Tables of the terminal: three significant digits, one unit a column."""

import pytest

from orrery.terminal.views import print_pairs, print_table


def cells(printed):
    """Rows of a printed table, the heading first."""
    lines = [line for line in printed.splitlines() if line[0] in "┃│"]
    return [[cell.strip() for cell in line.strip("┃│").replace("┃", "│").split("│")] for line in lines]


def test_columns_have_one_unit_and_three_digits(capsys):
    """Every number is its value in the unit of the heading, to 0.5 %; counts stay whole, and what is missing a dash."""
    values_s, sizes_bytes = [0.7238, 0.0123456, None], [1_234_567, 89_000_000, 2_000_000]
    print_table(
        [
            {
                "name": f"row {i}",
                "iteration_s": value_s,
                "moved_bytes": size,
                "peak_memory_bytes": 3 << 30,
                "tasks": 12345,
            }
            for i, (value_s, size) in enumerate(zip(values_s, sizes_bytes, strict=True))
        ]
    )
    head, *rows = cells(capsys.readouterr().out)
    assert head == ["name", "iteration (ms)", "moved (MB)", "peak memory (GiB)", "tasks"]
    assert [row[1] for row in rows] == ["724", "12.3", "–"]
    assert [float(row[2]) for row in rows] == pytest.approx([size / 1e6 for size in sizes_bytes], rel=5e-3)
    assert {(row[3], row[4]) for row in rows} == {("3.00", "12,345")}


def test_pairs_share_a_unit_but_with_the_time_that_the_program_takes(capsys):
    """Two times of a plan can be compared at a glance; the time of the engine does not choose their unit."""
    print_pairs({"iteration_s": 379e-6, "additive_s": 49e-6, "engine_s": 3.21, "gap": 0.123456, "tasks": 126})
    assert cells(capsys.readouterr().out)[1:] == [
        ["iteration (µs)", "379"],
        ["additive (µs)", "49.0"],
        ["engine (s)", "3.21"],
        ["gap", "0.123"],
        ["tasks", "126"],
    ]


def test_wide_tables_cut_no_number_where_there_is_no_terminal(capsys):
    """Thirteen columns of numbers beside a long name: lines are longer then."""
    row = {"strategy": "pipeline=4,data=2,micro-batches=8,optimizer=adam"}
    print_table([row | {f"sequences_per_million_{i}": 123_456_789 for i in range(13)}])

    head, *rows = cells(capsys.readouterr().out)
    assert ["123,456,789"] * 13 in [row[1:] for row in rows]
    assert not any("…" in cell for each in (head, *rows) for cell in each)


def test_rates_are_no_times(capsys):
    print_pairs({"samples_per_s": 1160.0, "expected_s": 0.0551})

    printed = capsys.readouterr().out
    assert "samples per s " in printed
    assert "expected (ms)" in printed
