"""Scenarios under names: what was compared, its changes and its numbers, each in a file of its own."""

from dataclasses import dataclass
from typing import Any

from groundwork.control_characters import check_texts
from groundwork.errors import ConfigError
from groundwork.input_files import json_input
from orrery.workbench.subject import BenchSubject, parsed_subject
from orrery.workbench.working_folder import WorkingFolder, json_bytes, readable_name

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
