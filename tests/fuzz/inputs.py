"""Inputs from the wild: valid files and command lines, and ways to spoil them."""

import io
import json
import os
import random
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import yaml
from decision_inputs import DECISION_FILES, DECISIONS, put_scenario_file
from machine_inputs import MACHINE_COMMANDS, MACHINE_FILES, put_machine_files
from model_inputs import MODEL_COMMANDS, MODEL_FILES, put_model_files, spoiled_onnx
from trace_inputs import TRACE_COMMANDS, TRACE_FILES, put_traces

COMMANDS = DECISIONS | {
    "plan": "plan lenet5 --cluster titanx-4 --batch 8 --strategy data --out new.json",
    "search": "plan lenet5 --cluster titanx-4 --batch 8 --gradient-sync auto --out new.json --json",
    "pipeline": "plan lenet5 --cluster titanx-4 --batch 8 --strategy pipeline --stages 2 --micro-batches 2 "
    "--schedule 1f1b --out new.json",
    "compressed": "plan lenet5 --cluster titanx-4 --batch 8 --strategy data --compress-gradients linear:block=64 "
    "--compress-where pays --recompute none --optimizer adam --out new.json",
    "micro": "plan alexnet --cluster titanx-4 --batch 16 --strategy owt --sub-batches 2 --sub-batch-from fc6 "
    "--out new.json",
    "cluster": "plan lenet5 --cluster cluster.yaml --batch 8 --strategy data --out new.json",
    "cluster whatif": "whatif lenet5 --cluster cluster.yaml --batch 8 --strategies data "
    "--set link.slot.bandwidth_factor=2",
    "profile": "plan lenet5 --cluster uses-profile.yaml --batch 8 --strategy data --out new.json",
    "strategy": "plan lenet5 --cluster titanx-4 --batch 8 --strategy strategy.yaml --out new.json",
    "strategy json": "plan lenet5 --cluster titanx-4 --batch 8 --strategy strategy.json --out new.json",
    "simulate": "simulate plan.json --iterations 2 --json --trace new.json",
    "graph": "simulate plan.json --graph new.json --expand-collectives --engine auto",
    "analyse": "analyse plan.json --top 3",
    "micro plan": "simulate micro.json",
    "replay": "replay graph.json --out new.csv --json",
    "replay simpy": "replay graph.json --engine simpy",
    "replay parquet": "replay graph.parquet --out new.parquet",
    "timeline": "timeline plan.json --measured measured.npz --out new.html",
    "sweep": "sweep sweep.yaml --store new.sqlite --processes 1",
    "results": "results store.sqlite --where batch<9 --sort -iteration_s --columns model,batch,iteration_s --limit 3",
    "results json": "results store.sqlite --json --out new.csv",
    "copy": "results store.sqlite --copy new.sqlite",
    "oracle": "oracle lenet5 --cluster titanx-4 --dataset 1024 --gpus 1..4 --strategies data,filter --json",
    "streams": "streams lenet5 --batch 8 --device p100 --schedules fx,ooo --alpha 2 --beta 2 --json",
    "whatif": "whatif lenet5 --cluster titanx-4:nodes=2 --batch 16 --strategies data --set link.fdr.latency_factor=2",
    "eight-bit": "whatif eight-bit --model alexnet --cluster titanx-4 --batch-per-device 64 --devices 2 "
    "--link-speeds 1,2",
    "compare": "compare lenet5 --cluster titanx-4 --batch 8 --strategies data --out new",
    "show": "show plan.json --out new",
    "probe": "probe lenet5 --batch 4 --processes 2 --device cuda --out new",
    "validate": "validate lenet5 --batch 4 --processes 2 --device cuda --cluster cluster.yaml",
    "lab": "lab up titanx-4",
    "models": "models --json",
    "clusters": "clusters titanx-4:nodes=2",
    "index": "index pages --out new.html",
    "run": "run plan.json --steps 1 --device cuda --threads 1 --learning-rate 0.1",
    "accuracy": "accuracy --types one-bit --seeds 2 --epochs 1 --data folder",
    "calibrate": "calibrate products.csv --device p100 --out new.yaml --json",
    "calibrate convolutions": "calibrate convolutions.csv --device titanx --gpu TitanX --out new.yaml",
    "library": "plan lenet5 --cluster library.yaml --batch 8 --strategy data --gradient-sync library --out new.json",
    "framework": "plan lenet5 --cluster titanx-4 --batch 8 --strategy data --framework horovod:cycle_ms=5,fusion_mib=0 "
    "--out new.json",
    **MACHINE_COMMANDS,
    **MODEL_COMMANDS,
    **TRACE_COMMANDS,
}
"""Valid command lines; ``new`` is written, everything else is read."""
_FILES = (
    DECISION_FILES
    | MODEL_FILES
    | {
        "cluster": "cluster.yaml",
        "cluster whatif": "cluster.yaml",
        "profile": "profile.yaml",
        "strategy": "strategy.yaml",
        "strategy json": "strategy.json",
        "simulate": "plan.json",
        "graph": "plan.json",
        "analyse": "plan.json",
        "micro plan": "micro.json",
        "replay": "graph.json",
        "replay simpy": "graph.json",
        "replay parquet": "graph.parquet",
        "timeline": "measured.npz",
        "sweep": "sweep.yaml",
        "results": "store.sqlite",
        "results json": "store.sqlite",
        "copy": "store.sqlite",
        "index": "pages/page.html",
        "run": "plan.json",
        "show": "plan.json",
        "validate": "cluster.yaml",
        "calibrate": "products.csv",
        "calibrate convolutions": "convolutions.csv",
        "library": "library.yaml",
        **MACHINE_FILES,
        **TRACE_FILES,
    }
)
"""The file of each command that is spoiled."""
_NUMBERS = [
    "0",
    "-1",
    "1e-320",
    "1e308",
    "-1e308",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "1000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "9" * 5_000,
    "0x10",
    "1_000",
    "1.5",
    "3",
    "1e-9",
    "123456789",
    "True",
    "08",
]
_TEXTS = [
    "",
    " ",
    "a" * 100_000,
    "\x1b[2J\x1b[31m",
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    "/dev/zero",
    "-",
    "data=1000000",
    "é" * 300,
    "\u202egpj.exe",
    "%s%s%n",
    "{0.__class__}",
    "$(id)",
    "null",
    "lenet5:depth=99999999",
    "titanx-4:nodes=99999999",
    "a\nb",
    "\udcff",
    "--",
    "--help",
    ",,,",
    ":",
    "=",
    "sample",
    "x" * 255,
    "1..1000000000000",
    "link.*.bandwidth_factor",
    "9**9**9 > devices",
    "'a'*1000000000 == model",
    "not " * 300 + "batch",
    "(" * 500,
    "batch in [[[[[[1]]]]]]",
    "@frame",
    "1e308*1e308>batch",
]
_PLACES = [
    "/dev/zero",
    "/dev/null",
    "pipe",
    "loop",
    "folder",
    "none",
    "/",
    "plan.json",
    "measured.npz",
    "/proc/self/mem",
    ".",
]
_FIELD_WORDS = [
    "version",
    "name",
    "nodes",
    "count",
    "degrees",
    "devices",
    "latency_us",
    "uses",
    "after",
    "__class__",
    "configurations",
]


def make_samples(folder: Path) -> None:
    """Write a valid file of every kind that commands read."""
    from hwprofiles.catalogue.cluster_catalogue import cluster_path
    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    def run(words: str) -> None:
        assert run_app(app, words.split()) == 0, words

    at = Path.cwd()
    os.chdir(folder)
    try:
        run("plan lenet5 --cluster titanx-4 --batch 8 --strategy data --out plan.json")
        run("plan lenet5 --cluster titanx-4 --batch 8 --strategy pipeline --micro-batches 2 --out micro.json")
        run("simulate plan.json --graph graph.json")
        run("simulate plan.json --graph graph.parquet")
        text = cluster_path("titanx-4").read_text()
        Path("cluster.yaml").write_text(text)
        Path("uses-profile.yaml").write_text(text.replace("titanx-nervana", "profile.yaml"))
        from hwprofiles.compute.profile_file import FOLDER

        Path("profile.yaml").write_text((FOLDER / "titanx.yaml").read_text())
        Path("library.yaml").write_text(cluster_path("p100-4x4").read_text())
        measured = FOLDER.parent / "measured"
        for name in ("products", "convolutions"):
            table = measured / f"deepbench_{'gemm' if name == 'products' else 'conv'}.csv"
            head, *lines = table.read_text().splitlines()
            chosen = [line for line in lines if line.startswith(("P100,", "TitanX,"))][::8]
            Path(f"{name}.csv").write_text("\n".join([head, *chosen]) + "\n")
        rows = json.loads(Path("plan.json").read_text())["configurations"]
        Path("strategy.json").write_text(json.dumps({"configurations": rows}))
        Path("strategy.yaml").write_text(yaml.safe_dump({"configurations": rows}))
        Path("sweep.yaml").write_text(
            "version: 1\nname: small\nmodels: [lenet5]\nclusters: {cluster: titanx-4, with: {nodes: [1, 2]}}\n"
            "batch: [8, 16]\nstrategies: [data]\nconstraints: ['devices <= 8']\ncompression: [none]\n"
        )
        run("sweep sweep.yaml --store store.sqlite --processes 1")
        program_tasks = len(json.loads(Path("graph.json").read_text())["tasks"])
        rng = np.random.default_rng(0)
        start = np.sort(rng.random((3, program_tasks)), axis=1) + 2.0 * np.arange(3)[:, None]
        np.savez_compressed(
            "measured.npz",
            start_s=start,
            end_s=start + 0.1,
            sent_bytes=start,
            loss=np.ones(3),
            paused=np.zeros(3, bool),
            peak_memory_bytes=np.ones(4),
            notes=np.array(["a note"]),
            allocated_bytes=np.empty((0, 0)),
        )
        put_machine_files(Path())
        put_model_files(Path())
        put_traces(Path())
        put_scenario_file()
        Path("pages").mkdir()
        run("timeline plan.json --out pages/page.html")
        Path("pages/plan.json").write_text(Path("plan.json").read_text())
        os.mkfifo("pipe")
        Path("loop").symlink_to("loop")
        Path("folder").mkdir()
    finally:
        os.chdir(at)


def spoiled_words(name: str, rng: random.Random) -> list[str]:
    """Return a command line with one to three of its words changed, repeated, left out or put in."""
    words = COMMANDS[name].split()
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(1, len(words)) if len(words) > 1 else 0
        words = words or [""]
        change = rng.randrange(8)
        if change < 4:
            words[at] = _wild_word(words[at], rng)
        elif change == 4:
            words.insert(at, rng.choice([*_TEXTS, *_NUMBERS]))
        elif change == 5:
            del words[at]
        elif change == 6:
            words[at:at] = words[max(0, at - 2) : at]
        else:
            words[at] = rng.choice(_PLACES)
    return [os.fsencode(word.replace("\0", "")).decode("utf-8", "surrogateescape") for word in words]


def file_as_output(name: str) -> list[str]:
    """Return a command line whose output is to replace the file that it reads; the plain one where it has not both."""
    words, file = COMMANDS[name].split(), _FILES.get(name, "")
    return [file if file and word.startswith("new.") else word for word in words]


def _wild_word(word: str, rng: random.Random) -> str:
    """Return another word in place of one: another number in it, or another text."""
    digits = [i for i, char in enumerate(word) if char.isdigit()]
    if digits and rng.random() < 0.6:
        at = rng.choice(digits)
        return word[:at] + rng.choice(_NUMBERS) + word[at + 1 :]
    if rng.random() < 0.3:
        return word + rng.choice([",", "=", ":", "..", "[", "\x1b"]) + rng.choice([*_NUMBERS, *_TEXTS])
    return rng.choice([*_NUMBERS, *_TEXTS])


def spoiled_file(name: str, samples: Path, folder: Path, rng: random.Random) -> str:
    """Put a spoiled copy of a command's file into a folder; returns its name, empty where the command reads none."""
    file = _FILES.get(name, "")
    if not file:
        return ""
    target, content = folder / file, (samples / file).read_bytes()
    target.unlink()
    kind = rng.randrange(10)
    if kind == 0:
        _put_special(target, rng)
    elif kind == 1:
        target.write_bytes(_wild_document(target.suffix, rng))
    elif target.suffix == ".sqlite" and kind < 7:
        target.write_bytes(content)
        _spoil_store(target, rng)
    elif target.suffix in (".json", ".yaml") and kind < 7:
        target.write_bytes(_spoiled_tree(content, target.suffix, rng))
    elif target.suffix == ".onnx" and kind < 7:
        target.write_bytes(spoiled_onnx(content, rng))
    elif target.suffix == ".pt2" and kind < 7:
        target.write_bytes(_spoiled_archive(content, rng))
    elif target.suffix == ".npz" and kind < 7:
        target.write_bytes(_spoiled_arrays(content, rng))
    elif target.suffix == ".csv" and kind < 7:
        target.write_bytes(_spoiled_cells(content, rng))
    else:
        target.write_bytes(_spoiled_bytes(content, rng))
    return file


def _put_special(target: Path, rng: random.Random) -> None:
    """Put something there that is no regular file, or no file at all."""
    kind = rng.randrange(6)
    if kind == 0:
        os.mkfifo(target)
    elif kind == 1:
        target.mkdir()
    elif kind == 2:
        target.symlink_to(target.name)
    elif kind == 3:
        target.symlink_to(rng.choice(["/dev/zero", "/dev/full", "/dev/random"]))
    elif kind == 4:
        with target.open("wb") as file:
            file.truncate(2**40)


def _wild_document(suffix: str, rng: random.Random) -> bytes:
    """Return a document that is hostile as a whole."""
    bomb = "\n".join(["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)])
    depth = rng.choice([100, 1_000, 20_000, 1_000_000])
    return rng.choice(
        [
            b"",
            b"\xff\xfe\x00\x00",
            b"[" * depth,
            b'{"a":' * min(depth, 20_000),
            b"[" * depth + b"]" * depth,
            bomb.encode(),
            b"a: &a [*a]",
            b"- " * depth,
            b"null",
            b"3",
            b'"text"',
            b"[]",
            b"{}",
            b"9" * 5_000,
            b"\x80\x04.",
            b"PK\x03\x04" + rng.randbytes(100),
            b"SQLite format 3\0" + rng.randbytes(4_000),
            b"<html><!DOCTYPE <![ <meta name=",
            b"PAR1" + rng.randbytes(50) + b"PAR1",
            b"!!python/object/apply:os.system ['id']",
            rng.randbytes(1_000),
        ]
    )


def _spoiled_cells(content: bytes, rng: random.Random) -> bytes:
    """Return a table with other cells, or without a row, a column or a name of one."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(rng.choice([1, 1, 2, 8])):
        row, column = rng.randrange(len(rows)) * rng.randrange(2), rng.randrange(len(rows[0]))
        change = rng.randrange(5)
        if change < 3:
            rows[row][column : column + 1] = [rng.choice([*_NUMBERS, *_TEXTS])]
        elif change == 3 and len(rows) > 1:
            del rows[rng.randrange(1, len(rows)) :]
        elif len(rows[0]) > 1:
            rows = [[*cells[:column], *cells[column + 1 :]] for cells in rows]
    return "\n".join(",".join(cells) for cells in rows).encode("utf-8", "surrogateescape")


def _spoiled_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return some bytes changed, left out, repeated, or everything cut off."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data) + 1)
        change = rng.randrange(5)
        if change == 0:
            data[at : at + 1] = rng.randbytes(1)
        elif change == 1:
            del data[at : at + rng.choice([1, 10, 1_000])]
        elif change == 2:
            data[at:at] = data[at : at + rng.choice([1, 100, 10_000])]
        elif change == 3:
            data[at:at] = rng.choice([*_NUMBERS, *_TEXTS]).encode("utf-8", "surrogateescape")
        else:
            del data[at:]
    return bytes(data)


def _spoiled_tree(content: bytes, suffix: str, rng: random.Random) -> bytes:
    """Return a document with one to three of its values changed, left out, repeated or put elsewhere."""
    tree = json.loads(content) if suffix == ".json" else yaml.safe_load(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = []
        level = [tree]
        while level:
            level = [
                part
                for each in level
                for part in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            ]
            places += [each for each in level if isinstance(each, dict | list) and each]
        place = rng.choice([tree, *places])
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        change = rng.randrange(6)
        if change == 0:
            del place[key]
            if not place:
                break
        elif change == 1 and isinstance(place, dict):
            place[rng.choice(_FIELD_WORDS)] = place[key]
        elif change == 2 and isinstance(place, list):
            place += place[:1] * rng.choice([1, 5, 1_000])
        else:
            place[key] = _wild_value(place[key], rng)
    if suffix == ".json":
        return json.dumps(tree, allow_nan=True).encode("utf-8", "surrogatepass")
    return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")


def _spoiled_archive(content: bytes, rng: random.Random) -> bytes:
    """Return an exported program with a spoiled graph, sometimes also missing, there twice or compressed."""
    target = io.BytesIO()
    change = rng.randrange(20)
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(target, "w") as archive:
        for info in source.infolist():
            part = source.read(info)
            if info.filename.endswith("models/model.json"):
                part = _spoiled_tree(part, ".json", rng)
                for name in {0: [], 1: [info.filename, f"b/{info.filename}"]}.get(change, [info.filename]):
                    archive.writestr(name, part, rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_LZMA]))
            else:
                archive.writestr(info.filename, part)
    return target.getvalue()


def _wild_value(value: object, rng: random.Random) -> object:
    """Return a value to put in place of another, mostly of the same kind."""
    numbers = [
        0,
        -1,
        1,
        2,
        3,
        7,
        10**6,
        10**12,
        2**63 - 1,
        2**63,
        -(2**63),
        10**40,
        1e-320,
        1e308,
        -1e308,
        1e-9,
        0.5,
        float("nan"),
        float("inf"),
    ]
    if isinstance(value, int | float) and rng.random() < 0.7:
        return rng.choice([*numbers, value * 1000, -value, value + 1])
    if isinstance(value, str) and rng.random() < 0.7:
        return rng.choice([*_TEXTS, value + "x", value.upper(), value * 1000])
    return rng.choice([*numbers, *_TEXTS, None, True, [], {}, [[]], {"a": 1}, [value] * 3, {"x": value}])


def _spoiled_arrays(content: bytes, rng: random.Random) -> bytes:
    """Return arrays of which one has another kind, shape or values."""
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(list(arrays))
    array = arrays[name]
    others = [
        array[:0],
        array.reshape(-1),
        array[..., None],
        np.full(array.shape, "x"),
        np.full(array.shape, b"x"),
        np.array(3.0),
        array.astype(bool),
        np.array([]),
        np.zeros((1, 1)),
        np.full((3, 10**6), np.nan),
    ]
    if array.dtype.kind == "f":
        others += [
            array * np.nan,
            array + np.inf,
            -array,
            np.full(array.shape, 1e308),
            array + 1e300j,
            np.where(array > 0.5, np.nan, array),
            array.astype(np.float16),
        ]
    arrays[name] = others[rng.randrange(len(others))]
    if rng.random() < 0.1:
        del arrays[name]
    if rng.random() < 0.1:
        arrays[rng.choice(_FIELD_WORDS)] = np.zeros(3)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _spoil_store(path: Path, rng: random.Random) -> None:
    """Change a value in a store, or its description."""
    database = sqlite3.connect(path)
    column = rng.choice(["point", "result", "digest", "status", "stored_at"])
    change = rng.randrange(4)
    if change == 0:
        database.execute(f"pragma user_version = {rng.choice([0, 2, 99])}")
    elif change == 1:
        database.execute(f"alter table results rename column {column} to other")
    else:
        old = database.execute(f"select {column} from results limit 1").fetchone()[0]
        new = rng.choice(
            [
                _spoiled_bytes(str(old).encode(), rng),
                "",
                "[" * 100_000,
                "9" * 5_000,
                "null",
                '{"status": "ok", "values": {"a": 1e999}}',
            ]
        )
        text = new.decode("utf-8", "replace") if isinstance(new, bytes) and rng.random() < 0.7 else new
        database.execute(
            f"update or ignore results set {column} = ? where digest = (select digest from results limit 1)", (text,)
        )
    database.commit()
    database.close()
