"""Libraries fitted to times that known parameters made: they come back, or are named as not determined."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_of_content, cluster_path, load_cluster
from hwprofiles.catalogue.cluster_reader import read_tree
from hwprofiles.readers.facts import Collectives
from planner.cost.library_rounds import library_collective_s
from planner.topology.network_routes import ClusterRoutes
from studies.calibrate.library_fit import _Fit, _group, fitted_library

SIZES = tuple(float(4**power) for power in range(2, 15))
MACHINES = Path(__file__).parents[2] / "hwprofiles" / "data" / "machines"


def content(name):
    return copy.deepcopy(dict(read_tree(cluster_path(name))))


def timed(changed, collective, devices, hosts, sizes=SIZES, noise=0.0):
    """Times of a collective on a cluster with other parameters."""
    seconds = library_collective_s(
        ClusterRoutes(cluster_of_content(changed, "c")), collective, devices, np.array(sizes)
    )
    seconds = seconds * np.exp(noise * np.random.default_rng(0).standard_normal(len(sizes)))
    return Collectives(
        origin=f"{collective} over {len(devices)}",
        collective=collective,
        hosts=hosts,
        models=("",) * len(devices),
        size_bytes=tuple(sizes),
        time_s=tuple(seconds.tolist()),
    )


def test_calls_and_shares_come_back():
    """Twice the calls and two thirds of the links: the fitted library predicts sizes and devices that it never saw."""
    truth = content("dgx-a100")
    truth["library"]["near_share"] = 0.56
    for protocol in truth["library"]["protocols"]:
        protocol["call_us"] *= 2
    rows = [timed(truth, kind, tuple(range(8)), ("a",) * 8, noise=0.02) for kind in ("all-reduce", "all-gather")]
    result = fitted_library(content("dgx-a100"), rows)
    section = result.content["library"]

    assert section["near_share"] == pytest.approx(0.56, rel=0.05)
    assert section["protocols"][0]["call_us"] == pytest.approx(20.2, rel=0.15)
    assert result.held_out["above 1 MiB"].median < 0.07
    assert result.residuals["up to 1 MiB"].median < 0.1
    unseen = timed(truth, "all-reduce", tuple(range(4)), ("a",) * 4)
    found = timed(result.content, "all-reduce", tuple(range(4)), ("a",) * 4)
    assert np.median(np.abs(np.array(found.time_s) / unseen.time_s - 1)) < 0.1


def test_the_rate_between_machines_comes_back_and_what_is_not_seen_stays():
    """Two machines with one device each: links inside them carry nothing."""
    truth = content("dgx-a100")
    truth["parameters"]["nodes"]["default"] = 2
    truth["link_classes"]["hdr"]["bandwidth_gbyte_per_s"] = 11.0
    rows = [timed(truth, "all-reduce", (0, 8), ("a", "b"))]
    result = fitted_library(content("dgx-a100"), rows)

    assert result.content["link_classes"]["hdr"]["bandwidth_gbyte_per_s"] == pytest.approx(11.0, rel=0.1)
    assert result.content["link_classes"]["nvlink3"] == content("dgx-a100")["link_classes"]["nvlink3"]
    assert result.content["library"]["near_share"] == content("dgx-a100")["library"]["near_share"]
    assert result.content["parameters"]["nodes"]["default"] == 1
    assert "copy_gbyte_per_s" in result.at_prior
    kept = [text for text in result.content["assumed"] if text.startswith("library:")]
    assert len(kept) == 1
    assert "copy_gbyte_per_s" in kept[0]
    assert result.content["fit"]["held_out"] == "every third size"


def test_calls_of_sends_inside_a_machine_come_back():
    """All-to-alls whose calls take three times as long: short sends by the first protocol, long ones by the last."""
    truth = content("dgx-a100")
    truth["library"]["send_call_us"] *= 3
    for protocol in truth["library"]["protocols"]:
        protocol["call_us"] *= 3
    rows = [timed(truth, "all-to-all", tuple(range(count)), ("a",) * count, noise=0.02) for count in (2, 4, 8)]
    result = fitted_library(content("dgx-a100"), rows)
    section = result.content["library"]

    assert section["send_call_us"] == pytest.approx(36.6, rel=0.1)
    assert section["protocols"][0]["call_us"] == pytest.approx(30.3, rel=0.1)
    assert {"send_call_us", "ll.call_us"}.isdisjoint(result.at_prior)
    assert {"simple.call_us", "ll.tree_far_hop_us", "tree_share"} <= set(result.at_prior)
    assert section["protocols"][2] == content("dgx-a100")["library"]["protocols"][2]


def test_the_share_of_links_that_sends_reach_comes_back():
    """Long all-to-alls between two machines at 0.7 of the cards' rate: those between four are predicted."""
    truth = content("dgx-a100")
    truth["library"]["send_share"] = 0.7
    truth["parameters"]["nodes"]["default"] = 4
    hosts = tuple(f"node{place}" for place in range(4) for _ in range(8))
    rows = [timed(truth, kind, tuple(range(16)), hosts[:16], noise=0.02) for kind in ("all-to-all", "all-reduce")]
    result = fitted_library(content("dgx-a100"), rows)
    rate = result.content["link_classes"]["hdr"]["bandwidth_gbyte_per_s"]
    assert rate * result.content["library"]["send_share"] == pytest.approx(0.7 * 24.3, rel=0.05)
    result.content["parameters"]["nodes"]["default"] = 4
    unseen, found = (timed(each, "all-to-all", tuple(range(32)), hosts).time_s for each in (truth, result.content))
    assert np.max(np.abs(np.array(found) / unseen - 1)) < 0.1
    few = tuple(2.0**power for power in range(5, 14))
    short = [timed(truth, "all-to-all", tuple(range(16)), hosts[:16], sizes=few)]
    assert "send_share" not in fitted_library(content("dgx-a100"), short).content["library"]


def test_what_a_file_says_already_is_judged_as_it_says_it():
    """The file predicts these times itself, with the whole share of links that it does not name."""
    own, long = content("dgx-a100"), tuple(2.0**power for power in range(22, 31))
    own["parameters"]["nodes"]["default"] = 2
    hosts = tuple(f"node{place}" for place in range(2) for _ in range(8))
    rows = [timed(own, kind, tuple(range(16)), hosts, sizes=long) for kind in ("all-to-all", "all-gather")]
    held_out = fitted_library(content("dgx-a100"), rows).held_out["above 1 MiB"]
    assert held_out.p90 == pytest.approx(0, abs=1e-9)


def test_sums_alone_name_the_calls_of_sends_as_not_determined():
    rows = [timed(content("dgx-a100"), "all-reduce", tuple(range(8)), ("a",) * 8)]
    result = fitted_library(content("dgx-a100"), rows)
    assert "send_call_us" in result.at_prior
    assert result.content["library"]["send_call_us"] == 12.2


def test_steps_of_trees_between_machines_come_back():
    """Eight and 32 machines, where short sums go by trees: 16 machines, never seen, are predicted."""
    truth = content("dgx-a100")
    truth["parameters"]["nodes"]["default"] = 32
    for protocol, far_us in zip(truth["library"]["protocols"], (10, 17, 56), strict=True):
        protocol["tree_far_hop_us"] = far_us  # twice what the transport has
    rows = []
    for machines in (8, 32):
        hosts = tuple(f"node{place}" for place in range(machines))
        rows.append(timed(truth, "all-reduce", tuple(range(0, 8 * machines, 8)), hosts, noise=0.02))
    result = fitted_library(content("dgx-a100"), rows)

    assert result.content["library"]["protocols"][0]["tree_far_hop_us"] == pytest.approx(10.0, rel=0.1)
    assert "ll.tree_far_hop_us" not in result.at_prior
    assert "ll.tree_hop_us" in result.at_prior  # one device of each machine
    result.content["parameters"]["nodes"]["default"] = 32
    unseen, found = (
        timed(each, "all-reduce", tuple(range(0, 128, 8)), ("",) * 16).time_s for each in (truth, result.content)
    )
    assert np.max(np.abs(np.array(found) / unseen - 1)) < 0.15


def test_a_fitted_file_is_a_cluster_file(tmp_path):
    """The command writes it; errors on held-out rows, residuals and sources are in it."""
    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    lines = (MACHINES / "all_reduce_a100_8gpu.txt").read_text().splitlines(keepends=True)
    (tmp_path / "short.txt").write_text("".join(lines[:25]))
    out = tmp_path / "mine.yaml"
    words = ["calibrate", str(tmp_path / "short.txt"), "--cluster", "dgx-a100", "--out", str(out), "--json"]
    assert run_app(app, words) == 0
    assert load_cluster(str(out)).library is not None
    fit = read_tree(out)["fit"]
    assert {"method", "held_out", "errors", "residuals", "way", "at_prior", "at_bound", "sources"} == set(fit)
    assert json.dumps(fit)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["short.txt"], "one of --device and --cluster must be given"),
        (["short.txt", "--cluster", "dgx-a100", "--device", "t4"], "one of --device and --cluster must be given"),
        (["short.txt", "--cluster", "dgx-a100", "--gpu", "T4"], "--gpu must be left out"),
        (["short.txt", "--cluster", "titanx-4"], "contradiction: cluster titanx-4 shows 4 GPUs"),
        (["four.txt", "--cluster", "dgx-a100"], "at least 8 rows of collectives, got 4"),
        (["pairs.txt", "--cluster", "dgx-a100"], "fitted to the output of nccl-tests: got none"),
        (["short.txt", "--cluster", "k80-16"], "needs a section library"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_one_line(tmp_path, capsys, monkeypatch, words, message):
    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    lines = (MACHINES / "all_reduce_a100_8gpu.txt").read_text().splitlines(keepends=True)
    (tmp_path / "short.txt").write_text("".join(lines[:25]))
    (tmp_path / "four.txt").write_text("".join([*lines[:15], *lines[-6:]]))
    (tmp_path / "pairs.txt").write_text((MACHINES / "p2p_a100_nvswitch_8gpu.txt").read_text())
    monkeypatch.chdir(tmp_path)
    assert run_app(app, ["calibrate", *words, "--out", "mine.yaml"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert not (tmp_path / "mine.yaml").exists()


def errors_of(changed, rows):
    """Mean of the absolute errors, in logarithms, of a cluster file on measured collectives."""
    changed = copy.deepcopy(changed)
    changed["parameters"]["nodes"]["default"] = 8
    graph = cluster_of_content(changed, "c")
    fit = _Fit(changed, ClusterRoutes(graph), graph, [_group(graph, each) for each in rows])
    return np.abs(np.concatenate(fit.errors(fit.towards(fit.start, 0.0)))).mean()


def test_two_machines_with_other_messages_predict_eight():
    """Messages that cost four times as much, and half of the rate: known from one and two machines."""
    known = content("dgx-a100")
    known["link_classes"]["hdr"]["transport"] = "slingshot"
    truth = copy.deepcopy(known)
    truth["parameters"]["nodes"]["default"] = 8
    truth["link_classes"]["hdr"]["bandwidth_gbyte_per_s"] /= 2
    for protocol in truth["library"]["protocols"]:
        protocol["message_us"] = 120 if protocol["name"] == "ll" else 200
    hosts = [tuple(f"node{place // 8}" for place in range(count)) for count in (8, 16, 64)]
    inside, two, eight = (
        [timed(truth, kind, tuple(range(len(row))), row, SIZES[::2], 0.03) for kind in ("all-reduce", "all-gather")]
        for row in hosts
    )
    result = fitted_library(known, [*inside, *two])

    assert result.way == 1.0
    assert result.at_bound == ()
    assert errors_of(result.content, eight) < 0.5 * errors_of(known, eight)


def test_a_fit_that_is_worse_on_rows_held_out_is_not_taken():
    """Times without any order: whatever is fitted to some of the rows is wrong for the others."""
    rows = timed(content("dgx-a100"), "all-reduce", tuple(range(8)), ("a",) * 8, noise=1.5)
    result = fitted_library(content("dgx-a100"), [rows])
    before = copy.deepcopy(content("dgx-a100"))
    assert result.way < 1
    if result.way == 0:
        assert result.content["library"] == before["library"]
    assert result.content["fit"]["way"] == result.way


def test_parameters_stay_within_what_is_physical():
    """Calls that take eight times as long: the fit ends at its bound, and says so."""
    truth = content("dgx-a100")
    for protocol in truth["library"]["protocols"]:
        protocol["call_us"] *= 8
    result = fitted_library(content("dgx-a100"), [timed(truth, "all-reduce", tuple(range(8)), ("a",) * 8)])
    assert "ll.call_us" in result.at_bound
    assert result.content["library"]["protocols"][0]["call_us"] < 10.1 * np.exp(2.5 * 0.7) * 1.001


def test_rows_that_determine_nothing_are_refused():
    """A library without calls, whose rows are so long that links alone count, and links stay inside the machine."""
    known = content("dgx-a100")
    rows = timed(known, "all-reduce", (0, 1), ("a", "a"), sizes=tuple(float(2**power) for power in range(4, 13)))
    for protocol in known["library"]["protocols"]:
        protocol["call_us"] = 0.0
    with pytest.raises(ConfigError, match="must determine a parameter of the library, got none from all-reduce over 2"):
        fitted_library(
            {
                **known,
                "library": {**known["library"], "protocols": [{**known["library"]["protocols"][-1], "hop_us": 0.0}]},
            },
            [rows],
        )


def test_too_many_machines_or_devices_are_refused():
    rows = [timed(content("dgx-a100"), "all-reduce", tuple(range(8)), ("a",) * 8)]
    with pytest.raises(ConfigError, match="on 8 devices of a machine, the cluster has 4"):
        fitted_library(content("abci-v100"), rows)
    with pytest.raises(ConfigError, match="needs a section library"):
        fitted_library(content("k80-16"), rows)


def test_no_share_leaves_what_a_cluster_file_takes():
    """Two machines whose library never took trees drew the share of these below what a file may say."""
    known = content("dgx-a100")
    known["parameters"]["nodes"]["default"] = 2
    graph = cluster_of_content(known, "c")
    rows = timed(known, "all-reduce", (0, 8), ("a", "b"))
    fit = _Fit(known, ClusterRoutes(graph), graph, [_group(graph, rows)])
    section = fit.content_of(np.full(len(fit.names), -6.0))["library"]
    assert 0.01 < section["tree_share"] < 0.05
    assert np.isfinite(fit.errors(np.full(len(fit.names), -6.0))[0]).all()
