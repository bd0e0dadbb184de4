"""Blocks that repeat are found in hand-made tables and in the catalogue's networks, and pages fold them into a line."""

import csv
import io
import random
import re
from dataclasses import replace

import pytest
from browsing import chromium, needs_chromium, opened_in
from page_kinds import small_view

from planner.models.registry import load_model
from planner.plan.comparison import LayerResult
from reports.pages.plan_page import plan_html
from reports.tables.layer_rows import layer_table, repeated_blocks

FILL = [(f"stem.{word}", word) for word in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"]
"""Forty rows without a number: with them a table is long enough."""


def blocks(name, count, rows, first=0):
    """Rows of like blocks: names and what they show."""
    return [(f"{name}.{i}.{row}", row) for i in range(first, first + count) for row in rows]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (blocks("h", 12, ["ln", "mlp", "add"]), [(40, 3, 12)]),
        (blocks("h", 5, ["a", "a2", "b"]) + blocks("k", 2, "abcd"), [(40, 3, 5), (55, 4, 2)]),
        # the first of a stage ends as the others do: what repeats begins with a module, not with that end
        ([*blocks("s", 1, ["conv", "down", "add"]), *blocks("s", 4, ["conv", "add"], first=1)], [(43, 2, 4)]),
        # two alternating modules are one block
        ([(f"m.{i}.x{i % 2}", i % 2) for i in range(8)], [(40, 2, 4)]),
        # another kind in the third block ends the run; the last two are too few to be a line
        ([*blocks("h", 2, "abc"), ("h.2.a", "a"), ("h.2.b", "other"), *blocks("h", 2, "a", first=3)], [(40, 3, 2)]),
        # numbers that change in two places tell no block
        ([(f"s{i}.u{i}.a", "a") for i in range(9)], []),
        ([("same", "a")] * 9, []),
        ([], []),
    ],
)
def test_hand_made_blocks_are_found(rows, found):
    assert repeated_blocks([*FILL, *rows]) == tuple(found)


def test_a_table_that_is_read_at_once_has_nothing_folded():
    assert repeated_blocks(blocks("h", 13, "abc")) == ()
    assert repeated_blocks(blocks("h", 14, "abc")) == ((0, 3, 14),)


def test_first_block_and_lines_hold_every_row_of_random_tables():
    """Folded rows are those of the first block again, but for one number of their names; blocks do not overlap."""
    chance, folded = random.Random(5), 0
    for _ in range(60):
        rows = [(f"n{chance.randrange(3)}.{chance.randrange(4)}.x", chance.randrange(2)) for _ in range(60)]
        at = chance.randrange(60)
        rows[at:at] = blocks("h", chance.randrange(1, 6), [f"r{i}" for i in range(chance.randrange(1, 6))])
        end = 0
        for block in repeated_blocks(rows):
            assert block.first >= end
            end, of = block.folded.stop, slice(block.first, block.first + block.rows)
            assert end - block.folded.start >= 3
            folded += 1
            changed = set()
            for i in range(*block.folded.indices(len(rows))):
                ours, first = rows[i], rows[of][(i - block.first) % block.rows]
                assert ours[1] == first[1]
                pairs = zip(*(re.split(r"(\d+)", name) for name in (ours[0], first[0])), strict=True)
                changed |= {place for place, (one, other) in enumerate(pairs) if one != other}
            assert len(changed) == 1
    assert folded > 20


PUBLISHED = {
    "gpt2": [12],
    "bert-base": [12],
    "vit-b16": [12],
    "llama-1b": [16],
    "densenet121": [6, 12, 24, 16],  # Huang et al., 2017, Table 1
    "resnet152": [2, 7, 35, 2],  # He et al., 2016, Table 1: 3, 8, 36 and 3, the first of each with another shortcut
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_catalogues_networks_show_one_of_their_published_blocks(model):
    layers = [
        LayerResult(
            name=layer.name,
            kind=layer.operation.kind,
            output=" x ".join(map(str, layer.output.sizes)),
            degrees={},
            devices=(0,),
            compute_s=1.0,
            gradient_sync_s=0.0,
            transfer_s=0.0,
            moved_bytes=0.0,
        )
        for layer in load_model(model, batch=8).layers
    ]
    rows = layer_table(layers)["rows"]
    found = list(dict.fromkeys(row["run"] for row in rows if row["run"]))
    assert [block.blocks for block in found] == PUBLISHED[model]
    assert sum(row["run"] is None for row in rows) + len(found) <= 45
    middle = found[0].folded.start
    other = [*layers[:middle], replace(layers[middle], devices=(1,)), *layers[middle + 1 :]]
    assert layer_table(other)["rows"][middle]["run"] is None  # another configuration is never folded


@pytest.mark.browser
@needs_chromium
def test_folded_blocks_open_by_keyboard_and_are_found_sorted_linked_printed_and_saved(tmp_path):
    (tmp_path / "page.html").write_text(plan_html(small_view(model="resnet34")))
    with chromium() as browser:
        page = opened_in(browser, tmp_path / "page.html")
        rows, lines = page.locator("table.layers tbody tr:visible"), page.locator("table.layers tr.run")
        hidden = page.locator("table.layers tr[data-run]")
        assert (rows.count(), lines.count(), hidden.count()) == (56 - 27 + 4, 4, 27)
        assert "layer3.2.conv1 to layer3.5.add" in lines.nth(2).inner_text()
        assert "4 more like the 3 rows above: 12 rows" in lines.nth(2).inner_text()
        shown = [row.locator("td:nth-child(7)").inner_text() for row in rows.all()]
        whole = [cell.text_content() for cell in page.locator("table.layers tr:not(.run) td:nth-child(7)").all()]
        numbers = [sum(float(text.replace(",", "")) for text in texts) for texts in (shown, whole)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.01)  # lines have the sums of what they stand for
        # parts of the drawing whose layers are all folded are folded, too
        folded = page.locator("details.folded .node").evaluate_all("(all) => all.map((each) => each.hash.slice(1))")
        assert set(folded) <= set(hidden.evaluate_all("(all) => all.map((each) => each.id)"))
        page.emulate_media(media="print")
        assert (rows.count(), lines.nth(2).is_visible()) == (33, True)
        page.emulate_media(media="screen")
        lines.nth(2).locator("button").focus()
        page.keyboard.press("Enter")
        assert rows.count() == 33 + 12
        page.keyboard.press("Enter")
        page.locator("#layers-card input[type=search]").fill("layer3.4.conv2")
        assert rows.count() == 1
        page.locator("#layers-card input[type=search]").fill("")
        page.locator("table.layers thead button").nth(6).click()
        assert (rows.count(), lines.count()) == (56, 0)
        with page.expect_download() as download:
            page.get_by_text("save as CSV").first.click()
        saved = list(csv.reader(io.StringIO(download.value.path().read_text())))
        assert [row[0] for row in saved[1:]] == [layer.name for layer in small_view(model="resnet34").layers]
        assert {len(row) for row in saved} == {11}
        page.goto(page.address + "#layer-30")
        page.wait_for_selector("#layer-30", state="visible")
        assert page.problems == []
        page.close()
