"""Models of the catalogue that were imported: sizes are those that their authors and torchvision print."""

from itertools import pairwise

import pytest

from groundwork.errors import ConfigError
from planner.model_files import model_file
from planner.model_files.model_text import model_text
from planner.models.registry import load_model

PRINTED = {
    # torchvision's documentation of each model: parameters, multiply-adds in 10^9 at 224 x 224
    "mobilenet-v2": (3_504_872, 0.30),
    "efficientnet-b0": (5_288_548, 0.39),
    "regnety-400mf": (4_344_144, 0.40),
    "convnext-t": (28_589_128, 4.46),
    "vit-b16": (86_567_656, 17.56),
    "swin-t": (28_288_354, 4.49),
}
PRODUCTS = ("convolution", "linear", "matrix_product", "batched_product", "attention", "transposed_convolution")


def multiply_adds(graph) -> float:
    """Return the multiply-adds of a sample in the forward products."""
    return sum(v.forward_flop() for v in graph.layers if v.operation.kind in PRODUCTS) / 2 / graph.batch


@pytest.mark.parametrize("name", PRINTED)
def test_networks_for_images_have_the_printed_sizes(name):
    """Parameters agree to the last digit, multiply-adds to the printed one."""
    parameters, printed = PRINTED[name]
    graph = load_model(name, batch=2)

    assert graph.parameter_count == parameters
    assert multiply_adds(graph) / 1e9 == pytest.approx(printed, abs=0.0051)


def test_u_net_has_the_sizes_of_its_drawing():
    """Ronneberger et al., 2015, Figure 1: 572 x 572 in, 388 x 388 out, 3 x 3 convolutions without padding."""
    graph = load_model("u-net", batch=1)
    widths = [1, 64, 128, 256, 512, 1024]
    down = sum(9 * a * b + b + 9 * b * b + b for a, b in pairwise(widths))
    up = sum(4 * b * a + a + 9 * b * a + a + 9 * a * a + a for a, b in pairwise(widths[1:]))

    assert graph.parameter_count == down + up + 64 * 2 + 2 == 31_030_658
    assert graph.layers[-1].output.sizes == (1, 2, 388, 388)


def transformer(*, layers: int, width: int, inner: int, length: int, vocabulary: int, extra: int = 0) -> int:
    """Return the multiply-adds of a sequence: four square products, two wide ones, both of attention, and the head."""
    block = length * (4 * width**2 + 2 * width * inner) + 2 * length**2 * width
    return layers * block + length * (width * vocabulary + extra)


def test_bert_has_the_parameters_and_work_of_its_formula():
    """Devlin et al., 2019: 12 layers of 768 channels, 30,522 words; the head shares the table of words."""
    graph = load_model("bert-base", batch=2)

    assert graph.parameter_count == 109_514_298
    assert multiply_adds(graph) == transformer(
        layers=12, width=768, inner=3072, length=128, vocabulary=30_522, extra=768**2
    )


def test_gpt_2_has_the_parameters_and_work_of_its_formula():
    """Radford et al., 2019, smallest model: 124,439,808 parameters with a tied head."""
    graph = load_model("gpt2", batch=2)

    assert graph.parameter_count == 124_439_808
    assert multiply_adds(graph) == transformer(layers=12, width=768, inner=3072, length=1024, vocabulary=50_257)


def test_llama_has_the_parameters_and_work_of_its_formula():
    """Llama 3.2 1B: 16 layers, 32 heads and 8 of keys and values, three products of 8,192 channels, a tied head."""
    graph, length, width = load_model("llama-1b", batch=2), 2048, 2048
    block = length * (2 * width**2 + 2 * width * width // 4 + 3 * width * 8192) + 2 * length**2 * width

    assert graph.parameter_count == 1_235_814_400
    assert multiply_adds(graph) == 16 * block + length * width * 128_256


def test_model_files_without_sizes_have_no_parameters():
    """Their sizes are those of the file."""
    with pytest.raises(ConfigError, match="model swin-t has no parameters, got 'classes=10'"):
        load_model("swin-t:classes=10", batch=2)


def test_catalogue_files_are_read_fast_and_hold_what_model_files_do(tmp_path, monkeypatch):
    """No YAML, which took two thirds of ``orrery models``; written as YAML, a file gives the same layers."""
    model_file.kept_content.cache_clear()
    read = model_file.yaml_input
    monkeypatch.setattr(model_file, "yaml_input", None)
    graph = load_model("u-net", batch=2)
    monkeypatch.setattr(model_file, "yaml_input", read)
    path = tmp_path / "u-net.yaml"
    path.write_text(model_text(graph))
    assert load_model(path, batch=2).layers == graph.layers
