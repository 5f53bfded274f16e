"""The table of every recipe key, generated from the schema."""

from typing import Any

from histolumen.config.schema import RunConfig
from histolumen.methods.base import all_settings
from histolumen.settings import Settings


def reference() -> str:
    """Markdown: one table per block."""
    parts = [_table(f"method: {model.model_fields['name'].default}", model) for model in all_settings()]
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            parts.append(_table(name, field.annotation))
        elif name != "method":
            parts.append(f"## {name}\n\n{field.description} Default `{_as_yaml(field.default)}`.")
    return "\n".join(parts)


def _table(title: str, model: type[Settings]) -> str:
    summary = (model.__doc__ or "").strip().splitlines()[0]
    lines = [f"## {title}\n", f"{summary}\n", "| key | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        meaning = " ".join((field.description or "").split())
        lines.append(f"| `{field.alias or name}` | `{_as_yaml(field.default)}` | {meaning} |")
    return "\n".join(lines) + "\n"


def _as_yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
