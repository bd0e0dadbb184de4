import json
import textwrap

import pytest

from groundwork.errors import ConfigError
from studies.sweep.point import SweepPoint
from studies.sweep.sweep_file import read_sweep

AXES = """
version: 1
name: small
models: [lenet5, "vgg16:classes=10"]
clusters: {cluster: fdr-32x3, with: {nodes: [2, 4], link.fdr.bandwidth_factor: [0.5, 1]}}
batch_per_device: [8, 16]
strategies: [data, owt]
compression: [none, {gradients: dynamic-tree}]
"""


@pytest.fixture
def read(tmp_path):
    def of(text, **options):
        path = tmp_path / "sweep.yaml"
        path.write_text(textwrap.dedent(text))
        return read_sweep(path, **options)

    return of


def test_axes_multiply_and_every_point_is_different(read):
    points = read(AXES).points
    assert len(points) == len(set(points)) == 2 * 4 * 2 * 2 * 2
    assert points[0] == SweepPoint(
        model="lenet5", cluster="fdr-32x3:nodes=2,link.fdr.bandwidth_factor=0.5", batch=48, strategy="data"
    )
    assert {point.batch for point in points} == {48, 96, 192}
    assert len({point.digest for point in points}) == len(points)


def test_constraints_leave_out_what_breaks_them(read):
    rules = ["devices * batch_per_device <= 96", "model != 'lenet5' or nodes == 2"]
    points = read(f"{AXES}constraints: {json.dumps(rules)}").points
    assert {(point.model, point.batch) for point in points} == {("lenet5", 48), ("lenet5", 96)} | {
        ("vgg16:classes=10", 48),
        ("vgg16:classes=10", 96),
    }


def test_listed_points_come_after_the_product_and_each_once(read):
    listed = """
    version: 1
    name: listed
    points:
      - {model: lenet5, cluster: p100-4x4, batch: 64, strategy: data}
      - {model: lenet5, cluster: p100-4x4, batch: 64, strategy: data}
      - {model: lenet5, cluster: p100-4x4, batch: 64, strategy: layerwise, gradient_sync: tree}
    """
    assert [point.strategy for point in read(listed).points] == ["data", "layerwise"]


def test_a_changed_file_changes_the_hash(tmp_path):
    from hwprofiles.catalogue.cluster_catalogue import CLUSTERS
    from studies.sweep import point as module

    path = tmp_path / "mine.yaml"
    digests = set()
    for nodes in (2, 3):
        path.write_text((CLUSTERS / "fdr-32x3.yaml").read_text().replace("default: 32", f"default: {nodes}"))
        module._file_digest.cache_clear()
        digests.add(SweepPoint(model="lenet5", cluster=str(path), batch=6, strategy="data").digest)
    assert len(digests) == 2


def test_a_changed_strategy_file_changes_the_hash_with_words_behind_it(tmp_path):
    from studies.sweep import point as module

    path = tmp_path / "mine.yaml"
    digests = set()
    for degree in (1, 2):
        path.write_text(f"configurations: {{default: {{degrees: {{sample: {degree}}}}}}}")
        module._file_digest.cache_clear()
        digests.add(SweepPoint(model="lenet5", cluster="titanx-4", batch=8, strategy=f"{path},recompute=none").digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("name: small", "name: small\nstrategy: [x]"), "strategy: unknown key; did you mean 'strategies'"),
        (("models: [lenet5,", "models: [lenet6,"), r"model must be one of .* did you mean 'lenet5'"),
        (("[data, owt]", "[dta]"), r"strategy must be one of .* did you mean 'data'"),
        (("nodes: [2, 4]", "nods: [2, 4]"), r"parameter must be one of .* did you mean 'nodes'"),
        (("nodes: [2, 4]", "nodes: []"), r"with.nodes: must have at least 1 item"),
        (("dynamic-tree", "dynamic-three"), r"dynamic-tree"),
        (("batch_per_device: [8, 16]", "batch_per_device: [8.5]"), r"device.0: must be a whole number, got 8.5"),
        (("batch_per_device: [8, 16]", ""), r"needs models, clusters, strategies, and batch.* got no batch"),
        (("batch_per_device: [8, 16]", "batch_per_device: 8\nbatch: 8"), r"needs one of batch and batch_per_device"),
        (("version: 1", "version: 2"), r"version: must be 1, got 2"),
        (("name: small", "name: small\nconstraints: ['gpus < 3']"), r"cannot be used .*'gpus'.*columns are model"),
        (("name: small", "name: small\nconstraints: ['nodes + 1']"), r"'nodes \+ 1' must compare columns"),
        (("name: small", "name: small\nconstraints: ['nodes > 9']"), r"no points: its constraints leave none of 64"),
        (("name: small", "name: small\ngradient_sync: rng"), r"gradient_sync must be one of"),
    ],
)
def test_bad_files_name_the_rule(read, change, rule):
    assert change[0] in AXES
    with pytest.raises(ConfigError, match=rule) as error:
        read(AXES.replace(*change))
    assert "\n" not in str(error.value)


def test_too_many_points_are_counted_and_asked_for_twice(read):
    with pytest.raises(ConfigError, match=r"has 64 points, more than 63; add --yes"):
        read(AXES, most_points=63)
    assert len(read(AXES, most_points=None).points) == 64
    sizes = ", ".join(map(str, range(1, 40_000)))
    with pytest.raises(ConfigError, match=r"combinations, more than 1,000,000"):
        read(AXES.replace("[8, 16]", f"[{sizes}]"))
