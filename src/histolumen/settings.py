"""Base class of all settings: typed, frozen, documented, and strict about unknown keys."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from histolumen.errors import ConfigError


class Settings(BaseModel):
    """A block of a recipe, or the options of a command; declared next to the code that reads it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


S = TypeVar("S", bound=Settings)


def keys_of(model: type[BaseModel]) -> dict[str, str]:
    """Map each key as written in a recipe to its field name."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def from_options(model: type[S], **options: Any) -> S:
    """Build settings from the options of a command; the error for an invalid value names the option."""
    try:
        return model(**options)
    except ValidationError as error:
        problem = error.errors()[0]
        option = "--" + str(problem["loc"][0]).replace("_", "-") if problem["loc"] else "options"
        raise ConfigError(f"{option} {problem['input']}: {complaint(problem)}") from error


def complaint(problem: Any) -> str:
    """The message of a pydantic error, formatted to follow a colon."""
    message = problem["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:]
