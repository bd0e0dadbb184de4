"""``orrery probe``: devices and links measured."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from executor.probe.probe_settings import ProbeSettings
from orrery.terminal.options import JsonOption
from orrery.terminal.output import Out, out_option, output_file, print_json, to_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.views import print_pairs, print_table

if TYPE_CHECKING:
    from executor.probe.measured_rows import TimeSamples
    from executor.probe.probe_run import Probed


_SHOWN_BYTES = (4, 2**20, 32 * 2**20)
"""Sizes of messages that are printed; JSON output has all."""


@takes_requests
def orrery_probe(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Models whose layers are measured.")],
    *,
    settings: ProbeSettings,
    out: Annotated[Out, out_option("cluster.yaml", "profile.yaml", "probe.json", folder_only=True)],
    json: JsonOption = False,
) -> None:
    """Measure layers, data types and links on this machine; write a cluster file and a compute profile."""
    from executor.runtime.requirements import check_torch

    check_torch("probe")
    from executor.probe.probe_run import probe

    # Opened first: a folder that cannot be written is known before the work.
    with output_file(out.files[-1]) as file, progress_bar("probing") as progress:
        probed = probe(models, settings, out=out.typed, progress=progress)
        values = _values(probed)
        file.write_bytes(to_json(values))
    print_json(values) if json else _print(values, probed)


def _values(probed: "Probed") -> dict[str, Any]:
    """Return all medians and spreads; seconds, bytes."""
    summary, links = probed.summary, probed.summary.links
    return {
        "device": summary.device,
        "processes": len(links.machines),
        "machines": len(set(links.machines)),
        "layers": [
            {"model": row.model, "layers": row.layers, "part": row.sizes, "phase": row.phase, **_spread(row.samples)}
            for row in summary.rows
        ],
        "coding": [
            {"type": row.type, "place": row.place, "task": row.task, "numbers": row.elements, **_spread(row.samples)}
            for row in summary.codecs
        ],
        "messages": [
            {"between_machines": row.between, "size_bytes": row.size_bytes, **_spread(row.samples)}
            for row in links.messages
        ],
        "rings": [{"size_bytes": row.size_bytes, **_spread(row.samples)} for row in links.rings],
        "all_reduces": [
            {"ranks": row.ranks, "size_bytes": row.size_bytes, **_spread(row.samples)} for row in links.sums
        ],
        "cluster_file": str(probed.cluster_file),
        "profile_file": str(probed.profile_file),
    }


def _spread(samples: "TimeSamples") -> dict[str, Any]:
    """Return median, spread and number of samples."""
    return {"median_s": samples.median_s, "spread": samples.spread, "samples": len(samples.seconds)}


def _print(values: dict[str, Any], probed: "Probed") -> None:
    """Print tables of layers, data types and messages, then the device and the files."""
    print_table(_layer_rows(values["layers"]))
    if values["coding"]:
        print_table(_coding_rows(values["coding"]))
    if values["messages"]:
        print_table(_link_rows(values))
    facts = probed.summary.device
    print_pairs(
        {
            "device": facts.label,
            "software": facts.software,
            "processes": values["processes"],
            "machines": values["machines"],
            "peak (GFLOP/s)": facts.peak_flop_per_s / 1e9,
            "memory (GB/s)": facts.memory_bytes_per_s / 1e9,
            "launch_overhead_s": facts.launch_overhead_s,
            "parts measured": len({(row["model"], row["layers"], row["part"]) for row in values["layers"]}),
            "cluster file": values["cluster_file"],
            "compute profile": values["profile_file"],
        }
    )


def _layer_rows(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each part: its phases side by side, and the largest spread among them."""
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    phases = ("forward", "activation_gradient", "weight_gradient", "update")
    for row in layers:
        key = (row["model"], row["layers"], row["part"])
        more = f" and {len(row['layers']) - 1} like it" if len(row["layers"]) > 1 else ""
        new = {"model": row["model"], "layer": row["layers"][0] + more, "part": " x ".join(map(str, row["part"]))}
        entry = rows.setdefault(key, new | {f"{phase}_s": None for phase in phases} | {"spread": 0.0})
        entry[f"{row['phase']}_s"] = row["median_s"]
        entry["spread"] = max(entry["spread"], row["spread"])
    return [entry | {"spread": f"{entry['spread']:.1%}"} for entry in rows.values()]


def _coding_rows(coding: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each data type and kind of tensor, with the speed of its largest messages."""
    from reports.style.units import three_digits

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    tasks = ("compress", "decompress", "sum")
    for row in sorted(coding, key=lambda row: row["numbers"]):
        new = {"data type": row["type"], "of": row["place"]} | {f"{task} (M/s)": "" for task in tasks}
        entry = rows.setdefault((row["type"], row["place"]), new | {"spread": 0.0})
        entry[f"{row['task']} (M/s)"] = three_digits(row["numbers"] / row["median_s"] / 1e6)
        entry["spread"] = max(entry["spread"], row["spread"])
    return [entry | {"spread": f"{entry['spread']:.1%}"} for entry in rows.values()]


def _link_rows(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each message and all-reduce of a few sizes."""
    rows = []
    for key, what in (("messages", "message"), ("rings", "all send to the next"), ("all_reduces", "all-reduce")):
        for row in values[key]:
            if row["size_bytes"] in _SHOWN_BYTES:
                where = f"{what} between machines" if row.get("between_machines") else what
                where += f" over {row['ranks']}" if "ranks" in row else ""
                rows.append(
                    {
                        "what": where,
                        "size_bytes": row["size_bytes"],
                        "median_s": row["median_s"],
                        "spread": f"{row['spread']:.1%}",
                        "GB/s": row["size_bytes"] / row["median_s"] / 1e9,
                    }
                )
    return rows
