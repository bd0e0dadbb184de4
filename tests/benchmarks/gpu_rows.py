"""Times of kernels and of whole training steps on one GPU, by PyTorch alone: rows to fit profiles to and judge them by.

Nothing here is planned or run by this project.  Kernels are repeated in one CUDA graph, on the same random operands, so
that the host's launches are left out; steps of networks are timed with their launches, as users see them.  Each part
stops when its share of the time is spent; shapes are taken in a random order, so that what was measured is a sample.

    python tests/benchmarks/gpu_rows.py FOLDER [products elementwise convolutions networks language_models sustained]

Writes one CSV file of each part into FOLDER, and prints the software and what a launch costs.  Networks need
torchvision, clocks and power need nvidia-ml-py.
"""

import csv
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path

import torch
from torch import nn

from executor.families.published import configured_model

ROOT = Path(__file__).resolve().parents[2]
DEVICE = torch.device("cuda")
TYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
WHERE = {"gpu": torch.cuda.get_device_name().removeprefix("NVIDIA ") if torch.cuda.is_available() else "none"}
SHARES_S = {
    "products": 40.0,
    "elementwise": 10.0,
    "convolutions": 150.0,
    "networks": 105.0,
    "language_models": 110.0,
    "sustained": 50.0,
}


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Let products and convolutions of float32 round to TF32 where the name says so."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"
    yield
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def kernel_s(work: Callable[[], object]) -> float:
    """Return the time of some kernels: the median of graphs that hold enough of them for a millisecond or more."""
    for _ in range(2):
        work()
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    work()
    last.record()
    torch.cuda.synchronize()
    count = max(2, min(50, int(1 / max(first.elapsed_time(last), 0.01))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            work()
    times = []
    for _ in range(7):
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) * 1e-3 / count)
    return sorted(times[1:])[3]


class Rows:
    """A CSV file, written row by row."""

    def __init__(self, folder: Path, part: str) -> None:
        self.path, self.until_s, self.names = folder / f"{part}.csv", time.perf_counter() + SHARES_S[part], None
        self.count = 0

    def add(self, **row: object) -> None:
        """Write a row."""
        row = WHERE | row
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, row)
            if self.names is None:
                writer.writeheader()
            self.names = tuple(row)
            writer.writerow(row)
        self.count += 1

    @property
    def late(self) -> bool:
        """Whether the part's share of the time is spent."""
        return time.perf_counter() > self.until_s


def products(rows: Rows) -> None:
    """Products as forward passes have them."""
    square = [(n, n, n) for n in (512, 1024, 2048, 4096, 8192)]
    layers = [(m, n, k) for m in (64, 1024, 8192) for n, k in ((2048, 2048), (8192, 2048), (2048, 8192), (1000, 4096))]
    for name, (m, n, k) in product([*TYPES, "float8"], square + layers):
        if name == "float64" and m * n * k > 2**36:
            continue
        with precision(name):
            if name == "float8":
                if n % 16:
                    continue
                left = torch.randn(m, k, device=DEVICE).to(torch.float8_e4m3fn)
                right = torch.randn(n, k, device=DEVICE).to(torch.float8_e4m3fn).t()
                one = torch.ones((), device=DEVICE)
                work = lambda a=left, b=right, s=one: torch._scaled_mm(  # noqa: E731
                    a, b, scale_a=s, scale_b=s, out_dtype=torch.bfloat16
                )
            else:
                left = torch.randn(m, k, device=DEVICE, dtype=TYPES[name])
                right = torch.randn(n, k, device=DEVICE, dtype=TYPES[name]).t()
                work = lambda a=left, b=right: a @ b  # noqa: E731
            rows.add(precision=name, m=m, n=n, k=k, time_us=round(kernel_s(work) * 1e6, 3))


def elementwise(rows: Rows) -> None:
    """Copies and sums, and what a launch costs in a graph and by the host."""
    for name, count in product(("float32", "bfloat16"), (2**12, 2**16, 2**20, 2**24, 2**28)):
        left, right = torch.randn(2, count, device=DEVICE, dtype=TYPES[name])
        add_row(rows, name, "copy", count, 2, lambda a=left, b=right: a.copy_(b))
        add_row(rows, name, "add", count, 3, lambda a=left, b=right: torch.add(a, b, out=a))
    little = torch.zeros(1, device=DEVICE)
    add_row(rows, "float32", "add one", 1, 2, lambda: little.add_(1))
    begin = time.perf_counter()
    for _ in range(2000):
        little.add_(1)
    host_s = (time.perf_counter() - begin) / 2000
    torch.cuda.synchronize()
    eager_s = (time.perf_counter() - begin) / 2000
    print(f"a launch takes the host {host_s * 1e6:.2f} us, with its kernel {eager_s * 1e6:.2f} us")


def add_row(rows: Rows, name: str, operation: str, count: int, accesses: int, work: Callable[[], object]) -> None:
    """Time a kernel and write its row."""
    sizes = {"pass": "fwd", "elements": count, "accesses": accesses}
    rows.add(precision=name, operation=operation, **sizes, time_us=round(kernel_s(work) * 1e6, 3))


def convolution_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of DeepBench's convolutions, and some with odd numbers of channels, in a random order."""
    names = ("batch_n", "in_c", "in_h", "in_w", "out_k", "filter_r_h", "filter_s_w", "pad_h", "pad_w", "stride_h")
    names = (*names, "stride_w")
    with (ROOT / "hwprofiles" / "measured" / "deepbench_conv.csv").open() as file:
        shapes = {tuple(int(float(row[name])) for name in names) for row in csv.DictReader(file)}
    odd = {
        (16, inputs, 28, 28, outputs, size, size, size // 2, size // 2, 1, 1)
        for inputs, outputs, size in ((63, 64, 3), (64, 63, 3), (65, 65, 3), (100, 200, 1), (257, 130, 1), (96, 100, 5))
    }
    ordered = sorted(shapes | odd)
    random.Random(7).shuffle(ordered)
    return ordered


def convolutions(rows: Rows) -> None:
    """Convolutions by phase, precision and layout; cuDNN chooses by timing."""
    torch.backends.cudnn.benchmark = True
    for shape in convolution_shapes():
        n, c, h, w, k, r, s, pad_h, pad_w, stride_h, stride_w = shape
        for name, layout in product(("float32", "tf32", "float16", "bfloat16"), ("channels-first", "channels-last")):
            if rows.late:
                return
            if name == "float32" and layout == "channels-last" and random.Random(str(shape)).random() > 0.3:
                continue
            form = torch.channels_last if layout == "channels-last" else torch.contiguous_format
            with precision(name):
                x = torch.randn(n, c, h, w, device=DEVICE, dtype=TYPES[name]).contiguous(memory_format=form)
                weight = torch.randn(k, c, r, s, device=DEVICE, dtype=TYPES[name]).contiguous(memory_format=form)
                options = ((stride_h, stride_w), (pad_h, pad_w), (1, 1))
                y = torch.ops.aten.convolution(x, weight, None, *options, False, (0, 0), 1)

                def backward(mask: list[bool], x=x, weight=weight, y=y, options=options) -> object:
                    return torch.ops.aten.convolution_backward(
                        y, x, weight, None, *options, False, (0, 0), 1, [*mask, False]
                    )

                works = {
                    "fwd": lambda x=x, weight=weight, options=options: torch.ops.aten.convolution(
                        x, weight, None, *options, False, (0, 0), 1
                    ),
                    "bwd_data": lambda f=backward: f([True, False]),
                    "bwd_weight": lambda f=backward: f([False, True]),
                }
                times = {f"{phase}_us": round(kernel_s(work) * 1e6, 3) for phase, work in works.items()}
            rows.add(
                precision=name,
                layout=layout,
                batch_n=n,
                in_c=c,
                in_h=h,
                in_w=w,
                out_k=k,
                filter_r_h=r,
                filter_s_w=s,
                pad_h=pad_h,
                pad_w=pad_w,
                stride_h=stride_h,
                stride_w=stride_w,
                **times,
            )


def step_row(step: Callable[[], object], least_s: float = 0.6) -> dict[str, object]:
    """Return the times of a step, the host's share of it, and the memory."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times, host = [], []
    until_s = time.perf_counter() + least_s
    while len(times) < 5 or (time.perf_counter() < until_s and len(times) < 60):
        begin = time.perf_counter()
        step()
        host.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    many_s = time.perf_counter()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    many_s = (time.perf_counter() - many_s) / 5
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type.name == "CUDA"]
    return {
        "step_ms": round(sorted(times)[len(times) // 2] * 1e3, 4),
        "step_of_several_ms": round(many_s * 1e3, 4),
        "host_ms": round(sorted(host)[len(host) // 2] * 1e3, 4),
        "kernels": len(events),
        "kernels_ms": round(sum(e.device_time_total for e in events) * 1e-3, 4),
        "allocated_mib": round(torch.cuda.max_memory_allocated() / 2**20, 1),
        "reserved_mib": round(torch.cuda.max_memory_reserved() / 2**20, 1),
        "driver_mib": round((torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]) / 2**20, 1),
    }


def networks(rows: Rows) -> None:
    """Steps of convolutional networks: SGD with momentum; half precision by autocast."""
    from torchvision import models

    torch.backends.cudnn.benchmark = True
    names = {
        "alexnet": 256,
        "vgg16": 64,
        "resnet50": 64,
        "inception_v3": 64,
        "googlenet": 128,
        "mobilenet_v2": 96,
        "densenet121": 32,
        "resnet152": 32,
        "efficientnet_b0": 64,
        "vgg11": 64,
        "resnet18": 256,
        "vit_b_16": 64,
    }
    for index, (name, layout, kind) in enumerate(
        product(names, ("channels-first", "channels-last"), ("tf32", "bfloat16", "float32", "float16"))
    ):
        if rows.late:
            return
        if name == "vit_b_16" and layout == "channels-last":
            continue
        torch.manual_seed(index)
        side, batch = (299 if name == "inception_v3" else 224), names[name]
        form = torch.channels_last if layout == "channels-last" else torch.contiguous_format
        more = {"aux_logits": False, "init_weights": False} if name in ("inception_v3", "googlenet") else {}
        model = models.get_model(name, weights=None, **more).to(DEVICE, memory_format=form)
        images = torch.randn(batch, 3, side, side, device=DEVICE).contiguous(memory_format=form)
        labels = torch.randint(1000, (batch,), device=DEVICE)
        half = TYPES[kind] if kind in ("bfloat16", "float16") else None
        step = trainer(model, lambda m=model, x=images, y=labels: nn.functional.cross_entropy(m(x), y), half, kind)
        rows.add(model=name, batch=batch, precision=kind, layout=layout, mode="eager", **step_row(step, 0.4))
        del model, images, step
        torch.cuda.empty_cache()


def trainer(
    model: nn.Module, loss_of: Callable[[], torch.Tensor], half: torch.dtype | None, kind: str
) -> Callable[[], object]:
    """Return a function that makes one training step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision(kind), torch.autocast("cuda", dtype=half) if half else nullcontext():
            loss = loss_of()
        with precision(kind):
            loss.backward()
        optimizer.step()

    return step


def language_model(name: str, words: int, batch: int) -> tuple[nn.Module, torch.Tensor]:
    """Return GPT-2 or Llama in bfloat16 with words to read."""
    small = {
        "gpt2": {
            "model_type": "gpt2",
            "vocab_size": 50257,
            "n_positions": 1024,
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "architectures": ["GPT2LMHeadModel"],
        },
        "llama-1b": {
            "model_type": "llama",
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
            "architectures": ["LlamaForCausalLM"],
        },
    }[name]
    import json
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(small))
        module = configured_model(path).module
    module = module.to_empty(device=DEVICE).to(torch.bfloat16)
    for each in (*module.parameters(), *module.buffers()):
        if each.is_floating_point():
            nn.init.normal_(each.data, std=0.02)
    return module, torch.randint(small["vocab_size"], (batch, words), device=DEVICE)


def language_step(module: nn.Module, words: torch.Tensor, *, graph: bool = False) -> Callable[[], object]:
    """Return a function that trains on some words; with ``graph`` it replays one captured step."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5, fused=True, capturable=graph)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        result = module(words)
        nn.functional.cross_entropy(result.flatten(0, 1).float(), words.flatten()).backward()
        optimizer.step()

    if not graph:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    return captured.replay


def language_models(rows: Rows) -> None:
    """Steps of language models in bfloat16, parameters and Adam's moments too; the loss in float32."""
    cases = [
        ("gpt2", 1024, 1, "eager"),
        ("gpt2", 1024, 8, "eager"),
        ("llama-1b", 2048, 1, "eager"),
        ("llama-1b", 2048, 4, "eager"),
        ("gpt2", 1024, 8, "graph"),
        ("gpt2", 1024, 1, "graph"),
        ("llama-1b", 2048, 1, "graph"),
        ("gpt2", 1024, 8, "compile"),
        ("gpt2", 1024, 32, "eager"),
        ("llama-1b", 8192, 1, "eager"),
        ("gpt2", 256, 8, "eager"),
        ("llama-1b", 512, 1, "eager"),
        ("llama-1b", 2048, 4, "compile"),
        ("gpt2", 1024, 1, "compile"),
        ("llama-1b", 4096, 2, "eager"),
    ]
    for name, length, batch, mode in cases:
        if rows.late:
            return
        module, text = language_model(name, length, batch)
        used = torch.compile(module) if mode == "compile" else module
        begin = time.perf_counter()
        step = language_step(used, text, graph=mode == "graph")
        row = step_row(step)
        rows.add(model=name, seq_len=length, batch=batch, mode=mode, precision="bfloat16", **row)
        print(name, length, batch, mode, row, f"{time.perf_counter() - begin:.1f} s", flush=True)
        del module, used, text, step
        torch.cuda.empty_cache()


def sustained(rows: Rows) -> None:
    """Clock, power and temperature of a long run, once a second, beside the time of its steps."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    module, text = language_model("llama-1b", 2048, 4)
    step = language_step(module, text)
    count, done, begin_s = 0, threading.Event(), time.perf_counter()

    def watch() -> None:
        while not done.wait(1.0):
            rows.add(
                time_s=round(time.perf_counter() - begin_s, 3),
                steps=count,
                clock_mhz=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                power_w=pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
                energy_j=pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
                temperature_c=pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            )

    watcher = threading.Thread(target=watch)
    watcher.start()
    while not rows.late:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        count += 5
    done.set()
    watcher.join()


def main(folder: str, *parts: str) -> None:
    """Measure some parts, all if none are named."""
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}", flush=True)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    works = {f.__name__: f for f in (products, elementwise, language_models, networks, convolutions, sustained)}
    for name in parts or works:
        begin = time.perf_counter()
        rows = Rows(place, name)
        try:
            works[name](rows)
        except (ImportError, RuntimeError) as error:
            print(f"{name}: {error}")
        finally:
            print(f"{name}: {rows.count} rows in {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
