"""Pages of a plan, of a sweep and of a folder say what is so."""

import json
import math
import re
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from page_kinds import small_view, sweep_frame
from test_timeline_page import data_of, unpacked

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from planner.layouts.regions import held_regions, needed_regions
from planner.models.registry import load_model
from reports.drawings.cluster_view import cluster_view
from reports.drawings.draw_cluster import cluster_drawing
from reports.drawings.draw_network import HEIGHT, ROW, layer_places, layer_strips, moving_edges, strategy_drawing
from reports.pages.index_page import found_results, index_html
from reports.pages.plan_page import plan_html, write_plan_pages
from reports.pages.sweep_page import sweep_headline, sweep_html


@pytest.mark.parametrize("model", ["lenet5", "resnet18", "inception-v3", "densenet121"])
def test_layers_lie_below_what_they_read_and_beside_no_other_in_one_place(model):
    graph = load_model(model, batch=1)
    places = layer_places(graph)
    drawn = nx.DiGraph((edge.producer, edge.consumer) for edge in graph.edges)
    depth = {node: row for row, nodes in enumerate(nx.topological_generations(drawn)) for node in nodes}

    assert [row for row, _ in places] == [depth.get(i, 0) for i in range(len(places))]  # longest paths
    assert len(set(places)) == len(places)
    assert ROW > HEIGHT


@pytest.mark.parametrize("name", cluster_names())
def test_every_cluster_can_be_drawn_with_nothing_on_top_of_another(name):
    cluster = load_cluster(name)
    drawing = cluster_drawing(cluster)
    places = [(round(x), round(y)) for x, y, *_ in drawing["vertices"]]
    assert len(set(places)) == len(places) == len(cluster.vertices)
    assert len(drawing["links"]) == len(cluster.links)
    assert all(0 <= x <= drawing["width"] and 0 <= y <= drawing["height"] for x, y in places)
    assert len(drawing["boxes"]) == len({device.node for device in cluster.devices})


@pytest.mark.parametrize("name", cluster_names())
def test_what_a_drawing_stands_for_is_every_machine_and_its_links_once(name):
    cluster = load_cluster(name)
    view = cluster_view(cluster)
    assert [cluster.links[i].name for i in view["link_numbers"]] == [name for _, name, _ in view["links"]]
    for number, stands_for in zip(view["link_numbers"], view["link_sets"], strict=True):
        assert number in stands_for
        assert len({(cluster.links[i].link_class, cluster.links[i].bandwidth_bytes_per_s) for i in stands_for}) == 1
    drawn = [link for links in view["link_sets"] for link in links]
    inside = {i for i, link in enumerate(cluster.links) if link.source < len(cluster.devices)}
    assert inside <= set(drawn)
    assert len(drawn) == len(set(drawn))
    assert sorted(device for devices in view["device_sets"] for device in devices) == list(range(len(cluster.devices)))


def test_one_machine_stands_for_many_equal_ones_and_a_straggler_for_itself():
    view = cluster_view(load_cluster("fdr-32x3"))
    assert [box[4] for box in view["boxes"]] == ["node0 and 31 alike"]
    assert len(view["machines"]) == 32
    slow = load_cluster("fdr-32x3:nodes=32,device.node3/gpu1.speed=0.5")
    assert [box[4] for box in cluster_view(slow)["boxes"]] == ["node0 and 30 alike", "node3"]


def test_memory_on_the_page_is_the_curves_own(tmp_path):
    view = small_view()
    packed = data_of(plan_html(view))["memory"]
    known = {name: unpacked(each) for name, each in packed.items() if name not in ("span_s", "fullest")}
    start = np.concatenate([[0], np.cumsum(known["count"].astype(int))])
    begin, end = view.replay.window_s
    for device in range(len(known["names"])):
        times, held = view.memory.of(device)
        inside = held[(times > begin) & (times <= end)]
        shown = known["held_kib"][start[device] : start[device + 1]].astype(float) * 1024
        assert shown[1:] == pytest.approx(inside, abs=1024)
        assert shown.max() <= view.memory.peak_bytes[device] + 1024
    assert end - begin == pytest.approx(packed["span_s"])


def test_pages_of_a_plan_link_to_each_other(tmp_path):
    plan, timeline = write_plan_pages(small_view(), tmp_path)
    assert '<a href="timeline.html">timeline</a>' in plan.read_text()
    assert '<a href="index.html">plan</a>' in timeline.read_text()
    rows = re.findall(r'<tr id="layer-\d+">', plan.read_text())
    assert len(rows) == len(small_view().program.graph.layers)


def test_the_use_of_links_on_the_page_is_the_replays():
    view = small_view()
    packed = data_of(plan_html(view))["cluster"]
    share = unpacked(packed["share"]).reshape(-1, packed["bins"]) / 200
    use = view.replay.link_use(packed["bins"])
    assert share == pytest.approx(use.share.clip(0, 1), abs=0.0026)
    assert unpacked(packed["links"]) == list(use.links)


def test_a_sweeps_page_has_every_point_and_names_the_best():
    frame = sweep_frame()
    data = data_of(sweep_html(frame, name="r.sqlite"))
    columns = {column["name"]: unpacked(column["values"]) for column in data["columns"]}
    assert data["count"] == len(frame) == len(columns["expected_s"])
    assert columns["expected_s"][-1] is None
    assert "cluster" not in columns  # the same in all rows: said once, above
    per_image = columns["time_per_sample_s"]
    assert per_image[0] == pytest.approx(frame["expected_s"][0] / frame["batch"][0])
    assert "data has the most samples per second, for lenet5 on 4 devices" in sweep_headline(frame)
    assert "1 of them without a plan" in sweep_headline(frame)


def test_a_sweep_without_points_has_no_page():
    with pytest.raises(ConfigError, match="needs points"):
        sweep_html(sweep_frame().iloc[:0], name="r.sqlite")


def test_an_index_lists_pages_and_results_and_not_itself(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "s.html").write_text(sweep_html(sweep_frame(), name="r.sqlite"))
    (tmp_path / "other.html").write_text("<!doctype html><title>not ours</title>")
    (tmp_path / "plan.json").write_text(
        json.dumps({"model": "a", "configurations": {}, "model_digest": "", "simulated_s": 0.2, "expected_s": 0.5})
    )
    (tmp_path / "broken.json").write_text("{")
    found = {each.file: each for each in found_results(tmp_path)}
    assert found.keys() == {"deep/s.html", "plan.json", "broken.json"}
    assert found["deep/s.html"].kind == "sweep"
    assert found["deep/s.html"].headline == sweep_headline(sweep_frame())
    assert found["plan.json"].kind == "plan"
    assert found["plan.json"].headline == "model a, expected 500 ms, simulated 200 ms"
    assert found["broken.json"].headline == "cannot be read"

    page = tmp_path / "deep" / "index.html"
    page.write_text(index_html(tmp_path, list(found.values()), page=page))
    assert 'href="../plan.json"' in page.read_text()
    assert "deep/index.html" not in {each.file for each in found_results(tmp_path)}


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: None], ids=["empty", "missing"])
def test_an_index_of_nothing_is_refused(tmp_path, make):
    make(tmp_path / "results")
    with pytest.raises(ConfigError, match="index needs"):
        found_results(tmp_path / "results")


@pytest.mark.parametrize("model", ["lenet5", "vgg16", "resnet18", "inception-v3"])
def test_strips_hold_every_row_once_and_are_cut_where_few_tensors_pass(model):
    """Against all ways to cut at as many rows, where these can be counted."""
    graph = load_model(model, batch=1)
    places = layer_places(graph)
    strips = layer_strips(graph, places)
    rows = max(row for row, _ in places) + 1
    assert [row for first, last in strips for row in range(first, last)] == list(range(rows))
    longest = max(last - first for first, last in strips)
    assert longest * ROW <= 696 + ROW  # a printed page

    def crossed(cuts):
        return sum(places[e.producer][0] < cut <= places[e.consumer][0] for cut in cuts for e in graph.edges)

    ours = [last for _, last in strips[:-1]]
    if math.comb(rows - 1, len(ours)) < 20_000:
        every = combinations(range(1, rows), len(ours))
        fitting = (cuts for cuts in every if max(np.diff([0, *cuts, rows])) <= longest)
        assert crossed(ours) == min(crossed(cuts) for cuts in fitting)


def test_the_drawing_has_every_layer_and_both_ends_of_every_tensor():
    view = small_view(model="resnet18")
    graph, drawing = view.program.graph, strategy_drawing(view.program, view.layers)
    boxes = [box["number"] for strip in drawing["strips"] for box in strip["boxes"]]
    assert sorted(boxes) == list(range(len(graph.layers)))
    home = {box["number"]: at for at, strip in enumerate(drawing["strips"]) for box in strip["boxes"]}
    cut = sum(home[edge.producer] != home[edge.consumer] for edge in graph.edges)
    assert cut > 0
    assert sum(len(strip["lines"]) for strip in drawing["strips"]) == len(graph.edges) + cut
    for strip in drawing["strips"]:
        assert all(box["x"] + drawing["box"][0] <= strip["width"] for box in strip["boxes"])
        assert all(box["y"] + drawing["box"][1] <= strip["height"] for box in strip["boxes"])
        paths = [re.fullmatch(r"M(\S+) (\S+)C.* (\S+) (\S+)", path) for path, _, _ in strip["lines"]]
        upright = [
            (x, y, to_y) for x, y, to_x, to_y in (map(float, path.groups()) for path in paths if path) if x == to_x
        ]
        for (x, y, to_y), (other, begin, end) in combinations(upright, 2):
            assert x != other or to_y <= begin or end <= y, "two dashed lines on each other look like a solid one"


def test_boxes_have_words_that_find_room():
    view = small_view(model="gpt2:layers=1,hidden=64,heads=4,words=64,sequence=8", strategy="data=2,tensor=2")
    boxes = [box for strip in strategy_drawing(view.program, view.layers)["strips"] for box in strip["boxes"]]
    assert "n=2 r=2" in {box["words"] for box in boxes}
    assert all(len(box["words"]) <= 20 for box in boxes)


@pytest.mark.parametrize("strategy", ["context=2", "data=2,tensor=2"])
def test_dashed_lines_are_tensors_that_move(strategy):
    """Those of which a device needs more than it holds, or sums with others; not where a dimension changes its name."""
    program = small_view(model="gpt2:layers=1,hidden=64,heads=4,words=64,sequence=8", strategy=strategy).program
    graph, moving, renamed = program.graph, set(), 0
    for edge in graph.edges:
        (producer, consumer), layer = (program.spaces[i] for i in edge[:2]), graph.layers[edge.consumer]
        maps = layer.operation.interval_maps(edge.slot, layer.input_shapes)
        held, needed = held_regions(producer), needed_regions(consumer, maps, producer.output)
        own = dict(zip(producer.devices.tolist(), zip(held.low, held.high, strict=True), strict=True))
        inside = [
            device in own and (own[device][0] <= low).all() and (high <= own[device][1]).all()
            for device, low, high in zip(consumer.devices.tolist(), needed.low, needed.high, strict=True)
        ]
        copies = consumer.repeats[0] == 1 and producer.repeats[0] > 1  # each gradient is of a share
        if not all(inside) or producer.sums[0] > 1 or copies:
            moving.add(edge)
        named = [space.configuration(0).describe() for space in (producer, consumer)]
        renamed += edge not in moving and named[0] != named[1]
    assert moving_edges(program) == moving
    assert moving
    assert renamed
