"""Two scenarios side by side: what differs, and the times of every strategy that both have."""

from typing import Any

from orrery.workbench.stored_scenarios import StoredScenario
from reports.style.units import plain_unit, time_unit

_MONEY = "money_per_million_samples"


def scenario_pair(left: StoredScenario, right: StoredScenario) -> dict[str, Any]:
    """Return a table of two scenarios, its headline, and the times for a figure."""
    rows_of = [{row["name"]: row for row in each.numbers["strategies"]} for each in (left, right)]
    names = [name for name in rows_of[0] if name in rows_of[1]]
    times_s = [rows[name]["expected_s"] for name in names for rows in rows_of]
    rates = [rows[name]["samples_per_s"] for name in names for rows in rows_of]
    costs = [float(rows[name][_MONEY]) for name in names for rows in rows_of if rows[name].get(_MONEY)]
    time, rate, money = time_unit(times_s), plain_unit(rates), plain_unit(costs)
    samples = _samples(left, right)
    heads = [time.name, f"{samples}/s", *[f"money per million {samples}"] * bool(costs)]
    rows = []
    for name in names:
        a, b = (rows[name] for rows in rows_of)
        ratio = b["samples_per_s"] / a["samples_per_s"]
        cost = [money.text(row[_MONEY]) if row.get(_MONEY) else "not known" for row in (a, b)] if costs else []
        rows.append(
            {
                "name": name,
                "times": [time.text(a["expected_s"]), time.text(b["expected_s"])],
                "rates": [rate.text(a["samples_per_s"]), rate.text(b["samples_per_s"])],
                "cost": cost,
                "ratio": f"{ratio:.3g} ×",
                "pace": [a.get("pace") or "", b.get("pace") or ""],
                "values": [a["expected_s"] / time.factor, b["expected_s"] / time.factor],
            }
        )
    return {
        "headline": _headline(left, right),
        "names": [left.name, right.name],
        "unit": time.name,
        "heads": [
            "strategy",
            *(f"{each.name} [{head}]" for head in heads for each in (left, right)),
            f"{samples}/s, right to left",
            "what sets the pace, right",
        ],
        "rows": rows,
        "only": [[name for name in rows_of[i] if name not in rows_of[1 - i]] for i in (0, 1)],
        "differences": _differences(left, right),
        "searched": [left.searched, right.searched],
    }


def _samples(*scenarios: StoredScenario) -> str:
    kinds = {str(each.numbers.get("samples_are", "samples")) for each in scenarios}
    return kinds.pop() if len(kinds) == 1 else "samples"


def _best(scenario: StoredScenario) -> dict[str, Any]:
    """Return the fastest strategy of a scenario."""
    rows: list[dict[str, Any]] = scenario.numbers["strategies"]
    return min(rows, key=lambda row: float(row["expected_s"]), default={})


def _headline(left: StoredScenario, right: StoredScenario) -> str:
    """Return which scenario trains faster, each by its fastest strategy."""
    a, b = _best(left), _best(right)
    if not a or not b:
        return f"{(left if not a else right).name} has no strategy that fits."
    ratio = b["samples_per_s"] / a["samples_per_s"]
    if f"{ratio:.3f}" == "1.000":
        return f"{left.name} and {right.name} train equally fast, by {a['name']} and {b['name']}."
    faster, slower, by = (right, left, ratio) if ratio > 1 else (left, right, 1 / ratio)
    names = (b["name"], a["name"]) if ratio > 1 else (a["name"], b["name"])
    what = f"{by:.3g} times as many {_samples(left, right)} a second"
    return f"{faster.name} trains {what} ({names[0]}) as {slower.name} ({names[1]})."


def _differences(left: StoredScenario, right: StoredScenario) -> list[list[str]]:
    """Return the fields in which two scenarios differ, with the text of each."""
    fields = [
        ("model", "model"),
        ("cluster", "cluster"),
        ("batch", "batch"),
        ("dtype", "data type"),
        ("gradient_sync", "gradient synchronisation"),
        ("price", "price of a device hour"),
    ]
    none = {"gradient_sync": "as declared", "price": "not known"}
    rows = [[word, *(str(getattr(each.subject, key) or none[key]) for each in (left, right))] for key, word in fields]
    changes = [", ".join(f"{k}={v}" for k, v in each.subject.edits.items()) or "none" for each in (left, right)]
    return [row for row in [*rows, ["changes", *changes]] if row[1] != row[2]]
