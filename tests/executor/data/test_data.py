"""Data sets: the same mini-batch whatever the split, epoch by epoch, and what is refused."""

import re
import sys
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from executor.data.load import load_data
from executor.runtime.boxes import Box, whole_box
from groundwork.errors import ConfigError
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model

SAMPLE = (3, 6, 5)
BATCH = 4


def classifier(*, batch=BATCH, sample=SAMPLE, classes=7):
    net = ModelBuilder("classifier", batch=batch, image=sample)
    net.linear(classes)
    net.loss()
    return net.build()


def regression(*, batch=BATCH):
    net = ModelBuilder("regression", batch=batch, image=SAMPLE)
    net.linear(2)
    net.loss("mean_squared_error")
    return net.build()


def opened(spec, graph=None, *, seed=5, dtype=torch.float64):
    return load_data(str(spec), graph or classifier(), seed=seed, dtype=dtype, device="cpu")


def whole(data, step, batch=BATCH):
    return data.inputs(step, whole_box((batch, *SAMPLE)))


def arrays(samples, seed=1):
    generator = np.random.default_rng(seed)
    return generator.random((samples, *SAMPLE), np.float32), generator.integers(0, 7, samples)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder with the same ten samples in every form, images among them."""
    images = pytest.importorskip("PIL.Image")
    path = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(3)
    pixels = generator.integers(0, 256, (10, *SAMPLE), np.uint8)
    labels = np.repeat([0, 1, 2], [4, 3, 3])
    np.savez(path / "stored.npz", inputs=pixels, targets=labels)
    np.savez_compressed(path / "compressed.npz", inputs=pixels, targets=labels)
    np.save(path / "inputs.npy", pixels)
    np.save(path / "targets.npy", labels)
    np.savez(
        path / "swapped.npz", inputs=np.asfortranarray(pixels.astype(">f4") / 128 - 1), targets=labels.astype(">i2")
    )
    for i, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        place = path / "images" / "abc"[label] / ("deeper" if i == 9 else "")
        place.mkdir(parents=True, exist_ok=True)
        images.fromarray(image.transpose(1, 2, 0)).save(place / f"{i}.png")
    (path / "images" / "a" / "notes.txt").write_text("no image")
    (path / "images" / "a" / "gone.png").symlink_to("nowhere.png")
    return path


FORMS = ("stored.npz", "compressed.npz", "swapped.npz", "images", "inputs.npy,{0}/targets.npy")
FILES = [*(f"{{0}}/{form}" for form in FORMS), "generated", "generated:10"]


@pytest.mark.parametrize("spec", FILES)
@settings(max_examples=10)
@given(step=st.integers(0, 7), cuts=st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_parts_put_together_are_the_whole_mini_batch(folder, spec, step, cuts):
    """Every dimension cut anywhere; a part asked for again, later or first, is the same."""
    spec = spec.format(folder)
    data, sizes = opened(spec), (BATCH, *SAMPLE)
    joined = torch.full(sizes, torch.nan, dtype=torch.float64)
    bounds = [pairwise(sorted({0, min(cut, size), size})) for cut, size in zip(cuts, sizes, strict=True)]
    for intervals in product(*bounds):
        box = Box(*(tuple(ends) for ends in zip(*intervals, strict=True)))
        joined[box.within(whole_box(sizes))] = data.inputs(step, box)

    fresh = opened(spec)
    assert torch.equal(joined, whole(fresh, step))
    assert joined.min() >= -1
    assert joined.max() < 1
    cut = cuts[0] - 1
    targets = torch.cat([data.targets(step, 0, cut), data.targets(step, cut, BATCH)])
    assert targets.dtype == torch.int64
    assert torch.equal(targets, fresh.targets(step, 0, BATCH))


def test_every_form_of_one_data_set_gives_the_same_samples(folder):
    first, *others = [opened(spec.format(folder)) for spec in FILES[:5]]
    for step in range(5):
        for other in others:
            assert torch.equal(whole(other, step), whole(first, step))
            assert torch.equal(other.targets(step, 0, BATCH), first.targets(step, 0, BATCH))


def test_images_are_those_of_their_step_in_any_order(folder):
    """A resumed run begins at a later step than the one that was prepared, and may read one twice."""
    stored, images = opened(folder / "stored.npz"), opened(folder / "images")
    for step in (0, 1, 5, 2, 2, 3, 0):
        assert torch.equal(whole(images, step), whole(stored, step))


def test_inputs_keep_their_targets_and_bytes_become_numbers(folder):
    pixels, labels = np.load(folder / "inputs.npy"), np.load(folder / "targets.npy")
    data = opened(folder / "stored.npz")
    known = {(image / 128.0 - 1).tobytes(): label for image, label in zip(pixels, labels, strict=True)}
    for step in range(6):
        images = whole(data, step).numpy()
        assert [known[image.tobytes()] for image in images] == data.targets(step, 0, BATCH).tolist()


@pytest.mark.parametrize("samples", [4, 8, 11])
def test_an_epoch_is_a_permutation_without_its_incomplete_batch(tmp_path, samples):
    inputs, targets = arrays(samples)
    np.savez(tmp_path / "data.npz", inputs=inputs, targets=targets)
    numbers = {image.tobytes(): i for i, image in enumerate(inputs)}
    data = opened(tmp_path / "data.npz", dtype=torch.float32)
    steps = samples // BATCH
    epochs = [
        [numbers[image.tobytes()] for step in range(e * steps, (e + 1) * steps) for image in whole(data, step).numpy()]
        for e in range(4)
    ]
    assert all(len(set(epoch)) == steps * BATCH for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    other = opened(tmp_path / "data.npz", seed=6, dtype=torch.float32)
    assert any(not torch.equal(whole(other, step), whole(data, step)) for step in range(3))


def test_generated_samples_are_uniform_and_new_in_every_step():
    """Mean and variance of U[-1, 1), and equal counts of the classes, within five standard deviations."""
    batch = 2000
    data = opened("generated", classifier(batch=batch))
    inputs, labels = whole(data, 0, batch), data.targets(0, 0, batch)
    assert abs(inputs.mean().item()) < 5 * (1 / 3 / inputs.numel()) ** 0.5
    assert inputs.square().mean().item() == pytest.approx(1 / 3, abs=5 * (4 / 45 / inputs.numel()) ** 0.5)
    counts = torch.bincount(labels, minlength=7).double()
    assert len(counts) == 7
    assert (counts - batch / 7).abs().max().item() < 5 * (batch * 6 / 49) ** 0.5
    assert data.samples is None
    assert not torch.equal(whole(data, 1, batch), inputs)
    assert not torch.equal(whole(opened("generated", classifier(batch=batch), seed=6), 0, batch), inputs)


def test_generated_samples_repeat_in_every_epoch():
    data = opened("generated:8")
    epochs = [
        {
            (image.numpy().tobytes(), int(label))
            for s in (e, e + 1)
            for image, label in zip(whole(data, s), data.targets(s, 0, BATCH), strict=True)
        }
        for e in (0, 2, 4)
    ]
    assert len(epochs[0]) == data.samples == 8
    assert epochs[0] == epochs[1] == epochs[2]


def test_values_have_the_shape_of_what_the_loss_reads(tmp_path):
    inputs, values = arrays(BATCH)[0], np.random.default_rng(2).random((BATCH, 2))
    np.savez(tmp_path / "data.npz", inputs=inputs, targets=values)
    got = opened(tmp_path / "data.npz", regression()).targets(0, 0, BATCH)
    assert sorted(map(tuple, got.tolist())) == sorted(map(tuple, values.tolist()))
    generated = opened("generated", regression()).targets(0, 1, BATCH)
    assert generated.shape == (BATCH - 1, 2)
    assert generated.dtype == torch.float64


def test_images_are_scaled_to_cover_and_cut_to_the_centre(tmp_path):
    """A wide image: its margins of another colour, beyond the cut (50 to 100) and its filter's reach, are gone."""
    images = pytest.importorskip("PIL.Image")
    pixels = np.full((60, 150, 3), 255, np.uint8)
    pixels[:, 40:110] = (0, 64, 128)
    (tmp_path / "only").mkdir()
    images.fromarray(pixels).save(tmp_path / "only" / "one.png")
    inputs = whole(opened(tmp_path, classifier(batch=1)), 0, 1)
    assert torch.equal(inputs, torch.tensor([-1.0, -0.5, 0.0]).double().view(1, 3, 1, 1).expand(1, *SAMPLE))


def refused(match, spec, graph=None):
    with pytest.raises(ConfigError, match=match) as caught:
        opened(spec, graph)
    assert "\n" not in str(caught.value)


def test_arrays_that_do_not_fit_the_model_are_refused(tmp_path):
    path = tmp_path / "data.npz"
    inputs, targets = arrays(5)
    where = re.escape(f"data {path}")

    def save(**changed):
        np.savez(path, **{"inputs": inputs, "targets": targets, **changed})

    save()
    refused(
        f"{where}: samples must be 3 x 8 x 8 as classifier reads them, got 3 x 6 x 5",
        path,
        classifier(sample=(3, 8, 8)),
    )
    refused("at least the batch's 6 samples, got 5", path, classifier(batch=6))
    refused("floating-point of 2 a sample for regression, got int64 of single numbers", path, regression())
    save(targets=np.array([0, 1, 2, 7, 9]))
    refused(rf"{where}: targets\[3\] must be a class of classifier, 0 to 6, got 7", path)
    save(targets=np.array([0, -1, 2, 3, 4], np.int8))
    refused(r"targets\[1\] must be a class .*, got -1", path)
    save(targets=targets[:4])
    refused("targets must be as many as the 5 inputs, got 4", path)
    save(targets=targets.astype(np.float32))
    refused("targets must be one integer a sample", path)
    save(inputs=inputs.astype(np.int64))
    refused("inputs must be floating-point or uint8, got int64", path)
    np.savez(path, images=inputs, labels=targets)
    refused("must hold the arrays inputs and targets, got images, labels", path)
    np.savez(path, inputs=np.array([object()]), targets=targets)
    refused("cannot be read: it holds objects", path)


@pytest.mark.parametrize("name", ["stored.npz", "compressed.npz"])
def test_damaged_files_are_refused(folder, tmp_path, name):
    path = tmp_path / name
    refused("cannot be read: No such file", path)
    path.write_bytes((folder / name).read_bytes()[:200])
    refused("cannot be read: File is not a zip file", path)


def test_damaged_arrays_and_images_are_refused(folder, tmp_path):
    content = (folder / "inputs.npy").read_bytes()
    (tmp_path / "inputs.npy").write_bytes(content[:300])
    refused("inputs.npy cannot be read: mmap length", f"{tmp_path}/inputs.npy,{folder}/targets.npy")
    refused("missing.npy cannot be read: No such file", f"{folder}/inputs.npy,{tmp_path}/missing.npy")
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "1.png").write_bytes((folder / "images/a/1.png").read_bytes()[:60])
    data = opened(tmp_path / "images", classifier(batch=1))
    with pytest.raises(ConfigError, match=r"1\.png cannot be read as an image: "):
        whole(data, 0, 1)


def test_folders_of_images_must_fit_the_model(folder, tmp_path):
    refused("3 folders, classifier tells 2 classes apart", folder / "images", classifier(classes=2))
    refused(
        "images have 1 or 3 channels, height and width; classifier reads 2 x 6 x 5",
        folder / "images",
        classifier(sample=(2, 6, 5)),
    )
    refused("images have labels, regression learns 2 values", folder / "images", regression())
    refused("at least the batch's 4 samples, got 0", tmp_path)


@pytest.mark.parametrize("spec", ["generated:0", "generated:-3", "generated:1e3", "generated:", "generated:100000000"])
def test_numbers_of_generated_samples_are_checked(spec):
    refused("needs a number of samples", spec)


def test_other_specifications_and_models_without_a_loss_are_refused():
    refused("data must be generated, generated:N, FILE.npz.*, got 'imagenet'", "imagenet")
    net = ModelBuilder("open", batch=2, image=SAMPLE)
    net.linear(3)
    refused("the last layer of open must be a loss to be trained, got linear", "generated", net.build())


def test_without_pillow_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"orrery-training\[images\]"):
        load_data(str(tmp_path), load_model("lenet5", batch=1), seed=0, dtype=torch.float32, device="cpu")
