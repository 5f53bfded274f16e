"""The table of every recipe key, generated from the schema."""

from typing import Any

from histolumen.config import TrainSettings
from histolumen.data.transforms import ImageSettings
from histolumen.methods.base import method_names, settings_of
from histolumen.nets.backbones import BackboneSettings
from histolumen.settings import Settings


def reference() -> str:
    """Markdown: one table per block."""
    blocks: list[tuple[str, type[Settings]]] = [(f"method: {name}", settings_of(name)) for name in method_names()]
    blocks += [("backbone", BackboneSettings), ("images", ImageSettings), ("train", TrainSettings)]
    parts = [_table(title, model) for title, model in blocks]
    return "\n".join(
        [*parts, "## seed\n", "Seed of the first weights, the order of the images and all augmentation; default `0`."]
    )


def _table(title: str, model: type[Settings]) -> str:
    summary = (model.__doc__ or "").strip().splitlines()[0]
    lines = [f"## {title}\n", f"{summary}\n", "| key | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        meaning = " ".join((field.description or "").split())
        lines.append(f"| `{field.alias or name}` | `{_written(field.default)}` | {meaning} |")
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
