"""Columns of a page: compressed and in base64, so that the browser's own decompressor unpacks them."""

import base64
import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Packed = dict[str, str]
"""A packed column: ``type`` (a JavaScript typed array, or ``json``), ``data`` in base64, and ``steps`` if these are
differences of neighbours."""

_TYPES = {"u1": "Uint8Array", "u2": "Uint16Array", "u4": "Uint32Array", "f8": "Float64Array"}


def pack_array(values: NDArray[Any]) -> Packed:
    """Pack a column of any shape, row after row, in the smallest type that holds it exactly."""
    smallest = np.ascontiguousarray(values, dtype=_smallest_type(values))
    return _pack(_TYPES[smallest.dtype.str[1:]], smallest.tobytes())


def pack_steps(values: NDArray[Any]) -> Packed:
    """Pack integers >= 0 as the first one and the differences of neighbours, which compress well in long runs."""
    steps = np.diff(values, prepend=0)
    return {**pack_array(np.where(steps < 0, -2 * steps - 1, 2 * steps)), "steps": "yes"}


def pack_signed(values: NDArray[Any]) -> Packed:
    """Pack integers of either sign as 0, -1, 1, -2, 2, ... counted from 0."""
    return pack_array(np.where(values < 0, -2 * values - 1, 2 * values))


def pack_json(value: object) -> Packed:
    """Pack a value that JSON can represent."""
    return _pack("json", json.dumps(value, ensure_ascii=False).encode())


def _smallest_type(values: NDArray[Any]) -> str:
    if values.dtype.kind not in "bui":
        return "<f8"
    largest = int(values.max()) if values.size else 0
    assert values.size == 0 or values.min() >= 0, "columns of integers count from 0"
    return "|u1" if largest < 2**8 else "<u2" if largest < 2**16 else "<u4"


def _pack(kind: str, data: bytes) -> Packed:
    return {"type": kind, "data": base64.b64encode(zlib.compress(data, 6)).decode()}
