"""Scenarios under names, each in a file, and two of them side by side: what differs, and the times of both."""

from dataclasses import dataclass
from typing import Any

from groundwork.control_characters import check_texts
from groundwork.errors import ConfigError
from groundwork.input_files import json_input
from orrery.workbench.subject import BenchSubject, parsed_subject
from orrery.workbench.working_folder import WorkingFolder, json_bytes, readable_name
from reports.style.units import plain_unit, time_unit

_VERSION = 1
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScenario:
    """A scenario as it was kept."""

    name: str
    subject: BenchSubject
    numbers: dict[str, Any]
    """Numbers of its comparison, as ``orrery compare --json`` prints them."""
    searched: bool
    """False where the strategies were chosen before the last changes, and only priced and replayed with them."""


def scenario_file(name: str) -> str:
    """Return the name of the file of a scenario: readable, and of its own for every name."""
    return readable_name(name, name.encode())


def keep_scenario(folder: WorkingFolder, scenario: StoredScenario) -> None:
    """Write a scenario, in place of the one of the same name.

    Raises:
        ConfigError: The name is empty, too long or has control characters, or the file cannot be written.
    """
    if not scenario.name.strip() or len(scenario.name) > _LONGEST_NAME:
        raise ConfigError(f"name of a scenario must have 1 to {_LONGEST_NAME} characters, got {scenario.name!r}")
    check_texts([scenario.name], "name of a scenario")
    values = {
        "version": _VERSION,
        "name": scenario.name,
        "subject": scenario.subject.model_dump(),
        "searched": scenario.searched,
        "numbers": scenario.numbers,
    }
    folder.write("scenarios", scenario_file(scenario.name), ".json", json_bytes(values))


def open_scenario(folder: WorkingFolder, file: str) -> StoredScenario:
    """Read a scenario.

    Raises:
        ConfigError: There is none, or its file breaks a rule.
    """
    path = folder.file("scenarios", file, ".json")
    values = json_input(path, "scenario")
    if not isinstance(values, dict) or values.get("version") != _VERSION:
        raise ConfigError(f"scenario {file}: version must be {_VERSION}")
    name, numbers = values.get("name"), values.get("numbers")
    if not isinstance(name, str) or not _are_numbers(numbers):
        raise ConfigError(f"scenario {file}: name must be a text, and numbers those of a comparison")
    return StoredScenario(
        name=name,
        subject=parsed_subject(values.get("subject")),
        numbers=dict(numbers or {}),
        searched=values.get("searched") is True,
    )


def _are_numbers(numbers: object) -> bool:
    """Return whether a value has the numbers of strategies that pages show."""
    rows = numbers.get("strategies") if isinstance(numbers, dict) else None
    return isinstance(rows, list) and all(
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and all(isinstance(row.get(key), int | float) for key in ("expected_s", "samples_per_s", "speedup"))
        and isinstance(row.get("money_per_million_samples"), int | float | None)
        for row in rows
    )


def kept_scenarios(folder: WorkingFolder) -> list[dict[str, Any]]:
    """Return every scenario for a list: file, name, what it compares; or why its file cannot be read."""
    rows: list[dict[str, Any]] = []
    for file in folder.names("scenarios", ".json"):
        try:
            kept = open_scenario(folder, file)
        except ConfigError as error:
            if not (folder.path / "scenarios" / f"{file}.json").exists():
                continue  # deleted meanwhile
            rows.append({"file": file, "name": file, "error": str(error)})
            continue
        rows.append(
            {
                "file": file,
                "name": kept.name,
                "subject": kept.subject.model_dump(),
                "searched": kept.searched,
                "winner": str(kept.numbers.get("winner", "")),
            }
        )
    return sorted(rows, key=lambda row: str(row["name"]).lower())


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
