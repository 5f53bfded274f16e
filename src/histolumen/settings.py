"""Base of every settings block: typed, frozen, documented, and strict about unknown keys."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A block of a recipe. Each room declares its own next to the code that reads it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)
