"""Arrays from the wild: damaged, hostile and oversized files are refused in one way."""

import io
import pickle
import random
import zipfile

import numpy as np
import pytest

from groundwork.errors import ConfigError
from groundwork.input_arrays import array_input

ARRAYS = {"start_s": np.arange(12.0).reshape(3, 4), "notes": np.array(["a", "é"]), "paused": np.array([True, False])}


def saved(path, *, compressed=True):
    (np.savez_compressed if compressed else np.savez)(path, **ARRAYS)
    return path


def member(shape, *, extra=b"", kind="<f8"):
    """An .npy file with a header of any shape, and nothing but ``extra`` after it."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue() + extra


@pytest.mark.parametrize("compressed", [True, False])
def test_arrays_come_back(tmp_path, compressed):
    read = array_input(saved(tmp_path / "a.npz", compressed=compressed), "measurement")
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (2**62, 2**62), (-1,)])
def test_shapes_that_a_file_cannot_hold_are_refused_before_memory_is_asked_for(tmp_path, shape):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("start_s.npy", member(shape, extra=bytes(64)))
    with pytest.raises(ConfigError, match=r"measurement .*a\.npz"):
        array_input(tmp_path / "a.npz", "measurement")


def test_bombs_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    """Ten megabytes of zeros pack into ten kilobytes."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 10_000_000}))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("start_s.npy", member((1_250_000,), extra=bytes(10_000_000)))
    with pytest.raises(ConfigError, match="GiB of memory"):
        array_input(tmp_path / "a.npz", "measurement")


def test_pickled_objects_are_not_unpickled(tmp_path):
    class Hostile:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.npy", member((1,), extra=pickle.dumps([Hostile()]), kind="|O"))
        archive.writestr("more", pickle.dumps(Hostile()))
    with pytest.raises(ConfigError):
        array_input(tmp_path / "a.npz", "measurement")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("compressed", [True, False])
def test_damage_of_any_kind_is_one_error_or_none(tmp_path, compressed):
    """One byte changed, or all after some byte missing."""
    whole = saved(tmp_path / "a.npz", compressed=compressed).read_bytes()
    random_numbers = random.Random(0)
    refused = []
    for _ in range(400):
        at = random_numbers.randrange(len(whole))
        damaged = whole[:at] + bytes([random_numbers.randrange(256)]) + whole[at + 1 :]
        (tmp_path / "b.npz").write_bytes(random_numbers.choice([damaged, whole[:at]]))
        try:
            array_input(tmp_path / "b.npz", "measurement")
        except ConfigError as error:
            refused.append(str(error))
    assert len(refused) > 300
    assert not any("\n" in each for each in refused)
