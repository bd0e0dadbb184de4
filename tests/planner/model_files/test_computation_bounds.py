"""Computations of model files that would make work without bounds are refused where they are read."""

import pytest

from groundwork.errors import ConfigError
from planner.graph.shapes import Shape
from planner.model_files.computations import MOST_ARGUMENTS, MOST_DEPTH, steps_of

SHAPE = Shape(("sample", "channel"), (4, 6))
AXES = ["sample", "channel"]


def step(**given):
    """A step with one operand, or what is given."""
    return {"form": "pointwise", "call": "add", "out": AXES, "of": {"self": {"input": 0, "axes": AXES}}} | given


def constant(**given):
    """A step whose second operand is a constant."""
    return step(of={"self": {"input": 0, "axes": AXES}, "other": given})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (step(of={"tensors.3000000000": {"input": 0, "axes": AXES}}), "operand must be an argument"),
        (step(of={"out": {"input": 0, "axes": AXES}}), "operand must be an argument"),
        (step(of={"self": {"input": 0, "axes": ["repeat.30000000000.1"]}}), "repetitions of an axis"),
        (step(of={"self": {"input": 0, "axes": ["repeat.9999.1-repeat.9999.1"]}}), "repetitions of an axis"),
        (constant(call="full", shape=[60000, 60000], **{"with": {"size": [60000, 60000]}}), "shape of a call"),
        (constant(call="full", shape=[6], **{"with": {"size": [60000, 60000]}}), "size must make no more"),
        (constant(call="arange", shape=[6], **{"with": {"end": 6, "step": 1e-9}}), "end must make no more"),
        (constant(call="arange", shape=[6], **{"with": {"end": 10**12}}), "end must make no more"),
    ],
)
def test_work_is_bounded(row, message):
    """Each is refused by the name of the step and the field."""
    with pytest.raises(ConfigError, match=f"step 0 of computes.*{message}"):
        steps_of([row], [SHAPE], SHAPE, [])


def test_lists_and_numbers_are_read_up_to_their_bounds():
    """The last index of an axis and the longest list are read; one more is refused."""
    axes = {"self": {"input": 0, "axes": AXES}}
    of = [{"self": {"input": number, "axes": AXES}} for number in (0, 1)]
    values = [step(of=axes, **{"with": {"alpha": [1] * count}}) for count in (MOST_ARGUMENTS, MOST_ARGUMENTS + 1)]

    for read, refused, message in ((step(of=of[0]), step(of=of[1]), "from 0 to 0"), (*values, "a list of them")):
        assert len(steps_of([read], [SHAPE], SHAPE, [])) == 1
        with pytest.raises(ConfigError, match=message):
            steps_of([refused], [SHAPE], SHAPE, [])


def test_constants_and_lists_are_read_as_deep_as_their_bounds():
    """A constant of constants, and a list of lists; one more within each other is refused."""

    def constants(count):
        row = {"call": "full", "shape": [6], "with": {"size": [6]}}
        for _ in range(count):
            row = {"call": "neg", "shape": [6], "of": {"self": row}}
        return constant(**row)

    def lists(count):
        value = [1]
        for _ in range(count):
            value = [value]
        return step(of={"self": {"input": 0, "axes": AXES}}, **{"with": {"dims": value}})

    for nested, most, message in (
        (constants, MOST_DEPTH, f"no deeper than {MOST_DEPTH}"),
        (lists, 4, "a list of them"),
    ):
        assert len(steps_of([nested(most)], [SHAPE], SHAPE, [])) == 1
        with pytest.raises(ConfigError, match=message):
            steps_of([nested(most + 1)], [SHAPE], SHAPE, [])


def test_usual_computations_are_read():
    """Constants of the declared sizes, numbered operands and repetitions are kept."""
    rows = [
        constant(call="full", shape=[6], **{"with": {"size": [6], "fill_value": 2.0}}),
        constant(call="arange", shape=[6], **{"with": {"start": 1, "end": 7}}),
        step(of={"tensors.1": {"input": 0, "axes": ["sample", "repeat.6.1"]}}),
    ]

    assert len(steps_of(rows, [SHAPE], SHAPE, [])) == len(rows)
