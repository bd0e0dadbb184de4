"""Lists as they are typed: numbers and data types, separated by commas."""

from hwprofiles import ConfigError

__all__ = ["factors", "type_list", "whole_numbers"]


def whole_numbers(field: str, text: str) -> tuple[int, ...]:
    """Read whole numbers such as ``1,2,4``.

    Raises:
        ConfigError: A word is no whole number >= 1.
    """
    listed = [word.strip() for word in text.split(",")]
    for word in listed:
        if not (word.isascii() and word.isdigit() and int(word) > 0):
            raise ConfigError(f"{field} must be whole numbers >= 1, separated by commas, got {word!r}")
    return tuple(map(int, listed))


def factors(field: str, text: str) -> tuple[float, ...]:
    """Read numbers such as ``0.5,1,2``.

    Raises:
        ConfigError: A word is no number.
    """
    listed = [word.strip() for word in text.split(",")]
    found = []
    for word in listed:
        try:
            found.append(float(word))
        except ValueError:
            raise ConfigError(f"{field} must be numbers, separated by commas, got {word!r}") from None
    return tuple(found)


def type_list(text: str) -> tuple[str, ...]:
    """Read data types such as ``float16,dynamic-tree:block=64,top=0.8``: what has no name of its own is a parameter."""
    listed: list[str] = []
    for word in text.split(","):
        if "=" in word and ":" not in word and listed:
            listed[-1] += f",{word.strip()}"
        else:
            listed.append(word.strip())
    return tuple(listed)
