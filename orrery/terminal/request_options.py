"""Commands that take a request: every field of the request's dataclass becomes an option."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

__all__ = ["takes_requests"]


def takes_requests(command: Callable[..., None]) -> Callable[..., None]:
    """Offer the fields of a command's requests as options of the command.

    A parameter that is annotated with a dataclass is replaced by one keyword parameter for each field that was
    declared by ``hwprofiles.option``; when the command runs, the dataclass is made of them.  Fields that were not
    declared so keep their defaults.

    Args:
        command: Function with annotated parameters, as for ``typer``.

    Returns:
        The function to register.

    Raises:
        TypeError: Two requests, or a request and a parameter, share a name.
    """
    signature = inspect.signature(command, eval_str=True)
    requests = {name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)}
    parameters = [each for name, each in signature.parameters.items() if name not in requests]
    for request in requests.values():
        hints = get_type_hints(request, include_extras=True)
        parameters += [_parameter(field, hints[field.name]) for field in fields(request) if "option" in field.metadata]
    names = [each.name for each in parameters]
    if len(set(names)) < len(names):
        raise TypeError(f"{command.__name__} has the option {max(names, key=names.count)} twice")

    @wraps(command)
    def call(**values: Any) -> None:
        given = {name: _made(request, values) for name, request in requests.items()}
        command(**given, **values)

    parameters.sort(key=lambda each: each.kind)
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return call


def _made(request: Any, values: dict[str, Any]) -> Any:
    """Take a request's fields out of all values, and make it of them."""
    given = {field.name: values.pop(field.name) for field in fields(request) if "option" in field.metadata}
    hints = get_type_hints(request)
    for field in fields(request):
        if field.name in given and _is_tuple(hints[field.name]):
            given[field.name] = field.metadata["option"]["parser"](given[field.name])
    return request(**given)


def _is_tuple(hint: Any) -> bool:
    return tuple in (get_origin(hint), *map(get_origin, get_args(hint)))


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    """Return the keyword parameter for a field; a tuple is typed as one word, which the field's parser takes apart."""
    said: Mapping[str, Any] = field.metadata["option"]
    default, parser = field.default, said["parser"]
    if _is_tuple(hint):
        hint, parser, default = str, None, default if default is MISSING else said["typed"]
    option = typer.Option(*said["names"], help=said["help"], metavar=said["metavar"], parser=parser, min=said["low"])
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[hint, option],
    )
