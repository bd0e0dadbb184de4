"""A whole network on one device by torch's own functions and autograd: what all divided runs are compared with.

It shares nothing with the executor but the random numbers that dropout's masks are made of.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from executor.data.load import load_data
from executor.runtime.boxes import whole_box
from executor.runtime.parameter_init import initial_parameters
from executor.runtime.positional_random import key_of, uniform
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.shapes import Shape
from planner.operations.checks import position_dims
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import GlobalPooling, Pooling

Named = dict[tuple[str, str], Tensor]
ACTIVATIONS = {
    None: lambda values: values,
    "relu": functional.relu,
    "leaky_relu": lambda values: functional.leaky_relu(values, 0.01),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
POOLINGS = {
    "max": (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d),
    "average": (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d),
}
GLOBAL_POOLINGS = {
    "max": (functional.adaptive_max_pool1d, functional.adaptive_max_pool2d, functional.adaptive_max_pool3d),
    "average": (functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d),
}


def graph_of(sizes, *nodes):
    """A network of (operation, *sources) over data of these sizes; layers are called 0, 1, ..."""
    shapes = {"input": Shape(("sample", "channel", *position_dims(len(sizes) - 2)), sizes)}
    layers = []
    for number, (operation, *sources) in enumerate(nodes):
        inputs = tuple(shapes[source] for source in sources)
        output = shapes[str(number)] = operation.output(inputs)
        layers.append(Layer(str(number), operation, tuple(sources), inputs, output))
    return ComputationGraph("tested", sizes[0], layers)


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One forward and backward pass of a whole network."""

    outputs: dict[str, Tensor]
    """By layer; the data under ``input``."""
    output_gradients: dict[str, Tensor]
    """Of the outputs; those that reach no loss have none."""
    gradients: Named
    """By layer and parameter."""
    loss: Tensor
    """Mean over the batch, 0-d; summed over the loss layers."""


class Undivided:
    """A whole network.

    Args:
        graph: The network; the loss is the sum of its loss layers.
        parameters: By layer and parameter name; copied.  Their data may be changed between passes, by an optimizer.
    """

    def __init__(self, graph: ComputationGraph, parameters: Named) -> None:
        self.graph = graph
        self.parameters = {key: value.detach().clone().requires_grad_() for key, value in parameters.items()}
        self.buffers: Named = {}
        """Running mean and variance by layer, of batch normalisation."""

    def run(
        self,
        data: Tensor,
        targets: Tensor | None = None,
        *,
        number: int = 0,
        seed: int = 0,
        gradient: Tensor | None = None,
    ) -> Pass:
        """Run a step without an update.

        Args:
            data: The batch.
            targets: Labels (int64, shape (samples,)) or values of the network's output.
            number: Training step, which dropout's masks depend on.
            seed: What they depend on too.
            gradient: Of the last layer's output, where that is no loss.
        """
        outputs = {"input": data.detach().clone().requires_grad_()}
        losses = [] if gradient is None else [outputs["input"].new_zeros(())]
        for index, layer in enumerate(self.graph.layers):
            inputs = [outputs[source] for source in layer.inputs]
            if isinstance(layer.operation, Loss):
                output, loss = _loss(layer.operation, inputs[0].flatten(1), targets)
                losses.append(loss)
                outputs[layer.name] = output.view(inputs[0].shape)
            else:
                outputs[layer.name] = self._apply(layer, inputs, key_of(seed, number, index))
        total = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        if gradient is not None:
            total = total + (outputs[self.graph.layers[-1].name] * gradient).sum()
        wanted = {**self.parameters, **outputs}
        found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
        gradients = {name: value for name, value in zip(wanted, found, strict=True) if value is not None}
        return Pass(
            {name: value.detach() for name, value in outputs.items()},
            {name: value for name, value in gradients.items() if isinstance(name, str)},
            {name: value for name, value in gradients.items() if not isinstance(name, str)},
            total.detach(),
        )

    def _apply(self, layer: Layer, inputs: list[Tensor], key: int) -> Tensor:
        operation, values = layer.operation, inputs[0]
        own = {name: value for (owner, name), value in self.parameters.items() if owner == layer.name}
        rank = values.dim() - 3
        match operation:
            case Convolution():
                form = (operation.stride, operation.pad, operation.dilation, operation.groups)
                output = CONVOLUTIONS[rank](values, own["weight"], own.get("bias"), *form)
                if operation.batch_norm:
                    output = self._batch_norm(layer, output, own["norm_weight"], own["norm_bias"])
                return ACTIVATIONS[operation.activation](output)
            case BatchNorm():
                return ACTIVATIONS[operation.activation](self._batch_norm(layer, values, own["weight"], own["bias"]))
            case Pooling():
                window = (operation.kernel, operation.stride, operation.pad)
                return POOLINGS[operation.mode][rank](values, *window, ceil_mode=operation.ceil_mode)
            case GlobalPooling():
                return GLOBAL_POOLINGS[operation.mode][rank](values, 1)
            case Linear():
                output = functional.linear(values.flatten(1), own["weight"], own.get("bias"))
                output = ACTIVATIONS[operation.activation](output)
                sizes = layer.output.sizes
                random = uniform(key, whole_box(sizes), sizes, dtype=output.dtype, device=output.device)
                return torch.where(random < operation.dropout, 0.0, output / (1 - operation.dropout))
            case Dropout():
                sizes = layer.output.sizes
                random = uniform(key, whole_box(sizes), sizes, dtype=values.dtype, device=values.device)
                return torch.where(random < operation.dropout, 0.0, values / (1 - operation.dropout))
            case Add():
                return ACTIVATIONS[operation.activation](sum(inputs))
            case Concat():
                return torch.cat(inputs, 1)
            case LocalResponseNorm():
                deep = values if values.dim() > 2 else values.unsqueeze(2)
                form = (operation.size, operation.alpha, operation.beta, operation.k)
                return functional.local_response_norm(deep, *form).view(values.shape)
        raise TypeError(operation)

    def _batch_norm(self, layer: Layer, values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        mean = self.buffers.setdefault((layer.name, "running_mean"), torch.zeros_like(weight).detach())
        variance = self.buffers.setdefault((layer.name, "running_var"), torch.ones_like(weight).detach())
        return functional.batch_norm(values, mean, variance, weight, bias, training=True)


def _loss(operation: Loss, samples: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
    assert targets is not None
    if operation.function == "softmax":
        return functional.softmax(samples, 1), functional.cross_entropy(samples, targets)
    return samples - targets.flatten(1), functional.mse_loss(samples, targets.flatten(1))


def random_parameters(graph: ComputationGraph, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Named:
    """Parameters that keep the sizes of activations about equal, by layer and parameter name."""
    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for layer in graph.layers:
        for parameter in layer.parameters:
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            scale = (2 / max(parameter.elements // parameter.shape[0], 1)) ** 0.5 if parameter.name == "weight" else 0.5
            parameters[layer.name, parameter.name] = (values * scale).to(dtype)
    return parameters


def wide(graph):
    """The same network with 8-byte numbers."""
    graph.element_bytes = 8
    return graph


def undivided_run(graph, steps, optimizer, seed):
    """Losses and parameters of the same steps by torch alone."""
    network = Undivided(graph, first_parameters(graph, seed))
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer.name]
    extra = {"momentum": optimizer.momentum} if optimizer.name == "sgd" else {}
    steps_of = kind(
        list(network.parameters.values()), lr=optimizer.learning_rate, weight_decay=optimizer.weight_decay, **extra
    )
    data = load_data("generated", graph, seed=seed, dtype=torch.float64, device="cpu")
    shape, losses = graph.layers[0].input_shapes[0].sizes, []
    for number in range(steps):
        result = network.run(
            data.inputs(number, whole_box(shape)), data.targets(number, 0, graph.batch), number=number, seed=seed
        )
        for key, parameter in network.parameters.items():
            parameter.grad = result.gradients[key]
        steps_of.step()
        losses.append(float(result.loss))
    return losses, network.parameters


def first_parameters(graph, seed):
    """What a run with this seed starts from, by layer and parameter name."""
    found = {}
    for i, layer in enumerate(graph.layers):
        boxes = {parameter.name: whole_box(parameter.shape) for parameter in layer.parameters if not parameter.shared}
        values = initial_parameters(graph, i, boxes, seed=seed, dtype=torch.float64, device="cpu")
        found |= {(layer.name, name): value for name, value in values.items()}
    return found


def first_state(graph, seed):
    """What a run with this seed starts from, as the ``state_dict`` of the imported module."""
    values = first_parameters(graph, seed)
    return {
        dict(layer.keys)[each.name]: values[layer.name, each.name].reshape(each.module_shape)
        for layer in graph.layers
        for each in layer.parameters
        if not each.shared
    }
