"""Wrong words over all commands: one line with the field, the value and the rule; exit code 2; no file."""

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

PLAN = "plan lenet5 --cluster titanx-4 --batch 8 --out p.json"
ORACLE = "oracle lenet5 --cluster abci-v100 --dataset imagenet --gpus 4"
STREAMS = "streams lenet5 --batch 8"
WHATIF = "whatif lenet5 --cluster titanx-4 --batch 8"
EIGHT_BIT = "whatif eight-bit --model alexnet --cluster titanx-4"
CASES = {
    "plan nonet --cluster titanx-4 --batch 8 --out p.json": "got 'nonet'",
    "plan lenet5 --cluster nowhere --batch 8 --out p.json": "cluster must be a known name or a file, got 'nowhere'",
    "plan lenet5 --cluster . --batch 8 --out p.json": "cluster must be a known name or a file, got the folder '.'",
    "plan lenet5 --cluster titanx-4:nodes=-1 --batch 8 --out p.json": "nodes must be a whole number in 1 .. 64",
    f"{PLAN} --strategy hybri": "did you mean 'hybrid'?",
    f"{PLAN} --strategy data=3": "batch must be a multiple of data=3 for equal parts of the samples, got 8",
    f"{PLAN} --strategy pipeline --stages 9": "stages must be 1 to the 7 layers of lenet5, got 9",
    f"{PLAN} --strategy pipeline --micro-batches 3": "micro_batches must be >= 1 and divide the batch of 8, got 3",
    f"{PLAN} --strategy data --sub-batches 3": "sub_batches must be >= 1 and divide the batch of 8, got 3",
    f"{PLAN} --strategy layerwise --sub-batches 3": "sub_batches must be 1 for layerwise, whose search",
    f"{PLAN} --strategy data --framework dpp": "framework must be one of ideal, ddp, horovod, ps, got 'dpp'; did you",
    f"{PLAN} --strategy data --framework ddp:bucket_mib=x": "must be 0 or a number from 1e-09 to 1e+06, got 'x'",
    f"{PLAN} --strategy data --framework ps --cluster lab-4": "framework must not be ps on cluster lab-4",
    f"{PLAN} --strategy data --interference": "interference must be off for cluster titanx-4",
    f"{PLAN} --strategy data --spread": "spread must be off for cluster titanx-4: none of its devices declares",
    "compare lenet5 --cluster titanx-4 --batch 8 --out c --spread": "spread must be off for cluster titanx-4",
    f"{PLAN} --refine -1": "'--refine': must be greater than or equal to 0, got '-1'",
    "simulate none.json": "plan file none.json cannot be read: No such file or directory",
    "replay none.json": "task graph none.json cannot be read: No such file or directory",
    "compare lenet5 --cluster titanx-4 --batch 8 --out c --strategies data,foo": "strategy must be one of",
    "reproduce deepa --numbers 5": "numbers must be left out for deepa, which draws none, got 5",
    f"{ORACLE} --gpus 64 --strategies filter": "devices must be at most the 16 of abci-v100, got 64",
    f"{ORACLE} --gpus 4..1": "gpus must rise from the first number to the last, got '4..1'",
    f"{ORACLE} --segments 5": "segments must divide the batch of the pipeline, 32, got 5",
    f"{ORACLE} --dataset 10 --batch 64": "batch must be at most the 10 samples of the data set, got 64",
    f"{ORACLE} --memory-reuse -1": "memory_reuse (gamma) must be a finite number >= 0, got -1.0",
    "oracle cosmoflow:size=100 --cluster abci-v100 --dataset cosmoflow": "size must be a power of two from 64 to 512",
    f"{STREAMS} --alpha 0": "alpha must be >= 1",
    f"{STREAMS} --device h100-80gb": "'h100-80gb' must have a section 'launch'",
    f"{STREAMS} --hold-mib -1": "hold_mib must be >= 0, got -1",
    f"{STREAMS} --hold-mib nan": "hold_mib must be >= 0, got nan",
    f"{STREAMS} --rounds 3": "rounds must be left out without --run, got '3'",
    f"{STREAMS} --max-streams 2": "streams of layers must be <= 2",
    f"{STREAMS} --cluster p100-4x4 --out x.html": "out must be left out with --cluster, got 'x.html'",
    f"{WHATIF} --strategies foo": "strategy must be one of",
    f"{WHATIF} --strategies data=2,filter=2,foo": "got 'foo'",
    "whatif lenet5 --cluster titanx-4 --batch 7 --strategies data": "data: batch must be a multiple of the 4 devices",
    f"{WHATIF} --set link.nolink.bandwidth_factor=2": "must name a class of links (slot, switch-port, nic-port, fdr)",
    f"{EIGHT_BIT} --devices 64": "devices must be at most the 4 of titanx-4",
    f"{EIGHT_BIT} --link-speeds x": "link_speeds must be numbers, separated by commas, got 'x'",
    "run none.json --optimizer adam --momentum 0.5": "momentum must be left out with --optimizer adam, got '0.5'",
    "sweep none.yaml --store n.sqlite": "none.yaml cannot be read: No such file or directory",
    "results none.sqlite": "store none.sqlite does not exist",
    "timeline none.json --out t.html": "plan file none.json cannot be read",
    "show none.json --out pages": "plan file none.json cannot be read",
    "index nowhere": "index needs a folder, got 'nowhere'",
    "lab up titanx-4": "the lab cannot make cluster 'titanx-4'",
}


@pytest.mark.parametrize("words", CASES)
def test_wrong_words_end_as_one_line_and_leave_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_app(app, words.split()) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert CASES[words] in printed.err
    assert list(tmp_path.iterdir()) == []
