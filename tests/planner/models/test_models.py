"""The built-in models against the counts and shapes that others print, and what ``load_model`` refuses."""

import subprocess
import sys
from itertools import pairwise

import networkx as nx
import pytest

from groundwork.errors import ConfigError
from planner.models.builder import ModelBuilder
from planner.models.registry import known_models, load_model, model_names

# Parameters of torchvision's models without auxiliary classifiers; Caffe's lenet.prototxt and
# bvlc_reference_caffenet; alexnet-3072 from the shapes of Table 4 of the 8-bit paper.
PARAMETERS = {
    "lenet5": 431_080,
    "alexnet": 61_100_840,
    "alexnet-3072": 43_297_576,
    "caffenet": 60_965_224,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "googlenet": 6_624_904,
    "inception-v3": 23_834_568,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "densenet121": 7_978_856,
    # By hand: convolutions and linear layers with a bias for every output.
    "alexnet-cifar": 4_864 + 307_392 + 663_936 + 884_992 + 590_080 + 1025 * 512 + 513 * 512 + 5_130,
    "vgg11-cifar": 1_792 + 73_856 + 295_168 + 590_080 + 1_180_160 + 3 * 2_359_808 + 513 * 512 + 5_130,
    "digits": 160 + 4_640 + 513 * 64 + 650,
    "mnist-mlp": 785 * 1024 + 1025 * 1024 + 1025 * 10,
}

# Multiply-adds of one sample in convolutions and linear layers, 1e9: the column GFLOPS of torchvision's table
# of classification weights.
GIGA_MULTIPLY_ADDS = {
    "alexnet": 0.71,
    "vgg11": 7.61,
    "vgg13": 11.31,
    "vgg16": 15.47,
    "vgg19": 19.63,
    "googlenet": 1.50,
    "inception-v3": 5.71,
    "resnet18": 1.81,
    "resnet34": 3.66,
    "resnet50": 4.09,
    "resnet101": 7.80,
    "resnet152": 11.51,
    "densenet121": 2.83,
}

# Weight layers, as in the models' names: convolutions off the shortcuts, and linear layers.
WEIGHT_LAYERS = {
    "lenet5": 4,
    "alexnet": 8,
    "caffenet": 8,
    "vgg11": 11,
    "vgg13": 13,
    "vgg16": 16,
    "vgg19": 19,
    "resnet18": 18,
    "resnet34": 34,
    "resnet50": 50,
    "resnet101": 101,
    "resnet152": 152,
    "densenet121": 121,
    "alexnet-cifar": 8,
    "vgg11-cifar": 10,
    "resnet-cifar": 20,
    "resnet-cifar:depth=110": 110,
    "digits": 4,
    "mnist-mlp": 3,
    "cosmoflow": 10,
    "conv1d": 5,
}

# Channels and positions after named layers: the tables of the papers (see the models' files).
SHAPES = {
    "lenet5": {"conv1": (20, 24, 24), "pool2": (50, 4, 4)},
    "alexnet": {"conv1": (64, 55, 55), "pool1": (64, 27, 27), "pool2": (192, 13, 13), "pool3": (256, 6, 6)},
    "alexnet-3072": {"pool3": (256, 6, 6), "fc1": (3072,), "fc2": (3072,)},
    "caffenet": {"conv1": (96, 55, 55), "pool1": (96, 27, 27), "pool2": (256, 13, 13), "pool3": (256, 6, 6)},
    "vgg16": {"conv1_2": (64, 224, 224), "pool3": (256, 28, 28), "pool5": (512, 7, 7), "fc2": (4096,)},
    "googlenet": {
        "pool2": (192, 28, 28),
        "inception3a.concat": (256, 28, 28),
        "inception3b.concat": (480, 28, 28),
        "inception4e.concat": (832, 14, 14),
        "inception5b.concat": (1024, 7, 7),
    },
    "inception-v3": {
        "conv3": (64, 147, 147),
        "pool1": (64, 73, 73),
        "pool2": (192, 35, 35),
        "mixed_5d.concat": (288, 35, 35),
        "mixed_6e.concat": (768, 17, 17),
        "mixed_7a.concat": (1280, 8, 8),
        "mixed_7c.concat": (2048, 8, 8),
        "pool3": (2048, 1, 1),
    },
    "resnet50": {"pool1": (64, 56, 56), "layer1.2.add": (256, 56, 56), "layer4.2.add": (2048, 7, 7)},
    "resnet34": {"layer2.3.add": (128, 28, 28), "layer4.2.add": (512, 7, 7)},
    "densenet121": {
        "block1.6.concat": (256, 56, 56),
        "block2.12.concat": (512, 28, 28),
        "block3.24.concat": (1024, 14, 14),
        "block4.16.concat": (1024, 7, 7),
    },
    "alexnet-cifar": {"conv1": (64, 16, 16), "pool1": (64, 8, 8), "conv5": (256, 4, 4), "pool3": (256, 2, 2)},
    "vgg11-cifar": {"conv1_1": (64, 32, 32), "pool5": (512, 1, 1), "fc1": (512,)},
    "resnet-cifar": {"layer1.2.add": (16, 32, 32), "layer2.0.add": (32, 16, 16), "layer3.2.add": (64, 8, 8)},
    "mnist-mlp": {"dropout1": (1, 28, 28), "fc2": (1024,), "fc3": (10,)},
    "digits": {"conv2": (32, 8, 8), "pool1": (32, 4, 4), "fc2": (10,)},
    "cosmoflow": {"conv1": (16, 128, 128, 128), "conv4": (128, 8, 8, 8), "conv7": (256, 2, 2, 2), "fc3": (4,)},
    "conv1d": {"conv1": (128, 8000), "pool1": (128, 2000), "pool4": (512, 32)},
}


def multiply_adds(graph):
    layers = (layer for layer in graph.layers if layer.operation.kind in ("convolution", "linear"))
    return sum(layer.forward_flop() for layer in layers) / 2 / graph.batch


def test_every_model_of_the_command_line_is_there():
    """In the order of their names, 18 before 101."""
    assert model_names() == [
        "alexnet",
        "alexnet-3072",
        "alexnet-cifar",
        "bert-base",
        "caffenet",
        "conv1d",
        "convnext-t",
        "cosmoflow",
        "densenet121",
        "digits",
        "efficientnet-b0",
        "googlenet",
        "gpt2",
        "inception-v3",
        "lenet5",
        "llama-1b",
        "mixtral",
        "mnist-mlp",
        "mobilenet-v2",
        "regnety-400mf",
        "resnet-cifar",
        "resnet18",
        "resnet34",
        "resnet50",
        "resnet101",
        "resnet152",
        "swin-t",
        "u-net",
        "vgg11",
        "vgg11-cifar",
        "vgg13",
        "vgg16",
        "vgg19",
        "vit-b16",
    ]


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items(), ids=PARAMETERS)
def test_parameter_counts_agree_to_the_last_digit(name, count):
    assert load_model(name, batch=4).parameter_count == count


@pytest.mark.parametrize(("name", "printed"), GIGA_MULTIPLY_ADDS.items(), ids=GIGA_MULTIPLY_ADDS)
def test_multiply_adds_agree_to_the_printed_digit(name, printed):
    assert multiply_adds(load_model(name, batch=4)) / 1e9 == pytest.approx(printed, abs=0.005)


@pytest.mark.parametrize("size", [64, 128, 256, 512])
def test_cosmoflow_has_the_same_parameters_at_every_size(size):
    """By hand: seven convolutions and three linear layers, each with a bias for every output."""
    channels, widths = (4, 16, 32, 64, 128, 256, 256, 256), (256 * 2**3, 2048, 256, 4)
    by_hand = sum((27 * a + 1) * b for a, b in pairwise(channels)) + sum((a + 1) * b for a, b in pairwise(widths))
    assert load_model(f"cosmoflow:size={size}", batch=1).parameter_count == by_hand


def test_conv1d_has_the_parameters_of_m5():
    """Dai et al. print 0.5 M; by hand, with scale and shift of batch normalisation and a linear layer for ten."""
    by_hand = 80 * 128 + 3 * (128 * 128 + 128 * 256 + 256 * 512) + 2 * (128 + 128 + 256 + 512) + 513 * 10
    assert load_model("conv1d", batch=1).parameter_count == by_hand == 558_090


@pytest.mark.parametrize(
    ("depth", "printed", "digits"), [(20, 0.27, 2), (32, 0.46, 2), (44, 0.66, 2), (56, 0.85, 2), (110, 1.7, 1)]
)
def test_resnets_for_small_images_agree_with_table_6(depth, printed, digits):
    """He et al. print millions; two shortcuts are projections here, with scale and shift, that theirs pad."""
    projections = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    count = load_model(f"resnet-cifar:depth={depth}", batch=1).parameter_count
    assert round((count - projections) / 1e6, digits) == printed


@pytest.mark.parametrize(("name", "count"), WEIGHT_LAYERS.items(), ids=WEIGHT_LAYERS)
def test_weight_layers_agree_with_the_name(name, count):
    layers = load_model(name, batch=1).layers
    weights = [v for v in layers if v.operation.kind in ("convolution", "linear") and "downsample" not in v.name]
    assert len(weights) == count


@pytest.mark.parametrize(("name", "printed"), {"lenet5": 6, "alexnet": 11, "vgg16": 21}.items())
def test_layers_agree_with_table_3_of_the_layerwise_paper(name, printed):
    """The paper does not count the softmax."""
    layers = load_model(name, batch=1).layers
    assert (len(layers), layers[-1].operation.kind) == (printed + 1, "softmax")


def test_inception_has_94_convolutions():
    """Table 3 prints 102 layers; ours also counts the pooling of every block: 94 + 14 + 11 + 1 and the softmax."""
    kinds = [layer.operation.kind for layer in load_model("inception-v3", batch=1).layers]
    counted = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counted == {"convolution": 94, "pooling": 13, "concat": 11, "global_pooling": 1, "linear": 1, "softmax": 1}


@pytest.mark.parametrize(("name", "shapes"), SHAPES.items(), ids=SHAPES)
def test_shapes_agree_with_the_papers(name, shapes):
    graph = load_model(name, batch=3)
    found = {layer: graph.layers[graph.index[layer]].output.sizes for layer in shapes}
    assert found == {layer: (3, *sizes) for layer, sizes in shapes.items()}


@pytest.mark.parametrize("name", model_names())
def test_models_end_in_one_loss_and_scale_with_the_batch(name):
    small, large = load_model(name, batch=1), load_model(name, batch=8)
    assert [i for i, edges in enumerate(large.consumers) if not edges] == [len(large.layers) - 1]
    apart = ("length",) if large.layers[-1].operation.kind == "softmax_per_position" else ()
    assert large.layers[-1].parallel_dims == ("sample", *apart)
    assert large.parameter_count == small.parameter_count
    for one, eight in zip(small.layers, large.layers, strict=True):
        assert eight.forward_flop() == 8 * one.forward_flop()
        assert eight.output.sizes == (8, *one.output.sizes[1:])


@pytest.mark.parametrize("name", known_models())
def test_node_and_edge_elimination_reduce_every_model(name):
    """Series-parallel graphs: removing chains and merging parallel edges leaves one edge."""
    graph = load_model(name, batch=1)
    # A simple graph merges parallel edges by itself.
    reduced = nx.DiGraph((edge.producer, edge.consumer) for edge in graph.edges)
    chain = [v for v in reduced if reduced.in_degree(v) == reduced.out_degree(v) == 1]
    while chain:
        v = chain.pop()
        (before,), (after,) = reduced.predecessors(v), reduced.successors(v)
        reduced.remove_node(v)
        reduced.add_edge(before, after)
        chain = [v for v in reduced if reduced.in_degree(v) == reduced.out_degree(v) == 1]
    assert len(reduced) == 2


@pytest.mark.parametrize("name", ["vgg16", "lenet5", "caffenet", "densenet121", "conv1d"])
def test_classes_change_the_last_layer_only(name):
    usual, many = load_model(name, batch=2), load_model(f"{name}:classes=21841", batch=2)
    assert many.name == f"{name}:classes=21841"
    assert many.layers[-1].output.sizes == (2, 21_841)
    assert usual.layers[:-2] == many.layers[:-2]
    assert usual.digest != many.digest


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vgg-16", r"model must be one of alexnet, .*, got 'vgg-16'; did you mean 'vgg16'\?"),
        ("ResNet50", r"got 'ResNet50'; did you mean 'resnet50'\?"),
        ("", r"model must be one of .*, got ''$"),
        ("vgg16:class=10", r"parameters of vgg16 must be classes=N, got 'class=10'; did you mean 'classes'\?"),
        ("vgg16:classes", r"parameters of vgg16 must be classes=N, got 'classes'$"),
        ("vgg16:", r"parameters of vgg16 must be classes=N, got ''$"),
        ("vgg16:classes=0", r"vgg16:classes must be an integer from 2 to 10000000, got '0'"),
        ("vgg16:classes=-5", r"vgg16:classes must be an integer from 2 to 10000000, got '-5'"),
        ("vgg16:classes=1e3", r"vgg16:classes must be an integer from 2 to 10000000, got '1e3'"),
        ("vgg16:classes=99999999999999999999", r"vgg16:classes must be an integer"),
        ("vgg16:classes=10,classes=20", r"vgg16:classes must be given once, got 'classes=20' again"),
        ("cosmoflow:size=96", r"cosmoflow:size must be a power of two from 64 to 512, got '96'"),
        ("resnet-cifar:depth=21", r"resnet-cifar:depth must be one of 8, 14, \.\.\. up to 1202, got '21'"),
        ("cosmoflow:classes=10", r"parameters of cosmoflow must be size=N, got 'classes=10'"),
    ],
)
def test_bad_names_and_parameters_are_refused(spec, message):
    with pytest.raises(ConfigError, match=message):
        load_model(spec, batch=1)


@pytest.mark.parametrize("batch", [0, -1, 1.5, True, "8", float("nan")])
def test_bad_batches_are_refused(batch):
    with pytest.raises(ConfigError, match="batch must be an integer >= 1, got"):
        load_model("lenet5", batch=batch)


def test_batches_beyond_64_bits_of_bytes_are_refused():
    with pytest.raises(ConfigError, match="batch must be at most 100,000,000, got 100,000,001"):
        load_model("lenet5", batch=10**8 + 1)


@pytest.mark.parametrize("size", [1, 16, "8", None])
def test_bad_element_sizes_are_refused(size):
    with pytest.raises(ConfigError, match="element_bytes must be 2, 4 or 8, got"):
        load_model("lenet5", batch=8, element_bytes=size)


def test_the_builder_names_layers_and_reads_the_last():
    net = ModelBuilder("tiny", batch=2, image=(3, 8, 8))
    first = net.conv(4, 3, pad=1)
    second = net.conv(4, 3, pad=1, activation=None)
    net.sum((first, second), activation="relu")
    net.linear(10)
    net.loss()
    graph = net.build()
    assert [layer.name for layer in graph.layers] == ["conv1", "conv2", "add1", "fc1", "softmax"]
    assert [layer.inputs for layer in graph.layers] == [("input",), ("conv1",), ("conv1", "conv2"), ("add1",), ("fc1",)]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda net: net.conv(4, 9), r"layer 'conv1' of tiny: convolution\.kernel spans 9"),
        (lambda net: net.linear(4, "fc9"), "inputs of layer 'fc1' must be layers before it, got 'fc9'"),
        (
            lambda net: [net.linear(4, name="a") for _ in range(2)],
            "layer name must be new, 'a' is taken in tiny",
        ),
        (
            lambda net: [net.linear(4, name="input:2"), net.build()],
            "layers of tiny need names other than those of the data, got 'input:2'",
        ),
        (lambda net: ModelBuilder("bad", batch=1, image=(3, 0)), "image must be an integer >= 1, got 0"),
        (lambda net: ModelBuilder("bad", batch=1, image=(3,) * 5), "has 0 to 3 position dimensions, got 4"),
    ],
)
def test_the_builder_names_the_layer_that_does_not_fit(use, message):
    with pytest.raises(ConfigError, match=message):
        use(ModelBuilder("tiny", batch=1, image=(3, 8, 8)))


def test_models_load_without_heavy_libraries():
    heavy = "{'torch', 'pandas', 'numba', 'plotly', 'scipy', 'networkx'}"
    code = f"import sys, planner.models.registry; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
