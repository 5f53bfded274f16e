"""Errors that a user can fix. Each message says which file, what is wrong and what to do."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MAX_LISTED = 40  # longer lists of names are shortened
_SUGGESTIONS = 5  # names shown of a longer list
_FIRST_FEW = 10  # messages shown of a longer list


class HistolumenError(Exception):
    """An error that the user can fix; the command line prints it as one line and exits with code 2."""


class ImageError(HistolumenError):
    """One image or mask cannot be used; a batch continues without it."""


class SlideError(HistolumenError):
    """One slide or its annotation cannot be used; a batch continues without it."""


class ConfigError(HistolumenError):
    """A recipe, a key or a value is invalid."""


class DataError(HistolumenError):
    """A manifest or a data set as a whole is invalid."""


class WeightsError(HistolumenError):
    """Weights are not available or do not fit the network."""


class RunError(HistolumenError):
    """A run folder or a saved model cannot be used."""


class DiskError(HistolumenError):
    """A file could not be written; the existing one is unchanged."""

    whole_disk = False
    """Whether every further file would be refused too (a full or read-only disk): a batch stops."""


class LockedError(HistolumenError):
    """Another process is writing to the same folder."""


def first_few(messages: Sequence[str]) -> list[str]:
    """The first messages of a list, and how many there are besides: nobody reads 100,000 lines."""
    more = len(messages) - _FIRST_FEW
    return [*messages[:_FIRST_FEW], *([f"... and {more:,} more"] if more > 0 else [])]


def nearest(name: str, known: Iterable[str]) -> str:
    """End of an error message about an unknown name: close names, or all if they are few and none is close.

    Args:
        name: what the user wrote.
        known: the valid names.
    """
    names = sorted(set(known))
    many = len(names) > _MAX_LISTED
    close = get_close_matches(name, names, n=_SUGGESTIONS if many else 1, cutoff=0.5)
    if many and not close:
        close = get_close_matches(name, names, n=_SUGGESTIONS, cutoff=0)
    if close:
        *others, last = (f"'{each}'" for each in close)
        return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
    return "known: " + ", ".join(names)
