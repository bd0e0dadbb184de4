"""Networks on volumes: where one sample fills a device, positions or stages must be split, and plans say so."""

import pytest

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle


@pytest.fixture(scope="module")
def cluster():
    """Sixteen devices of 16 GiB."""
    return load_cluster("abci-v100")


def fits(name, batch, strategy, cluster):
    try:
        make_plan(load_model(name, batch=batch), cluster, strategy=strategy)
    except InfeasiblePlanError:
        return False
    return True


@pytest.mark.parametrize("size", [128, 256, 512])
def test_a_volume_fills_eight_times_as_much_as_one_of_half_the_edge(size):
    """The first layer's output alone, 16 channels: 128 MiB, 1 GiB and 8 GiB a sample."""
    graph = load_model(f"cosmoflow:size={size}", batch=1)

    assert graph.layers[0].output.elements * 4 == 2**27 * (size // 128) ** 3
    assert graph.parameter_count == load_model("cosmoflow:size=128", batch=1).parameter_count


@pytest.mark.parametrize(
    ("size", "batch", "fitting", "refused"),
    [
        (128, 128, ["data", "spatial", "pipeline", "data=2,spatial=8"], []),
        (256, 128, ["pipeline=2,spatial=8"], ["data", "spatial", "pipeline", "filter"]),
        (512, 4, ["spatial", "data=2,spatial=8"], ["data=4", "pipeline"]),
        (512, 16, ["pipeline=2,spatial=8"], ["data", "spatial", "filter"]),
    ],
)
def test_memory_forces_a_split_of_positions(cluster, size, batch, fitting, refused):
    found = {s: fits(f"cosmoflow:size={size}", batch, s, cluster) for s in (*fitting, *refused)}

    assert found == dict.fromkeys(fitting, True) | dict.fromkeys(refused, False)


def test_the_refusal_has_the_numbers(cluster):
    with pytest.raises(InfeasiblePlanError, match=r"rack0/node0/gpu0: needs [\d.]+ GiB, .* 16\.00 GiB") as caught:
        make_plan(load_model("cosmoflow:size=512", batch=16), cluster, strategy="data")
    # the first layer's output, 8 GiB, its gradient, and what the layers behind it hold
    assert float(str(caught.value).partition("needs ")[2].partition(" GiB")[0]) > 16


def test_the_oracle_shows_what_fits(cluster):
    """Four samples of 512 cubed: no split of samples fits, one of positions does, by both answers."""
    table = oracle(
        load_model("cosmoflow:size=512", batch=4),
        cluster,
        OracleRequest(
            dataset="cosmoflow",
            devices=(4, 8, 16),
            strategies=("data", "spatial", "data+spatial", "filter"),
            simulate=True,
        ),
        processes=1,
    )
    rows = {(row.strategy, row.devices): (row.fits, row.simulated.fits) for row in table.rows}

    assert rows["data", 4] == (False, False)
    assert rows["spatial", 8] == rows["data+spatial", 16] == (True, True)
    assert table.winners[8] in ("spatial", "data+spatial")
    assert table.simulated_winners[8] in ("spatial", "data+spatial")
    assert table.limits[3].reason == "p <= min(F): fc3 has 4 filters"


@pytest.mark.parametrize("words", ["spatial=3", "data=2,spatial=7"])
def test_volumes_that_do_not_divide_are_one_line(cluster, words):
    with pytest.raises(ConfigError, match="spatial must be a number of equal parts that some layer has") as caught:
        make_plan(load_model("cosmoflow", batch=4), cluster, strategy=words)
    assert "\n" not in str(caught.value)
