"""The text of a plan: a strategy with options of ``orrery plan``, such as ``pipeline=4,schedule=gpipe``.

Commas separate the words.  Options have their names without the dashes before them, and are the fields of
``PlanRequest`` that may be left out.  A switch is its name alone, or that behind ``no-``.  Values hold no commas: a
``+`` stands for one, as in ``stage-at=conv3_1+conv4_1``.  All other words are the strategy: its name, file or degrees.
"""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, get_args, get_type_hints

from groundwork.errors import ConfigError
from groundwork.requests import whole_number
from groundwork.suggestions import did_you_mean
from planner.plan.plan_options import PlanOptions
from planner.strategies.degrees import HYBRID_FLAGS, HYBRID_WORDS, SEARCHED_HYBRID, STORAGE_WORDS, is_hybrid
from planner.strategies.strategy_file import SUFFIXES

_STRATEGY = "strategy"


def read_plan_text(text: str) -> tuple[str, dict[str, Any]]:
    """Return the strategy of a text, and the fields of ``PlanRequest`` that its other words set.

    Raises:
        ConfigError: An option is unknown, has no value or a wrong one, or is given twice.
    """
    if text.endswith(SUFFIXES):
        return text, {}
    strategy, given = list[str](), dict[str, Any]()
    for item in text.split(","):
        field, shown = _field_of(item), item.strip()
        if field is None:
            _check_unknown(text, shown, is_first=not strategy)
            strategy.append(item)
            continue
        if field.name in given:
            raise ConfigError(f"strategy {text!r} must give {_word(field.name)} once, got it again")
        try:
            given[field.name] = _value(field, shown)
        except ConfigError as error:
            raise ConfigError(f"strategy {text!r}: {_word(field.name)} {error}") from None
    return ",".join(strategy) if given else text, given


def split_plan_texts(text: str) -> list[str]:
    """Return the plans of a list separated by commas or semicolons, each once.

    After a comma an option belongs to the plan before it, and so does a degree, unless that plan has no degrees, or one
    of that name already: ``data,data=4,filter=4,recompute=segments,data=2`` are three plans, and so are
    ``data;data=4,filter=4,recompute=segments;data=2``.
    """
    plans: list[list[str]] = []
    for section in text.split(";"):
        last: list[str] = []
        for item in (item.strip() for item in section.split(",")):
            name = item.partition("=")[0]
            is_degree = is_hybrid(item) or item in HYBRID_FLAGS
            stores = name in STORAGE_WORDS and last[:1] == [SEARCHED_HYBRID]
            is_new = name not in [word.partition("=")[0] for word in last]
            if last and (_field_of(item) or (is_degree and is_new and (stores or is_hybrid(last[0])))):
                last.append(item)
            else:
                last = [item]
                plans.append(last)
    return list(dict.fromkeys(",".join(items) for items in plans))


def plan_list_text(plans: Sequence[str]) -> str:
    """Return the list of plans that ``split_plan_texts`` takes apart."""
    listed = ",".join(plans)
    return listed if split_plan_texts(listed) == list(plans) else ";".join(plans)


@cache
def _options() -> dict[str, Field[Any]]:
    """Return the fields of a request that a text may set, by name: the options that may be left out."""
    chosen = (each for each in fields(PlanOptions) if "option" in each.metadata and each.default is not MISSING)
    return {each.name: each for each in chosen if each.name != _STRATEGY}


@cache
def _types() -> dict[str, Any]:
    """Return the types of the fields of a request."""
    return get_type_hints(PlanOptions)


def _is_switch(field: Field[Any]) -> bool:
    return bool in (_types()[field.name], *get_args(_types()[field.name]))


def _word(name: str) -> str:
    """Return the name of a field as a word of a text."""
    return name.replace("_", "-")


def option_words() -> Iterator[str]:
    """Yield all words that set a field: the options that may follow a strategy."""
    for name, field in _options().items():
        yield _word(name)
        if _is_switch(field):
            yield f"no-{_word(name)}"


def _field_of(item: str) -> Field[Any] | None:
    """Return the field that an item of a text sets; None for a word of the strategy."""
    name = item.partition("=")[0].strip().replace("-", "_")
    field = _options().get(name)
    if field is None and (field := _options().get(name.removeprefix("no_"))) and not _is_switch(field):
        return None
    return field


def _value(field: Field[Any], item: str) -> Any:
    """Return the value that an item of a text gives its field.

    Raises:
        ConfigError: It has a wrong value, or none; the message lacks the name.
    """
    name, equals, said = (word.strip() for word in item.partition("="))
    if _is_switch(field):
        if equals:
            raise ConfigError(f"must be given without a value, or as no-{_word(field.name)}, got {item!r}")
        return not name.startswith("no")
    if not said:
        raise ConfigError(f"must have a value behind =, got {item!r}")
    said, parser = said.replace("+", ","), field.metadata["option"]["parser"]
    if parser is None and _types()[field.name] is int:
        parser = whole_number
    return parser(said) if parser else said


def _check_unknown(text: str, item: str, *, is_first: bool) -> None:
    """Refuse a word that is no option, but is spelt nearly like one."""
    name, equals, _ = item.partition("=")
    if name.strip() in HYBRID_WORDS or (is_first and not equals):
        return
    if not did_you_mean(name, HYBRID_WORDS) and (hint := did_you_mean(name, option_words())):
        raise ConfigError(f"strategy {text!r} must be made of degrees and options of orrery plan, got {item!r}{hint}")
