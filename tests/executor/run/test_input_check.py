"""Refusal before any rank starts: of what the ranks would refuse, and of nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from executor.data.load import load_data
from executor.run import input_check, plan_run
from executor.run.input_check import check_inputs
from executor.run.plan_run import run_plan
from executor.runtime.run_options import RunOptions
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import save_plan

GRAPH = load_model("lenet5", batch=4)
INPUTS, LABELS = np.zeros((6, 1, 28, 28), np.float32), np.arange(6)


def arrays(inputs=INPUTS, targets=LABELS, save=np.savez):
    """A writer of an archive with these two arrays."""

    def write(folder):
        save(folder / "data.npz", inputs=inputs, targets=targets)
        return str(folder / "data.npz")

    return write


def pair(folder):
    np.save(folder / "x.npy", INPUTS)
    np.save(folder / "y.npy", LABELS)
    return f"{folder}/x.npy,{folder}/y.npy"


def one_array(folder):
    np.savez(folder / "data.npz", inputs=INPUTS)
    return str(folder / "data.npz")


def damaged(folder):
    path = arrays()(folder)
    (folder / "data.npz").write_bytes((folder / "data.npz").read_bytes()[:500])
    return path


def images(classes, each):
    """A writer of a folder with so many folders of so many images."""

    def write(folder):
        for label in range(classes):
            (folder / "images" / str(label)).mkdir(parents=True)
            for number in range(each):
                (folder / "images" / str(label) / f"{number}.png").touch()
        return str(folder / "images")

    return write


RIGHT = {
    "generated": lambda folder: "generated",
    "some": lambda folder: "generated:4",
    "archive": arrays(),
    "compressed": arrays(save=np.savez_compressed),
    "bytes": arrays(INPUTS.astype(np.uint8), LABELS.astype(np.uint8)),
    "doubles": arrays(INPUTS.astype(">f8")),
    "pair": pair,
}
WRONG = {
    "missing": (lambda folder: str(folder / "none.npz"), "cannot be opened|No such file"),
    "missing pair": (lambda folder: f"{folder}/x.npy,{folder}/y.npy", "cannot be opened|No such file"),
    "unknown": (lambda folder: "somewhere", "data must be generated"),
    "few": (lambda folder: "generated:3", "at least the batch's 4 samples, got 3"),
    "none": (lambda folder: "generated:0", "needs a number of samples"),
    "one array": (one_array, "must hold the arrays inputs and targets"),
    "damaged": (damaged, "cannot be read"),
    "wide": (arrays(np.zeros((6, 1, 28, 29))), "samples must be 1 x 28 x 28"),
    "integers": (arrays(INPUTS.astype(np.int32)), "inputs must be floating-point or uint8"),
    "words": (arrays(INPUTS.astype(np.uint16)), "inputs must be floating-point or uint8"),
    "fewer": (arrays(INPUTS[:3], LABELS[:3]), "at least the batch's 4 samples, got 3"),
    "uneven": (arrays(targets=LABELS[:5]), "targets must be as many as the 6 inputs, got 5"),
    "class": (arrays(targets=LABELS + 5), r"targets\[5\] must be a class"),
    "values": (arrays(targets=LABELS / 2), "targets must be one integer a sample"),
    "no images": (images(2, 0), "at least the batch's 4 samples, got 0|need Pillow"),
    "classes": (images(11, 1), "11 folders, lenet5 tells 10 classes apart|need Pillow"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_data_that_fit_pass(tmp_path, name):
    """Ranks can load them."""
    data = RIGHT[name](tmp_path)
    load_data(data, GRAPH, seed=0, dtype=torch.float32, device="cpu")

    check_inputs(RunOptions(data=data, device="cpu"), GRAPH, 1)


@pytest.mark.parametrize("name", WRONG)
def test_data_that_do_not_fit_are_refused_in_the_words_of_the_rules(tmp_path, name):
    """Unless nothing is computed, and so nothing read."""
    make, words = WRONG[name]
    data = make(tmp_path)

    with pytest.raises(ConfigError, match=words):
        check_inputs(RunOptions(data=data, device="cpu"), GRAPH, 1)
    check_inputs(RunOptions(data=data, device="cpu", stand_in=True), GRAPH, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_gpu_that_is_missing(monkeypatch):
    """Whether or not torch could use one; none is asked for where there is one for each rank."""
    monkeypatch.setattr(input_check.importlib.metadata, "version", lambda _: "2.0.0")
    with pytest.raises(ConfigError, match="device cuda must have a GPU for each local rank: rank 0, 0 GPUs here"):
        check_inputs(RunOptions(device="cuda"), GRAPH, 2)
    monkeypatch.setattr(input_check, "_gpus", lambda: 2)
    check_inputs(RunOptions(device="cuda"), GRAPH, 2)


def test_a_run_is_refused_before_its_ranks_start(tmp_path, monkeypatch):
    plan = make_plan(GRAPH, load_cluster("titanx-4").take(1), strategy="data")
    save_plan(replace(plan, request=replace(plan.request, cluster="titanx-4")), tmp_path / "plan.json")
    monkeypatch.setattr(plan_run, "launch", None)

    with pytest.raises(ConfigError, match="somewhere"):
        run_plan(RunOptions(plan=str(tmp_path / "plan.json"), data="somewhere", device="cpu"))
