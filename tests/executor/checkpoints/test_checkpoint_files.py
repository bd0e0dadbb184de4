"""Files of a checkpoint that were made to do harm, or changed at random: refused on one line, or read as they were."""

import hashlib
import io
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings, strategies as st
from old_writer import save_old

from executor.checkpoints.checkpoint import latest_step, load_checkpoint, save_checkpoint, saved_sizes
from executor.checkpoints.checkpoint_format import ELEMENT_TYPES
from executor.checkpoints.checkpoint_storage import CheckpointPart
from executor.checkpoints.resume import Checkpoints, _of_replicas
from executor.runtime.boxes import Box, whole_box
from executor.runtime.run_options import RunOptions
from hwprofiles.errors import ConfigError

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


def saved(folder, *, old=False):
    """A checkpoint, and its folder."""
    if old:
        return save_old(folder, step=4, identity=IDENTITY, tensors=tensors())
    save_checkpoint(folder, step=4, identity=IDENTITY, tensors=tensors())
    return folder / "step-000004"


def check_whole(folder, **named):
    """The checkpoint is read, and holds what was saved."""
    wanted = empty()
    assert load_checkpoint(folder, IDENTITY, wanted, **named).step == 4
    for name, row in tensors().items():
        assert torch.equal(wanted[name].tensor, row.tensor), name


def refusal(folder, **named):
    """Why the checkpoint is refused, on one line, by all that read it."""
    with pytest.raises(ConfigError) as caught:
        load_checkpoint(folder, IDENTITY, empty(), **named)
    said = str(caught.value)
    assert "\n" not in said
    return said


class Deed:
    """Whatever unpickles this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def torch_file(content):
    """A file as ``torch.save`` writes it."""
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def test_metadata_that_would_run_a_command_does_not(tmp_path):
    """Without the option the file is not opened; with it only names are known that version 1 wrote."""
    path, mark = saved(tmp_path / "old", old=True), tmp_path / "mark"
    (path / ".metadata").write_bytes(pickle.dumps(Deed(mark)))
    assert "has version 1, whose metadata can run code: --trust-old-checkpoint" in refusal(path)
    assert "is damaged: its metadata names 'posix.mkdir', which no checkpoint holds" in refusal(path, trust_old=True)
    assert not mark.exists()
    pickle.loads((path / ".metadata").read_bytes())
    assert mark.exists(), "the file was harmless"


def test_no_other_file_of_an_old_checkpoint_runs_a_command(tmp_path):
    path, mark = saved(tmp_path / "old", old=True), tmp_path / "mark"
    metadata = pickle.loads((path / ".metadata").read_bytes())
    bad = torch_file(Deed(mark))
    (path / "__0_0.distcp").write_bytes(bad)
    for place in metadata.storage_data.values():
        place.offset, place.length = 0, len(bad)
    one = {name: row for name, row in metadata.state_dict_metadata.items() if name == "one.bias"}
    metadata.state_dict_metadata = one
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(ConfigError, match="is damaged") as caught:
        load_checkpoint(path, IDENTITY, {"one.bias": empty()["one.bias"]}, trust_old=True)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_pickles_beside_a_checkpoint_are_not_read(tmp_path):
    path, mark = saved(tmp_path), tmp_path / "mark"
    for name in (".metadata", "__0.metadata", "__0_0.distcp"):
        (path / name).write_bytes(pickle.dumps(Deed(mark)))
    for trusted in (False, True):
        check_whole(path, trust_old=trusted)
    (path / "rank-0000.bin").write_bytes(pickle.dumps(Deed(mark)) * 9)
    assert "the checksum of a box in rank-0000.bin is another" in refusal(path)
    assert not mark.exists()


def test_nothing_that_reads_a_checkpoint_unpickles(tmp_path, monkeypatch):
    saved(tmp_path)

    def forbidden(*_, **__):
        raise AssertionError("a pickle is read")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, forbidden)
    check_whole(tmp_path)


def test_an_old_checkpoint_is_read_where_it_is_trusted(tmp_path):
    saved(tmp_path, old=True)
    for read in (latest_step, saved_sizes):
        with pytest.raises(ConfigError, match=r"has version 1, .*--trust-old-checkpoint"):
            read(tmp_path, IDENTITY)
    assert latest_step(tmp_path, IDENTITY, trust_old=True) == 4
    assert saved_sizes(tmp_path, IDENTITY, trust_old=True) == {name: row.whole for name, row in tensors().items()}
    check_whole(tmp_path, trust_old=True)
    wanted = CheckpointPart(Box((1, 1), (3, 2)), (3, 2), torch.zeros(2, 1))
    load_checkpoint(tmp_path, IDENTITY, {"one.weight": wanted}, trust_old=True)
    assert torch.equal(wanted.tensor, tensors()["one.weight"].tensor[1:, 1:])
    save_checkpoint(tmp_path, step=5, identity=IDENTITY, tensors=tensors())
    assert latest_step(tmp_path, IDENTITY) == 5


def test_the_option_reaches_the_checkpoint(tmp_path, monkeypatch):
    saved(tmp_path, old=True)
    monkeypatch.setattr("executor.checkpoints.resume.model_identity", lambda graph: "abc")
    graph = type("Graph", (), {"element_bytes": 4, "name": "net", "batch": 1})()
    for trusted, match in ((False, "--trust-old-checkpoint"), (True, "was saved with element_bytes None")):
        chosen = RunOptions(checkpoint=str(tmp_path), resume=True, trust_old_checkpoint=trusted)
        with pytest.raises(ConfigError, match=match):
            Checkpoints(chosen, graph).latest_step()
    with pytest.raises(ConfigError, match="trust_old_checkpoint must be left out without resume"):
        RunOptions(checkpoint=str(tmp_path), trust_old_checkpoint=True)


@settings(max_examples=60)
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


FILES = [
    *((False, name) for name in ("latest", "checkpoint.json", "rank-0000.bin")),
    *((True, name) for name in ("latest", "checkpoint.json", ".metadata", "__0_0.distcp")),
]


@pytest.mark.parametrize(("old", "name"), FILES, ids=lambda value: {False: "new", True: "old"}.get(value, value))
def test_a_file_changed_at_random_is_refused_or_gives_what_was_saved(tmp_path, old, name):
    path = saved(tmp_path, old=old)
    file = tmp_path / name if name == "latest" else path / name
    content, chooser, said = file.read_bytes(), random.Random(name), []
    for _ in range(MUTATIONS):
        file.write_bytes(mutated(content, chooser))
        try:
            check_whole(tmp_path, trust_old=old)
        except ConfigError as error:
            said.append(str(error))
        except AssertionError:
            # Version 1 had a checksum of its boxes only: other changes can say another step or place.
            if not (old and name in ("checkpoint.json", ".metadata")):
                raise
    assert len(said) > MUTATIONS // 3
    assert not any("\n" in text for text in said)
    file.write_bytes(content)
    check_whole(tmp_path, trust_old=old)


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
    row["boxes"][0]["size_bytes"] = 2**62


def shared(fields):
    """Many tensors in the bytes of one, which would take more memory than the file has bytes."""
    for i in range(100):
        fields["tensors"][f"more{i}"] = fields["tensors"]["one.weight"]


CHANGES = {
    "huge": (huge, "rank-0000.bin must have at least 4611686018427387920 bytes, got 140"),
    "shared": (shared, "rank-0000.bin must have at least 2440 bytes, got 140"),
    "more elements": (box_change(size_bytes=20), "has more elements than its 20 bytes hold"),
    "more bytes": (box_change(size_bytes=25), "must have 24 bytes, got 25"),
    "elsewhere": (box_change(file="../step-000004/rank-0000.bin"), "is no name of a file of boxes"),
    "absent": (box_change(file="rank-0001.bin"), "No such file"),
    "after the end": (box_change(offset=139), "must have at least 163 bytes"),
    "before the start": (box_change(offset=-1), "Expected `int` >= 0"),
    "no whole number": (box_change(offset=1.5), "Expected `int`, got `float`"),
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
    with (path / "rank-0000.bin").open("ab") as file:
        file.write(bytes(100))
    check_whole(path)
    signed(path, change)
    assert match in refusal(path)


def test_boxes_that_leave_a_gap_are_refused(tmp_path):
    """Two boxes that overlap hold as many elements as the tensor, and not all of them."""
    save_checkpoint(tmp_path, step=4, identity=IDENTITY, tensors={"x": part(torch.arange(4.0))})
    path = tmp_path / "step-000004"

    def change(fields):
        row = fields["tensors"]["x"]
        box = {**row["boxes"][0], "shape": [2], "size_bytes": 8}
        row["boxes"] = [{**box, "low": [0]}, {**box, "low": [1]}]

    signed(path, change)
    for box, said in ((Box((0,), (4,)), "two boxes of x overlap"), (Box((2,), (4,)), "its boxes hold 1 of 2 elements")):
        with pytest.raises(ConfigError, match=f"is damaged: {said}"):
            load_checkpoint(path, IDENTITY, {"x": CheckpointPart(box, (4,), torch.zeros(box.shape))})


@pytest.mark.parametrize("name", ["checkpoint.json", "rank-0000.bin"])
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


def test_a_compressed_archive_in_an_old_checkpoint_is_refused(tmp_path):
    """It could unfold to a thousand times the file's size."""
    path = saved(tmp_path, old=True)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    (path / "__0_0.distcp").write_bytes(packed.getvalue() * len(metadata.storage_data))
    for i, place in enumerate(metadata.storage_data.values()):
        place.offset, place.length = i * packed.tell(), packed.tell()
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    assert "the checksum of a box in __0_0.distcp is another" in refusal(path, trust_old=True)


def test_no_buffer_is_made_for_residuals_of_another_shape():
    """Their number of replicas would be taken from the file, whatever it says."""
    mine = CheckpointPart(Box((0, 0), (1, 3)), (2, 3), torch.zeros(1, 3))
    for sizes in ((10**15, 0), (), (0, 3), (10**15, 3, 0)):
        assert _of_replicas(mine, sizes) is mine
    assert _of_replicas(mine, (5, 3)).tensor.shape == (5, 3)


def test_a_folder_that_is_a_file_holds_no_checkpoint(tmp_path):
    Path(tmp_path / "file").write_text("")
    assert "holds no checkpoint" in refusal(tmp_path / "file")
