"""Lists as they are typed for an option, taken apart; the modules that know the rules are loaded only when needed."""


def typed_words(text: str) -> tuple[str, ...]:
    """Split a text at its commas; an empty text has no words."""
    return tuple(word.strip() for word in text.split(",")) if text else ()


def typed_strategies(text: str) -> tuple[str, ...]:
    """Split a list of strategies as ``planner.plan.plan_text.split_plan_texts`` does; each is returned once."""
    from planner.plan.plan_text import split_plan_texts

    return tuple(split_plan_texts(text))


def typed_data_types(text: str) -> tuple[str, ...]:
    """Split a list of data types, of which some may have parameters, such as ``float16,dynamic-tree:block=64``."""
    from studies.eight_bit.lists import type_list

    return type_list(text) if text else ()
