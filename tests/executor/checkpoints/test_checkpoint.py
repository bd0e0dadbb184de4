"""Checkpoints by real processes: read under another partition, whole after a kill, and what is refused.

Ranks are forked from a server that has imported torch, and meet in a file.
"""

import json
import multiprocessing
import os
import random
import shutil
import time
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings, strategies as st

from executor.checkpoints.checkpoint import CheckpointPart, load_checkpoint, model_identity, save_checkpoint
from executor.runtime.boxes import Box, whole_box
from groundwork.errors import ConfigError
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model

pytestmark = pytest.mark.timeout(120)

CONTEXT = multiprocessing.get_context("forkserver")
IDENTITY = {"model_identity": "abc", "dtype": "float64", "optimizer": "sgd"}


def whole(name, sizes, step=0):
    """The tensor of a name: other numbers for every name and step."""
    generator = torch.Generator().manual_seed(len(name) + 1000 * step)
    return torch.randn(sizes, generator=generator, dtype=torch.float64)


def held(name, sizes, box, *, step=0, filled=True):
    values = whole(name, sizes, step)[box.within(whole_box(sizes))].clone()
    return CheckpointPart(box, sizes, values if filled else torch.full_like(values, torch.nan))


def whole_part(name, sizes, *, step=0, filled=True):
    return held(name, sizes, whole_box(sizes), step=step, filled=filled)


def save(folder, *, step=1, keep=2, identity=IDENTITY, **tensors):
    save_checkpoint(folder, step=step, identity=identity, tensors=tensors, keep=keep)


def start_ranks(world, folder, work, *values):
    """Start ``work(rank, world, *values)`` in processes that share a gloo group; what fails prints its reason."""
    meeting = str(folder / f"meeting-{time.monotonic_ns()}")
    ranks = [CONTEXT.Process(target=_rank, args=(rank, world, meeting, work, values)) for rank in range(world)]
    for process in ranks:
        process.start()
    return ranks


def run_ranks(world, folder, work, *values):
    ranks = start_ranks(world, folder, work, *values)
    for process in ranks:
        process.join(60)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0] * world


def _rank(rank, world, meeting, work, values):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    work(rank, world, *values)
    dist.destroy_process_group()


def random_grid(chooser, sizes, most):
    """Boxes that cover a tensor of these sizes without overlap: each dimension cut anywhere, at most ``most`` boxes."""
    cuts = [[0, size] for size in sizes]
    for _ in range(8):
        d = chooser.randrange(len(sizes))
        cut = chooser.randrange(sizes[d] + 1)
        boxes = 1
        for e, row in enumerate(cuts):
            boxes *= len(row) - (cut in row or e != d)
        if cut not in cuts[d] and boxes <= most:
            cuts[d] = sorted([*cuts[d], cut])
    return [Box(*map(tuple, zip(*intervals, strict=True))) for intervals in product(*map(pairwise, cuts))]


def _repartition(rank, world, folder, seed):
    """Save under random grids and load under others, some tensors replicated, some absent on some ranks."""
    chooser = random.Random(seed)  # the same choices on every rank
    for step in range(6):
        shapes = {
            f"layer{i}.weight": tuple(chooser.randint(1, 7) for _ in range(chooser.randint(1, 5))) for i in range(3)
        }
        grids = {name: [random_grid(chooser, sizes, world) for _ in range(2)] for name, sizes in shapes.items()}
        turn = {name: chooser.randrange(world) for name in shapes}
        parts = [
            {
                name: held(
                    name, sizes, grids[name][k][(rank + turn[name]) % len(grids[name][k])], step=step, filled=not k
                )
                for name, sizes in shapes.items()
            }
            for k in range(2)
        ]
        save_checkpoint(Path(folder), step=step, identity=IDENTITY, tensors=parts[0])
        assert load_checkpoint(Path(folder), IDENTITY, parts[1]).step == step
        for name, part in parts[1].items():
            expected = whole(name, shapes[name], step)[part.box.within(whole_box(shapes[name]))]
            assert torch.equal(part.tensor, expected), (step, name, part.box)


@pytest.mark.parametrize("world", [2, 3])
def test_any_partition_is_read_under_any_other(tmp_path, world):
    """A rank that shares its box with another holds a replica; then grids of fewer boxes than ranks are covered too."""
    run_ranks(world, tmp_path, _repartition, str(tmp_path / "saved"), world)


def _save_halves(rank, world, folder):
    sizes = (world, 3)
    part = held("half", sizes, Box((rank, 0), (rank + 1, 3)))
    save_checkpoint(
        Path(folder), step=7, identity=IDENTITY, tensors={"half": part, "same": whole_part("same", (1000,))}
    )


def test_one_process_reads_what_several_wrote_and_replicas_are_written_once(tmp_path):
    run_ranks(2, tmp_path, _save_halves, str(tmp_path))
    wanted = {name: whole_part(name, sizes, filled=False) for name, sizes in (("half", (2, 3)), ("same", (1000,)))}
    assert load_checkpoint(tmp_path, IDENTITY, wanted).step == 7
    for name, part in wanted.items():
        assert torch.equal(part.tensor, whole(name, part.whole))
    written = sum(file.stat().st_size for file in (tmp_path / "step-000007").glob("*.safetensors"))
    assert 8000 < written < 16000


@settings(max_examples=12)
@given(data=st.data())
def test_any_box_of_one_whole_is_read(tmp_path_factory, data):
    sizes = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    ends = [sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in sizes]
    box = Box(*map(tuple, zip(*ends, strict=True)))
    folder = tmp_path_factory.mktemp("boxes")
    save(folder, x=whole_part("x", sizes), y=whole_part("unread", (3,)))
    part = held("x", sizes, box, filled=False)
    load_checkpoint(folder, IDENTITY, {"x": part})
    assert torch.equal(part.tensor, held("x", sizes, box).tensor)


def _save_for_ever(rank, world, folder, first):
    for step in range(first, first + 100_000):
        box = Box((rank * 40,), (rank * 40 + 40,))
        parts = {f"t{i}": held(f"t{i}", (40 * world,), box, step=step) for i in range(10)}
        save_checkpoint(Path(folder), step=step, identity=IDENTITY, tensors=parts)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_leaves_the_last_checkpoint_whole(tmp_path, victim):
    """SIGKILL at random moments of saves that follow each other; rank 0 changes the names, rank 1 writes its data."""
    chooser, folder = random.Random(victim), tmp_path / "saved"
    first = 0
    for _ in range(3):
        ranks = start_ranks(2, tmp_path, _save_for_ever, str(folder), first)
        until(lambda first=first: newest(folder) >= first)
        time.sleep(chooser.uniform(0, 0.2))
        ranks[victim].kill()
        for process in ranks:
            process.join(20)  # the peer ends by itself
            process.kill()
        assert [process.exitcode for process in ranks] == ([-9, 1] if victim == 0 else [1, -9])

        wanted = {f"t{i}": whole_part(f"t{i}", (80,), filled=False) for i in range(10)}
        step = load_checkpoint(folder, IDENTITY, wanted).step
        assert step >= first
        for name, part in wanted.items():
            assert torch.equal(part.tensor, whole(name, (80,), step))
        first = step + 1
    save(folder, step=first, x=whole_part("x", (3,)))
    assert sorted(os.listdir(folder)) == ["latest", *sorted((folder / "latest").read_text().split())]


def newest(folder):
    try:
        return load_checkpoint(folder, IDENTITY, {}).step
    except ConfigError:
        return -1


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen in 30 s"
        time.sleep(0.002)


@pytest.mark.parametrize(("owner", "call"), [(Path, "rename"), (Path, "replace"), (shutil, "rmtree"), (os, "fsync")])
def test_a_save_that_fails_at_any_call_leaves_a_whole_checkpoint(tmp_path, monkeypatch, owner, call):
    """Of the calls that change names or put them on disk the first fails, then the second, until a save succeeds."""
    real, last = getattr(owner, call), 0
    save(tmp_path, step=0, x=whole_part("x", (3,), step=0), keep=1)
    for step in range(1, 20):
        allowed = iter(range(step - 1))

        def failing(*values, allowed=allowed, **named):
            if next(allowed, None) is None:
                raise OSError("failed on purpose")
            return real(*values, **named)

        with monkeypatch.context() as patch:
            patch.setattr(owner, call, failing)
            failed = False
            try:
                save(tmp_path, step=step, x=whole_part("x", (3,), step=step), keep=1)
            except ConfigError as error:
                failed = "failed on purpose" in str(error)
        wanted = whole_part("x", (3,), filled=False)
        found = load_checkpoint(tmp_path, IDENTITY, {"x": wanted}).step
        assert found in (last, step) if failed else found == step
        assert torch.equal(wanted.tensor, whole("x", (3,), found))
        last = found
        if not failed:
            break
    assert not failed
    assert step > 1
    assert sorted(os.listdir(tmp_path)) == ["latest", f"step-{step:06d}"]


def test_the_newest_are_kept_whatever_their_steps(tmp_path):
    """A run started again comes by steps that are already there: what was written last counts."""
    for step in (10, 20, 30, 20, 5):
        save(tmp_path, step=step, x=whole_part("x", (3,), step=step))
    assert (tmp_path / "latest").read_text().split() == ["step-000005", "step-000020-2"]
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-000005", "step-000020-2"]
    for _ in range(3):
        save(tmp_path, step=5, x=whole_part("x", (3,), step=5))
    names = (tmp_path / "latest").read_text().split()
    assert len(set(names)) == 2
    assert all(name.startswith("step-000005") for name in names)
    save(tmp_path, step=6, x=whole_part("x", (3,)), keep=1)
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-000006"]


def test_other_files_in_the_folder_stay(tmp_path):
    (tmp_path / "step-notes").mkdir()
    (tmp_path / "plan.json").write_text("{}")
    save(tmp_path, x=whole_part("x", (3,)))
    save(tmp_path, x=whole_part("x", (3,)), keep=1)
    assert {"step-notes", "plan.json"} < set(os.listdir(tmp_path))


def refused(match, folder, identity=IDENTITY, **wanted):
    with pytest.raises(ConfigError, match=match) as caught:
        load_checkpoint(folder, identity, wanted or {"x": whole_part("x", (3,), filled=False)})
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_another_model_type_or_optimizer_is_refused(tmp_path):
    save(tmp_path, identity={**IDENTITY, "seed": 4}, x=whole_part("x", (3,)))
    assert load_checkpoint(tmp_path, IDENTITY, {}).identity["seed"] == 4
    for field, value in (("model_identity", "xyz"), ("dtype", "float32"), ("optimizer", "adam")):
        refused(f"was saved with {field} {IDENTITY[field]}, this run has {value}", tmp_path, {**IDENTITY, field: value})
    refused("must hold y, which this run needs", tmp_path, y=whole_part("y", (3,)))
    refused(r"x has sizes \(3,\), this run has \(4,\)", tmp_path, x=whole_part("x", (4,)))
    refused("holds no checkpoint", tmp_path / "elsewhere")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    """One bit in the middle of the numbers."""
    content = bytearray(path.read_bytes())
    content[bytes(content).index(whole("x", (3,), 2).numpy().tobytes()) + 5] ^= 1
    path.write_bytes(content)


DAMAGES = [(name, damage) for name in ("rank-0000.safetensors", "checkpoint.json") for damage in (cut, Path.unlink)]


@pytest.mark.parametrize(("name", "damage"), [*DAMAGES, ("rank-0000.safetensors", flip)])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_named(tmp_path, name, damage):
    save(tmp_path, step=1, x=whole_part("x", (3,), step=1))
    save(tmp_path, step=2, x=whole_part("x", (3,), step=2))
    damage(tmp_path / "step-000002" / name)
    refused("step-000002 is damaged: .*; the one before is .*step-000001$", tmp_path)
    part = whole_part("x", (3,), filled=False)
    assert load_checkpoint(tmp_path / "step-000001", IDENTITY, {"x": part}).step == 1
    assert torch.equal(part.tensor, whole("x", (3,), 1))


@pytest.mark.parametrize(("version", "said"), [(1, "an earlier"), (2, "an earlier"), (4, "a later")])
def test_other_versions_are_refused(tmp_path, version, said):
    save(tmp_path, x=whole_part("x", (3,)))
    about = tmp_path / "step-000001" / "checkpoint.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "version": version}))
    refused(f"must have version 3, got {version}: {said} version of Orrery wrote it", tmp_path)


def test_boxes_that_do_not_cover_a_tensor_are_refused_and_nothing_counts(tmp_path):
    save(tmp_path, step=1, x=whole_part("x", (3,)))
    with pytest.raises(ConfigError, match="cannot be written: the boxes of x hold 2 of its 3 elements"):
        save(tmp_path, step=2, x=held("x", (3,), Box((0,), (2,))))
    assert load_checkpoint(tmp_path, IDENTITY, {}).step == 1


def test_a_folder_that_cannot_be_written_and_a_keep_of_none_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written: .*(File exists|Not a directory)"):
        save(tmp_path / "file", x=whole_part("x", (3,)))
    with pytest.raises(ConfigError, match="checkpoints to keep must be >= 1, got 0"):
        save(tmp_path, keep=0, x=whole_part("x", (3,)))


def test_the_identity_of_a_model_leaves_out_its_batch_only():
    def net(*, batch=4, channels=8):
        net = ModelBuilder("net", batch=batch, image=(3, 8, 8))
        net.conv(channels, 3)
        net.linear(5)
        net.loss()
        return model_identity(net.build())

    assert net() == net(batch=32)
    assert net() != net(channels=9)
    assert model_identity(load_model("vgg11", batch=8)) != model_identity(load_model("vgg13", batch=8))
