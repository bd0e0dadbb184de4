"""Model files of the catalogue whose sizes a user may set: numbers are formulas, and one block stands for all.

The file of GPT-2 has one of its 12 blocks, with sizes in braces and ``*`` for the number of the block::

    "sizes": {"layers": 12, "hidden": 768, "heads": "{hidden/64}"}
    {"name": "transformer.h.*.ln_1", "inputs": ["transformer.drop"], "output": {"channel": "{hidden}"}}

Every block but the first reads the last layer of the block before it, where the first one reads the layer before all
blocks.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from groundwork.errors import ConfigError
from planner.graph.computation_graph import Layer

_FORMULA = re.compile(r"\{([^}]*)\}")
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Div: operator.floordiv,
}


class ModelSizes(dict[str, int]):
    """Values of the sizes of a model.

    Raises:
        ConfigError: A quotient is no whole number.
    """

    def __init__(self, model: str, rows: Mapping[str, int | str]) -> None:
        super().__init__()
        self._model = model
        self._known: dict[str, Any] = {}
        for name, row in rows.items():
            self[name] = self.filled(row)

    def filled(self, row: Any) -> Any:
        """Return a part of a file with values for its formulas.

        Raises:
            ConfigError: A quotient is no whole number.
        """
        if isinstance(row, dict):
            return {key: self.filled(each) for key, each in row.items()}
        if isinstance(row, list):
            return list(map(self.filled, row))
        if not isinstance(row, str) or "{" not in row:
            return row
        if row not in self._known:
            self._known[row] = self._fill(row)
        return self._known[row]

    def _fill(self, text: str) -> Any:
        """Return the value of a formula, or a text with the values of those within it."""
        if whole := _FORMULA.fullmatch(text):
            return self._value(ast.parse(whole[1], mode="eval").body)
        return _FORMULA.sub(lambda formula: str(self._fill(formula[0])), text)

    def _value(self, node: ast.expr) -> Any:
        """Return the value of a part of a formula."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self[node.id]
            case ast.UnaryOp():
                return -self._value(node.operand)
            case ast.BinOp():
                left, right = self._value(node.left), self._value(node.right)
                if isinstance(node.op, ast.Div) and left % right:
                    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
                    given = ", ".join(f"{name}={self[name]}" for name in names)
                    raise ConfigError(f"{self._model}: {ast.unparse(node)} must be a whole number, got {given}")
                return _OPERATORS[type(node.op)](left, right)
            case ast.Call():
                return rotary_frequencies(*map(self._value, node.args))
        raise TypeError(f"no formula: {ast.unparse(node)}")


def rotary_frequencies(size: int, base: float, factor: float, low: float, high: float, positions: int) -> list[float]:
    """Return the angles by which pairs of channels of a head turn from one position to the next.

    Args:
        size: Channels of a head.
        base: Base of the powers that they are.
        factor: Number by which the slowest turns are divided, for more positions than those of pretraining.
        low: Turns within ``positions`` up to which they are divided so.
        high: Turns from which they stay as they are; between both it is interpolated.
        positions: Positions of pretraining.

    Source:
        Grattafiori et al., "The Llama 3 Herd of Models", 2024; ``rope_type`` llama3 of its published configurations.
    """
    turn = base ** (-np.arange(0, size, 2) / size)
    kept = ((positions * turn / (2 * np.pi) - low) / (high - low)).clip(0, 1)
    turns: list[float] = (turn * (kept + (1 - kept) / factor)).tolist()
    return turns


def with_own_parameters(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the layers of a file with a parameter of their own, under its alias, where one borrows another's."""
    parameters = [each for row in layers for each in row.get("parameters", {}).values()]
    borrowed = {each["key"] for each in parameters if "shared" in each}
    names = {each["key"]: each["aliases"][0] for each in parameters if each["key"] in borrowed and "aliases" in each}

    def own(row: Mapping[str, Any]) -> dict[str, Any]:
        kept = {field: value for field, value in row.items() if field not in ("shared", "aliases")}
        return kept | ({"key": names[row["key"]]} if "shared" in row else {})

    return [
        {**row, "parameters": {n: own(p) if p["key"] in borrowed else p for n, p in row["parameters"].items()}}
        if "parameters" in row
        else row
        for row in layers
    ]


def repeated(layers: Sequence[Layer], count: int) -> list[Layer]:
    """Return layers with their block, those with ``*`` in their names, so many times one after another."""
    block = [layer for layer in layers if "*" in layer.name]
    start = layers.index(block[0])
    before, last = layers[start - 1].name, block[-1].name

    def numbered(layer: Layer, number: int, reads: Mapping[str, str]) -> Layer:
        inputs = tuple(reads.get(each, each).replace("*", str(number)) for each in layer.inputs)
        keys = tuple((name, key.replace("*", str(number))) for name, key in layer.keys)
        return replace(layer, name=layer.name.replace("*", str(number)), inputs=inputs, keys=keys)

    blocks = [
        numbered(layer, i, {before: last.replace("*", str(i - 1))} if i else {})
        for i in range(count)
        for layer in block
    ]
    rest = (numbered(layer, count - 1, {}) for layer in layers[start + len(block) :])
    return [*layers[:start], *blocks, *rest]
