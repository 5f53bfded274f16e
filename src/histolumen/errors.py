"""The one family of errors a user can meet: which file, what is wrong, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class HistolumenError(Exception):
    """Something the user can put right; the command line prints it as one line and exits with code 2."""


class ImageError(HistolumenError):
    """One image or mask cannot be used; a batch goes on without it."""


class SlideError(HistolumenError):
    """One slide or its annotation cannot be used; a batch goes on without it."""


class ConfigError(HistolumenError):
    """A recipe, a key or a value is wrong."""


class DataError(HistolumenError):
    """A manifest or a data set is wrong as a whole."""


class WeightsError(HistolumenError):
    """Weights cannot be had, or do not fit the network."""


class RunError(HistolumenError):
    """A run folder or a saved model cannot be used."""


class DiskError(HistolumenError):
    """A file could not be written; what was there before is untouched."""


def nearest(name: str, known: Iterable[str]) -> str:
    """End of a sentence about an unknown name: the nearest known one, or all of them.

    Args:
        name: what the user wrote.
        known: what could have been meant.
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return "known: " + ", ".join(names)
