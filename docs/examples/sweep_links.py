"""Sweep the speed of links for data parallelism and OWT: a sweep, its store and its picture."""

from pathlib import Path

import orrery

SWEEP = """
version: 1
name: links
models: [alexnet]
clusters:
  cluster: p100-4x4
  with: {nodes: 1, link.nvlink1.bandwidth_factor: [0.25, 1, 4, 16]}
batch: [128]
strategies: [data, owt]
"""


def main() -> None:
    """Sweep, print a table, draw."""
    Path("links.yaml").write_text(SWEEP)
    with orrery.Store.writing(Path("links.sqlite")) as store:
        outcome = orrery.run_sweep(orrery.read_sweep(Path("links.yaml")), store, processes=1)
        frame = store.to_frame()
        figure = orrery.figure(store, x="link.nvlink1.bandwidth_factor")
    times = frame.pivot(index="link.nvlink1.bandwidth_factor", columns="strategy", values="iteration_s")
    print(times.assign(gain=times["data"] / times["owt"]).round(5).to_string())
    figure.write_html("links.html")
    assert outcome.points == 8
    assert (times["data"].diff().dropna() <= 1e-9).all()  # faster links never hurt data parallelism


if __name__ == "__main__":  # a sweep starts processes, which read this file too
    main()
