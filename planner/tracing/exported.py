"""Exported programs of PyTorch modules, on the meta device: no weights, no memory."""

import contextlib
import io
import logging
import operator
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundwork.errors import ConfigError
from planner.tracing.inputs import InputSpec, one_sample_error, with_two_samples
from planner.tracing.trace import Argument, Trace, TraceNode, TraceTensor

if TYPE_CHECKING:
    import torch


_MOST_VALUES = 4096
"""Most elements of a buffer that are written down where no ``state_dict`` holds it."""

_DATA_DEPENDENT = "its control flow or a size depends on data; decide by shapes, or use torch.where or torch.cond"


def trace_of(module: "torch.nn.Module", inputs: Sequence[InputSpec]) -> Trace:
    """Export a module in training mode, or if that fails for evaluation, and return its program.

    Inputs of one sample are traced with two: an axis of one sample cannot be told from others of size 1.

    Raises:
        ConfigError: It cannot be exported; the message names the line of the model's code and the way out.
    """
    import torch

    first: dict[int, str] = {}  # before the module is moved, which parts tied parameters
    keys = {name: first.setdefault(id(p), name) for name, p in module.named_parameters(remove_duplicate=False)}
    frozen = frozenset(name for name, each in module.named_parameters() if not each.requires_grad)
    values = _values(module)
    module = module.to("meta")
    inputs, samples = with_two_samples(inputs)
    positional = tuple(_tensor(each) for each in inputs if not each.name)
    named = {each.name: _tensor(each) for each in inputs if each.name}
    program, refusal, training = None, "", True
    for mode in (True, False):  # some choose by chance while they train, and not when they are evaluated
        try:
            with _quiet(), torch.device("meta"):  # also for tensors that the code makes without saying where
                program = torch.export.export(module.train(mode), positional, named, strict=False)
            training = mode
            break
        except Exception as error:  # whatever the model's code raises
            refusal = refusal or _refusal(error)
    if program is None:
        raise one_sample_error(ConfigError(refusal)) if samples else ConfigError(refusal)
    aliases = {key: tuple(n for n, k in keys.items() if k == key != n) for key in set(keys.values())}
    aliases = {key: rest for key, rest in aliases.items() if rest}
    trace = _trace(program, keys, values)
    return replace(trace, training=training, frozen=frozen, aliases=aliases, samples=samples)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what PyTorch and the model print from the terminal."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _tensor(spec: InputSpec) -> "torch.Tensor":
    import torch

    return torch.zeros(spec.shape, dtype=torch.float32 if spec.floating else torch.int64, device="meta")


def _refusal(error: Exception) -> str:
    """Return in one line why a module could not be exported, where, and what to do."""
    text = " ".join(str(error).split())
    line = _user_line(error)
    kind = type(error).__name__
    if kind in ("GuardOnDataDependentSymNode", "DataDependentOutputException") or "data-dependent" in text:
        what = _DATA_DEPENDENT
    elif "meta tensor" in text or "Tensor.item()" in text:
        what = "it reads the value of a tensor; decide by shapes, or use torch.where or torch.cond"
    elif "indices" in text and "long" in text.lower():
        what = "it reads integers: write :int behind the sizes of the input"
    elif isinstance(error, NotImplementedError) or "no fake impl" in text or "UnsupportedOperator" in kind:
        what = f"an operation has no form without data ({text[:160]}); register one with torch.library.register_fake"
    else:
        what = f"{kind}: {text[:200]}"
    return f"model cannot be exported{f' at {line}' if line else ''}: {what}"


def _user_line(error: BaseException) -> str:
    """Return file and line of the innermost code that is not PyTorch's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno} ({(frames[-1].line or '').strip()[:80]})" if frames else ""


def _is_users(filename: str) -> bool:
    """Return whether a file is neither PyTorch's nor ours."""
    import torch

    return not filename.startswith((f"{Path(torch.__file__).parent}/", f"{Path(__file__).parent}/", "<"))


def _values(module: "torch.nn.Module") -> dict[str, tuple[float, ...]]:
    """Return the elements of small buffers that are not on the meta device, by key."""
    rows = {key: each for key, each in module.named_buffers() if not each.is_meta and each.numel() <= _MOST_VALUES}
    return {key: tuple(each.detach().flatten().tolist()) for key, each in rows.items() if not each.is_complex()}


def _trace(
    program: "torch.export.ExportedProgram", keys: Mapping[str, str], known: Mapping[str, tuple[float, ...]]
) -> Trace:
    """Return a program as plain data."""
    signature = program.graph_signature
    parameters, constants, inputs, buffers, values = {}, {}, {}, {}, {}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        tensors = _tensors(node.meta.get("val"))
        tensor = tensors[0] if tensors else TraceTensor(())
        if node.name in signature.inputs_to_parameters:
            key = signature.inputs_to_parameters[node.name]
            parameters[node.name] = (keys.get(key, key), tensor)
        elif node.name in signature.user_inputs:
            inputs[node.name] = tensor
        else:
            constants[node.name] = tensor
            key = signature.inputs_to_buffers.get(node.name, "")
            if key and key not in signature.non_persistent_buffers:
                buffers[node.name] = key
            elif key in known:
                values[node.name] = known[key]
    nodes: list[TraceNode] = []
    outputs: list[str] = []
    _walk(program.graph_module, {}, "", nodes, outputs)
    mutated = {*signature.buffers_to_mutate, *signature.user_inputs_to_mutate}
    return Trace(
        inputs=inputs,
        parameters=parameters,
        constants=constants,
        buffers=buffers,
        values=values,
        nodes=tuple(nodes),
        outputs=tuple(name for name in outputs if name not in mutated),
    )


def _walk(module: Any, names: dict[str, Any], prefix: str, nodes: list[TraceNode], outputs: list[str]) -> None:
    """Append the nodes of a graph, those of graphs within it in place of the node that calls them."""
    for node in module.graph.nodes:
        if node.op == "placeholder":
            names.setdefault(node.name, Argument(node.name))
        elif node.op == "output":
            outputs += [each.name for each in _arguments(_named(node.args[0], names)) if isinstance(each, Argument)]
        elif node.op == "get_attr":
            names[node.name] = Argument(prefix + node.name)
        elif _inner(node, module) is not None:
            _walk_inner(node, module, names, prefix, nodes)
        else:
            names[node.name] = Argument(prefix + node.name)
            nodes.append(_node(node, names, prefix))


def _inner(node: Any, module: Any) -> Any:
    """Return the graph that a node calls, such as one without gradients; None for operations."""
    import torch

    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    called = [a for a in node.args if isinstance(a, torch.fx.Node) and a.op == "get_attr"]
    return getattr(module, str(called[0].target), None) if called else None


def _walk_inner(node: Any, module: Any, names: dict[str, Any], prefix: str, nodes: list[TraceNode]) -> None:
    """Append the nodes of the graph that a node calls."""
    import torch

    inner = _inner(node, module)
    given = [a for a in node.args if isinstance(a, torch.fx.Node) and a.op != "get_attr"]
    given += [a for each in node.args if isinstance(each, list | tuple) for a in each if isinstance(a, torch.fx.Node)]
    places = [n for n in inner.graph.nodes if n.op == "placeholder"]
    inside = {p.name: names[a.name] for p, a in zip(places, given, strict=False)}
    outputs: list[str] = []
    _walk(inner, inside, f"{prefix}{node.name}.", nodes, outputs)
    names[node.name] = Argument(prefix + node.name)
    results = tuple(_tensors(node.meta.get("val")))
    if node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and node.args[0] is False:
        outputs = _without_gradients(outputs, results, f"{prefix}{node.name}", nodes)
    arguments = {str(i): Argument(name) for i, name in enumerate(outputs)}
    nodes.append(
        TraceNode(name=prefix + node.name, operation="results", arguments=arguments, results=results, several=True)
    )


def _without_gradients(
    outputs: Sequence[str], results: Sequence[TraceTensor], where: str, nodes: list[TraceNode]
) -> list[str]:
    """Append nodes that cut off the gradients of the results of a graph, and return their names."""
    rows = []
    for i, (name, tensor) in enumerate(zip(outputs, results, strict=True)):
        rows.append(f"{where}.no_grad_{i}")
        nodes.append(
            TraceNode(name=rows[-1], operation="detach", arguments={"self": Argument(name)}, results=(tensor,))
        )
    return rows


def _node(node: Any, names: Mapping[str, Any], prefix: str) -> TraceNode:
    import torch
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    target, value = node.target, node.meta.get("val")
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    line = _line(node.meta.get("stack_trace") or "")
    try:
        results = tuple(_tensors(value))
    except GuardOnDataDependentSymNode:
        raise ConfigError(f"model cannot be exported{f' at {line}' if line else ''}: {_DATA_DEPENDENT}") from None
    return TraceNode(
        name=prefix + node.name,
        operation="getitem" if target is operator.getitem else _operation(target),
        arguments=_named_arguments(node, names),
        results=results,
        several=isinstance(value, list | tuple),
        module=str(stack[-1][0]) if stack else "",
        pointwise=torch.Tag.pointwise in getattr(target, "tags", ()),
        line=line,
    )


def _operation(target: Any) -> str:
    """Return the name of an operation without namespace and overload."""
    schema = getattr(target, "_schema", None)
    return schema.name.partition("::")[2] if schema is not None else str(getattr(target, "__name__", target))


def _named_arguments(node: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a node by name, those with defaults included."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        rows = {str(i): _named(each, names) for i, each in enumerate(node.args)}
        return rows | {key: _named(each, names) for key, each in node.kwargs.items()}
    result = {}
    for i, argument in enumerate(schema.arguments):
        if i < len(node.args):
            result[argument.name] = _named(node.args[i], names)
        elif argument.name in node.kwargs:
            result[argument.name] = _named(node.kwargs[argument.name], names)
        elif argument.default_value is not None:
            result[argument.name] = argument.default_value
    return result


def _named(given: Any, names: Mapping[str, Any]) -> Any:
    """Return an argument with references in place of nodes."""
    import torch

    if isinstance(given, torch.fx.Node):
        return names.get(given.name, Argument(given.name))
    if isinstance(given, list | tuple):
        return [_named(each, names) for each in given]
    if isinstance(given, dict):
        return [_named(each, names) for each in given.values()]
    return given


def _arguments(given: Any) -> Iterable[Any]:
    """Yield what nested lists hold."""
    if isinstance(given, list):
        for each in given:
            yield from _arguments(each)
    else:
        yield given


def _tensors(value: Any) -> list[TraceTensor]:
    """Return the sizes of the tensors that a node makes."""
    import torch

    if isinstance(value, torch.Tensor):
        return [TraceTensor(tuple(int(size) for size in value.shape), value.is_floating_point())]
    if isinstance(value, list | tuple):
        return [t for each in value for t in (_tensors(each) or [TraceTensor(())])]
    return []


def _line(stack: str) -> str:
    """Return file and line of the innermost code in a stack that is not PyTorch's."""
    rows = [row.strip() for row in stack.splitlines() if row.strip().startswith("File ")]
    for row in reversed(rows):
        _, filename, rest = row.split('"', 2)
        if _is_users(filename):
            return f"{filename}:{rest.split(',')[1].split()[-1]}"
    return ""
