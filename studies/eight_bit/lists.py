"""Lists as they are typed on the command line: numbers and data types, separated by commas."""

from groundwork.errors import ConfigError
from groundwork.requests import positive_integer


def whole_numbers(field: str, text: str) -> tuple[int, ...]:
    """Return the whole numbers of a list such as ``1,2,4``.

    Raises:
        ConfigError: A word is not a whole number >= 1.
    """
    numbers = []
    for word in text.split(","):
        number = positive_integer(word.strip())
        if number is None:
            raise ConfigError(f"{field} must be whole numbers >= 1, separated by commas, got {word.strip()!r}")
        numbers.append(number)
    return tuple(numbers)


def factors(field: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a list such as ``0.5,1,2``.

    Raises:
        ConfigError: A word is not a number.
    """
    numbers = []
    for word in (word.strip() for word in text.split(",")):
        try:
            numbers.append(float(word))
        except ValueError:
            raise ConfigError(f"{field} must be numbers, separated by commas, got {word!r}") from None
    return tuple(numbers)


def type_list(text: str) -> tuple[str, ...]:
    """Return the data types of a list such as ``float16,dynamic-tree:block=64,top=0.8``.

    A word such as ``top=0.8``, without a type's name, is one more parameter of the type before it.
    """
    types: list[str] = []
    for word in text.split(","):
        if "=" in word and ":" not in word and types:
            types[-1] += f",{word.strip()}"
        else:
            types.append(word.strip())
    return tuple(types)
