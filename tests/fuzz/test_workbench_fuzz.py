"""What browsers send and what files of scenarios hold, spoiled: refused in one line, and never code or a path."""

import json
import re

import pytest
from hypothesis import given, settings, strategies as st

from groundwork.errors import ConfigError
from orrery.workbench.scenario_view import kept_scenarios
from orrery.workbench.subject import parsed_subject
from orrery.workbench.working_folder import WorkingFolder

SUBJECT = {
    "model": "lenet5:classes=10",
    "cluster": "titanx-4:nodes=2",
    "batch": 64,
    "strategies": ["data", "data=2,filter=2"],
    "gradient_sync": "ring",
    "dtype": "float32",
    "edits": {"link.fdr.bandwidth_factor": "0.5"},
}
WORDS = st.sampled_from(
    [
        "",
        "lenet5",
        "a:b",
        "a.py",
        "../x",
        "/etc/passwd",
        "x.yaml",
        "upload:x",
        "upload:../x",
        "upload:x:nodes=2",
        "\x00",
    ]
)
SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | WORDS
VALUES = st.recursive(SIMPLE, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3))
SPOILED = st.dictionaries(st.sampled_from(sorted(SUBJECT)) | WORDS, VALUES, min_size=1, max_size=3).map(
    lambda changes: SUBJECT | changes
)
SCENARIO = {"version": 1, "name": "x", "searched": True, "subject": SUBJECT, "numbers": {"strategies": []}}


@given(SPOILED | VALUES)
@settings(max_examples=40)
def test_subjects_name_the_catalogue_or_uploads(values):
    refusals = []
    try:
        subject = parsed_subject(values)
    except ConfigError as error:
        refusals.append(str(error))
    if refusals:
        assert "\n" not in refusals[0]
        return
    for spec, folder in ((subject.model_spec, "models"), (subject.cluster_spec, "clusters")):
        name = spec.partition(":")[0]
        assert re.fullmatch(rf"[\w.-]+|{folder}/[\w-]+\.yaml", name, re.ASCII), spec
        assert ".." not in spec


@given(st.dictionaries(st.sampled_from(sorted(SCENARIO)), VALUES, min_size=1).map(lambda changes: SCENARIO | changes))
@settings(max_examples=40)
def test_spoiled_scenarios_are_listed_with_the_reason(tmp_path_factory, values):
    folder = WorkingFolder(tmp_path_factory.getbasetemp() / "fuzzed")
    (folder.path / "scenarios" / "spoiled.json").write_text(json.dumps(values))
    (row,) = kept_scenarios(folder)
    assert "error" in row or isinstance(row["name"], str)


def test_what_is_spoiled_is_valid():
    assert parsed_subject(SUBJECT).cluster_spec == "titanx-4:nodes=2,link.fdr.bandwidth_factor=0.5"
    with pytest.raises(ConfigError, match="request"):
        parsed_subject([])
