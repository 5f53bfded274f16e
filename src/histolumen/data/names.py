"""Names in a manifest that would mislead: invisible characters, and labels that only look different."""

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from histolumen.errors import DataError

_CONTROL = frozenset({"Cc"})  # NUL, tab, escape, ...
_INVISIBLE = frozenset({"Cc", "Cf", "Cs"})  # also zero-width and direction marks


def check_labels(source: Path, labels: Iterable[str]) -> None:
    """Refuse labels with invisible characters, and two labels that differ only in case, spaces or accent encoding."""
    seen: dict[str, str] = {}
    for label in sorted(set(labels)):
        _refuse(source, "label", label, _INVISIBLE)
        key = label_key(label)
        if key in seen:
            raise DataError(
                f"{source}: labels '{seen[key]}' and '{label}' differ only in case, spaces or the encoding of accents; "
                "write one of them everywhere"
            )
        seen[key] = label


def label_key(label: str) -> str:
    """What two labels have in common that a reader would take for the same."""
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


def check_texts(source: Path, kind: str, texts: Iterable[str]) -> None:
    """Refuse file names or patients with control characters."""
    for text in texts:
        if not text.isprintable():
            _refuse(source, kind, text, _CONTROL)


def _refuse(source: Path, kind: str, text: str, categories: frozenset[str]) -> None:
    if any(unicodedata.category(character) in categories for character in text):
        raise DataError(f"{source}: {kind} {text!a} has a character that cannot be seen; remove it")
