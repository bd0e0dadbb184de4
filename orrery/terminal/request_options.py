"""Commands that take a request: every field of the request's dataclass becomes an option."""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from orrery.terminal.completion import COMPLETERS


def takes_requests(command: Callable[..., None]) -> Callable[..., None]:
    """Offer the fields of a command's requests as options of the command.

    A parameter that is annotated with a dataclass is replaced by one parameter for each field that was declared by
    ``option``; when the command runs, the dataclass is made of them.  Fields that were not declared so keep
    their defaults.

    Raises:
        TypeError: Two requests, or a request and a parameter, share a name.
    """
    signature = inspect.signature(command, eval_str=True)
    requests = {name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)}
    parameters = list[inspect.Parameter]()
    for name, each in signature.parameters.items():
        parameters += _parameters(requests[name]) if name in requests else [each]
    names = [each.name for each in parameters]
    if len(set(names)) < len(names):
        raise TypeError(f"{command.__name__} has the option {max(names, key=names.count)} twice")

    @wraps(command)
    def call(**values: Any) -> None:
        made = {name: _made(request, values) for name, request in requests.items()}
        command(**made, **values)

    parameters.sort(key=lambda each: each.kind)
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return call


def _offered(request: Any) -> Iterator[tuple[Field[Any], Any]]:
    """Yield the fields of a request that are options, each with its type.

    Types of other fields are not looked at: they may lie in modules that are heavy to load.
    """
    chosen = {each.name: each for each in fields(request) if "option" in each.metadata}
    types = SimpleNamespace(__annotations__={name: each.type for name, each in chosen.items()})
    hints = get_type_hints(types, globalns=vars(sys.modules[request.__module__]), include_extras=True)
    yield from ((each, hints[name]) for name, each in chosen.items())


def _made(request: Any, values: dict[str, Any]) -> Any:
    """Take a request's fields out of all values, and make it of them; tuples are parsed from the words typed."""
    given = {}
    for field, hint in _offered(request):
        value = values.pop(field.name)
        given[field.name] = field.metadata["option"]["parser"](value) if _is_tuple(hint) else value
    return request(**given)


def _is_tuple(hint: Any) -> bool:
    return tuple in (get_origin(hint), *map(get_origin, get_args(hint)))


def _parameters(request: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameter of each field; a tuple is typed as one word, which the field's parser takes apart."""
    for field, hint in _offered(request):
        said = SimpleNamespace(**field.metadata["option"])
        default, parser = field.default, said.parser
        if _is_tuple(hint):
            hint, parser, default = str, None, default if default is MISSING else said.typed
        looks = {
            "help": said.help,
            "metavar": said.metavar,
            "parser": parser,
            "min": said.low,
            "autocompletion": COMPLETERS.get(field.name),
        }
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if said.positional else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is MISSING else default,
            annotation=Annotated[
                hint, typer.Argument(**looks) if said.positional else typer.Option(*said.names, **looks)
            ],
        )
