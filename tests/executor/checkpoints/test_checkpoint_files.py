"""Files of a checkpoint that were made to do harm, or changed at random: refused on one line, or read as they were."""

import hashlib
import os
import pickle
import random
import shutil
import struct
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file

from executor.checkpoints.checkpoint import CheckpointPart, load_checkpoint, save_checkpoint
from executor.checkpoints.checkpoint_format import ELEMENT_TYPES
from executor.checkpoints.resume import _of_replicas
from executor.runtime.boxes import Box, whole_box
from groundwork.errors import ConfigError

pytestmark = pytest.mark.timeout(120)
IDENTITY = {"model": "abc"}
MUTATIONS = 200


def part(values):
    return CheckpointPart(whole_box(values.shape), tuple(values.shape), values)


def tensors():
    generator = torch.Generator().manual_seed(3)
    shapes = {"one.weight": (3, 2), "one.bias": (3,), "step": ()}
    return {name: part(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}


def empty():
    return {name: part(torch.full_like(row.tensor, torch.nan)) for name, row in tensors().items()}


def saved(folder):
    """A checkpoint, and its folder."""
    save_checkpoint(folder, step=4, identity=IDENTITY, tensors=tensors())
    return folder / "step-000004"


def check_whole(folder):
    """The checkpoint is read, and holds what was saved."""
    wanted = empty()
    assert load_checkpoint(folder, IDENTITY, wanted).step == 4
    for name, row in tensors().items():
        assert torch.equal(wanted[name].tensor, row.tensor), name


def refusal(folder):
    """Why the checkpoint is refused, on one line, by all that read it."""
    with pytest.raises(ConfigError) as caught:
        load_checkpoint(folder, IDENTITY, empty())
    said = str(caught.value)
    assert "\n" not in said
    return said


class Deed:
    """Whatever unpickles this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_beside_a_checkpoint_are_not_read(tmp_path):
    path, mark = saved(tmp_path), tmp_path / "mark"
    for name in (".metadata", "__0.metadata", "__0_0.distcp"):
        (path / name).write_bytes(pickle.dumps(Deed(mark)))
    check_whole(path)
    (path / "rank-0000.safetensors").write_bytes(pickle.dumps(Deed(mark)) * 9)
    assert "is damaged" in refusal(path)
    assert not mark.exists()
    pickle.loads((path / ".metadata").read_bytes())
    assert mark.exists(), "the file was harmless"


def test_others_read_the_files_without_this_program(tmp_path):
    path = saved(tmp_path)
    read = load_file(path / "rank-0000.safetensors")
    assert read.keys() == tensors().keys()
    assert all(torch.equal(read[name], row.tensor) for name, row in tensors().items())


def test_nothing_that_reads_a_checkpoint_unpickles(tmp_path, monkeypatch):
    saved(tmp_path)

    def forbidden(*_, **__):
        raise AssertionError("a pickle is read")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, forbidden)
    check_whole(tmp_path)


@settings(max_examples=35)
@given(data=st.data())
def test_every_type_comes_back_bit_for_bit(tmp_path_factory, data):
    """Bytes are drawn, so that infinities, other NaNs, negative zeros and denormal numbers are among them."""
    folder, written = tmp_path_factory.mktemp("bits"), {}
    for name, dtype in ELEMENT_TYPES.items():
        shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
        size_bytes = torch.Size(shape).numel() * dtype.itemsize
        content = data.draw(st.binary(min_size=size_bytes, max_size=size_bytes))
        flat = torch.tensor(list(content), dtype=torch.uint8)
        written[name] = flat.view(dtype).reshape(shape)
    save_checkpoint(folder, step=1, identity={}, tensors={name: part(row) for name, row in written.items()})
    read = {name: part(torch.zeros_like(row)) for name, row in written.items()}
    load_checkpoint(folder, {}, read)
    for name, row in written.items():
        assert raw(read[name].tensor) == raw(row), name


def raw(tensor):
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist())


def test_parts_of_other_tensors_are_saved_as_they_are(tmp_path):
    """Elements that do not lie one after another, and some that need a gradient."""
    values = torch.arange(24.0).reshape(4, 6)
    parts = {"turned": part(values.t()), "cut": part(values[1:3, ::2]), "leaf": part(values.clone().requires_grad_())}
    save_checkpoint(tmp_path, step=1, identity={}, tensors=parts)
    read = {name: part(torch.zeros(row.whole)) for name, row in parts.items()}
    load_checkpoint(tmp_path, {}, read)
    for name, row in parts.items():
        assert torch.equal(read[name].tensor, row.tensor), name


def test_elements_of_other_types_are_not_saved(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be written: the element type of x must be one of .*, got complex64"):
        save_checkpoint(tmp_path, step=1, identity={}, tensors={"x": part(torch.zeros(2, dtype=torch.complex64))})
    assert "holds no checkpoint" in refusal(tmp_path)


def mutated(content, chooser):
    """Bytes with one to three changes: bits, bytes, pieces left out, doubled, moved or cut off."""
    row = bytearray(content)
    for _ in range(chooser.randint(1, 3)):
        i, j = sorted(chooser.randrange(len(row) + 1) for _ in range(2))
        near = min(i + chooser.randint(1, 8), len(row))
        kind = chooser.randrange(7)
        if kind == 0 and i < len(row):
            row[i] ^= 1 << chooser.randrange(8)
        elif kind == 1 and i < len(row):
            row[i] = chooser.choice(b'0123456789-"[]{},.eE/\\\x00\n\xff')
        elif kind == 2:
            del row[i:near]
        elif kind == 3:
            row[i:i] = chooser.randbytes(chooser.randint(1, 8))
        elif kind == 4:
            row[j:j] = row[i:near]
        elif kind == 5:
            row[i:near] = struct.pack("<q", chooser.choice((-1, 2**31, 2**62)))[: near - i]
        else:
            del row[i:]
    return bytes(row)


@pytest.mark.parametrize("name", ["latest", "checkpoint.json", "rank-0000.safetensors"])
def test_a_file_changed_at_random_is_refused_or_gives_what_was_saved(tmp_path, name):
    path = saved(tmp_path)
    file = tmp_path / name if name == "latest" else path / name
    content, chooser, said = file.read_bytes(), random.Random(name), []
    for _ in range(MUTATIONS):
        file.write_bytes(mutated(content, chooser))
        try:
            check_whole(tmp_path)
        except ConfigError as error:
            said.append(str(error))
    assert len(said) > MUTATIONS // 3
    assert not any("\n" in text for text in said)
    file.write_bytes(content)
    check_whole(tmp_path)


@pytest.mark.parametrize("spoiled", [{"dtype": "I32"}, {"shape": [2, 3]}])
def test_a_header_that_contradicts_the_checkpoint_is_refused(tmp_path, spoiled):
    """The bytes are the same, and so is their checksum."""
    file = saved(tmp_path) / "rank-0000.safetensors"
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = msgspec.json.decode(content[8 : 8 + length])
    header["one.weight"].update(spoiled)
    changed = msgspec.json.encode(header)
    file.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + length :])
    assert "one.weight in rank-0000.safetensors must be float32 of sizes (3, 2)" in refusal(tmp_path)


def signed(path, change):
    """Change the fields of a checkpoint, and give it the checksum of the changed ones."""
    fields = msgspec.json.decode((path / "checkpoint.json").read_bytes())
    del fields["sha256"]
    change(fields)
    digest = hashlib.sha256(msgspec.json.encode(fields)).hexdigest()
    (path / "checkpoint.json").write_bytes(msgspec.json.encode({**fields, "sha256": digest}))


def box_change(name="one.weight", **changes):
    def change(fields):
        fields["tensors"][name]["boxes"][0].update(changes)

    return change


def tensor_change(name="one.weight", **changes):
    def change(fields):
        fields["tensors"][name].update(changes)

    return change


def huge(fields):
    """A tensor of 2^60 elements, in a box that says so."""
    row = fields["tensors"]["one.weight"]
    row["sizes"] = row["boxes"][0]["shape"] = [2**30, 2**30]


def shared(fields):
    """Many tensors in the bytes of one, which would take more memory than the file has bytes."""
    for i in range(1000):
        fields["tensors"][f"more{i}"] = fields["tensors"]["one.weight"]


CHANGES = {
    "huge": (huge, "rank-0000.safetensors must have at least 4611686018427387920 bytes, got "),
    "shared": (shared, "rank-0000.safetensors must have at least 24040 bytes, got "),
    "elsewhere": (box_change(file="../step-000004/rank-0000.safetensors"), "is no name of a file of boxes"),
    "absent": (box_change(file="rank-0001.safetensors"), "No such file"),
    "before the start": (box_change(low=[-1, 0]), "Expected `int` >= 0"),
    "no whole number": (box_change(low=[0.5, 0]), "Expected `int`, got `float`"),
    "outside": (box_change(low=[1, 0]), "lies outside of it"),
    "dimensions": (box_change(low=[0]), "must have 2 dimensions"),
    "cover": (tensor_change(sizes=[4, 2]), "hold 6 of its 8 elements"),
    "many dimensions": (tensor_change(sizes=[1] * 65), "of length <= 64"),
    "type": (tensor_change(dtype="object"), "element type of 'one.weight' must be one of"),
    "unknown": (tensor_change(more=1), "unknown field `more`"),
    "step": (lambda fields: fields.update(step=-1), "Expected `int` >= 0"),
    "identity": (lambda fields: fields.update(identity=[]), "Expected `object`, got `array`"),
    "no tensors": (lambda fields: fields.pop("tensors"), "missing required field `tensors`"),
    "depth": (lambda fields: fields.update(identity=nested(100)), "nested at most 64 levels"),
    "lines": (lambda fields: fields.update(identity={"model": "a\nb" * 100}), r"was saved with model a ba ba"),
    "version": (lambda fields: fields.update(version="2"), "must say its version"),
}


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("name", CHANGES)
def test_claims_are_checked_before_memory_is_taken(tmp_path, name):
    change, match = CHANGES[name]
    path = saved(tmp_path)
    signed(path, change)
    assert match in refusal(path)


@pytest.mark.parametrize(
    ("lows", "rest"),
    [
        ((0, 1), (Box((2,), (4,)), "its boxes hold 1 of 2 elements")),
        ((0, 3, 4), (Box((2,), (6,)), "two boxes of x overlap")),
    ],
)
def test_boxes_that_leave_a_gap_are_refused(tmp_path, lows, rest):
    """Boxes of which two overlap hold as many elements as the tensor, and not all of them."""
    size = 2 * len(lows)
    save_checkpoint(tmp_path, step=4, identity=IDENTITY, tensors={"x": part(torch.arange(float(size)))})
    path = tmp_path / "step-000004"
    for i in range(1, len(lows)):
        shutil.copy(path / "rank-0000.safetensors", path / f"rank-000{i}.safetensors")

    def change(fields):
        row = fields["tensors"]["x"]
        box = {**row["boxes"][0], "shape": [2]}
        row["boxes"] = [{**box, "low": [low], "file": f"rank-000{i}.safetensors"} for i, low in enumerate(lows)]

    signed(path, change)
    for box, said in ((Box((0,), (size,)), "two boxes of x overlap"), rest):
        with pytest.raises(ConfigError, match=f"is damaged: {said}"):
            load_checkpoint(path, IDENTITY, {"x": CheckpointPart(box, (size,), torch.zeros(box.shape))})


@pytest.mark.parametrize("name", ["checkpoint.json", "rank-0000.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, name, kind):
    file = saved(tmp_path) / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    assert "must be a regular file" in refusal(tmp_path)


@pytest.mark.parametrize("row", ["../../etc", "step-000001.partial", "/tmp", "step-1", "a\x1b[2Jb"])
def test_only_checkpoints_are_named_as_the_newest(tmp_path, row):
    saved(tmp_path)
    (tmp_path / "latest").write_text(f"{row}\n")
    assert "must list names such as step-000010, got" in refusal(tmp_path)


def test_no_buffer_is_made_for_residuals_of_another_shape():
    """Their number of replicas would be taken from the file, whatever it says."""
    mine = CheckpointPart(Box((0, 0), (1, 3)), (2, 3), torch.zeros(1, 3))
    for sizes in ((10**15, 0), (), (0, 3), (10**15, 3, 0)):
        assert _of_replicas(mine, sizes) is mine
    assert _of_replicas(mine, (5, 3)).tensor.shape == (5, 3)


def test_a_folder_that_is_a_file_holds_no_checkpoint(tmp_path):
    Path(tmp_path / "file").write_text("")
    assert "holds no checkpoint" in refusal(tmp_path / "file")
