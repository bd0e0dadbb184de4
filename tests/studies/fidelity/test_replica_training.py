"""Replicas of GPT relative to one: what the sum of their gradients costs, as measured."""

import numpy as np

from studies.fidelity.judged_row import MEASURES
from studies.fidelity.many_gpu_training import replica_rows


def test_losses_of_data_parallelism_follow_the_measured_ones():
    """Over 141 measured iterations of up to four replicas in one machine; no row of several replicas was fitted to."""
    rows = [row for row in replica_rows() if "vTrain" in row.comparison]
    measured, predicted = (np.log([getattr(row, name) for row in rows]) for name in ("measured_s", "predicted_s"))
    assert len(rows) > 140
    assert np.corrcoef(measured, predicted)[0, 1] > 0.9
    assert abs(np.mean(predicted - measured)) < 0.002
    linear = np.abs(measured)
    assert np.median(np.abs(predicted - measured)) < 0.3 * np.median(linear)


def test_more_replicas_never_make_an_iteration_shorter():
    for row in replica_rows():
        assert row.predicted_s > 1


def test_no_bar_is_met_by_predicting_no_loss_at_all():
    """A bar that such a prediction meets cannot fail, and says nothing of the price of the gradients' sum."""
    rows = list(replica_rows())
    (measure,) = {row.measure for row in rows}
    (bars,) = [(each.median_bar, each.p90_bar) for each in MEASURES if each.name == measure]
    errors = [abs(1 / row.measured_s - 1) for row in rows]
    for bar, quantile in zip(bars, (0.5, 0.9), strict=True):
        assert bar is None or bar < np.quantile(errors, quantile)
