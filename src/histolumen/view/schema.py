"""What the viewer's API returns."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class RunInfo(BaseModel):
    """A loaded model."""

    id: str
    name: str
    method: str
    backbone: str
    classes: list[str]
    classifies: bool
    negative_class: str | None
    mean_colour: list[int] = Field(description="RGB colour of the masked pixels in X+ and X-")


class Badge(BaseModel):
    """The result of one run for the list of items."""

    label: str = Field(description="the predicted class, or `no tissue`; empty for methods that predict a mask only")
    probability: float | None = Field(description="of that class")
    foreground_share: float
    unlike_training: float | None = Field(
        default=None, description="distance from the training images relative to the limit: above 1 unlike them"
    )
    warnings: list[str] = Field(default=[], description="why the answer should not be trusted")


class ItemSummary(BaseModel):
    """An image or slide in the list."""

    id: str
    kind: Literal["image", "slide", "upload"]
    name: str
    label: str = Field(description="the true label; empty: unknown")
    split: str
    corrected: bool
    predictions: dict[str, Badge] = Field(description="by run")
    failure: str | None = None


class Items(BaseModel):
    """All items, the loaded runs, and how many predictions in the background are done."""

    items: list[ItemSummary]
    runs: list[RunInfo]
    predicted: int
    to_predict: int


class ItemDetail(ItemSummary):
    """An item with its deep zoom geometry."""

    width: int
    height: int
    mpp: float | None = Field(description="microns per pixel; null: unknown")
    tile: int
    min_level: int
    max_level: int
    has_truth: bool


class PredictionState(BaseModel):
    """A prediction, or how far it is."""

    state: Literal["done", "running", "waiting"]
    record: dict[str, Any] | None = Field(default=None, description="the row of predictions.csv or slides.csv")
    label: str = ""
    probabilities: dict[str, float] = {}
    on_foreground: dict[str, float] | None = Field(default=None, description="class probabilities on X+")
    on_background: dict[str, float] | None = Field(default=None, description="class probabilities on X-")
    unlike_training: float | None = Field(default=None, description="as in the list of items; null: not known")
    warnings: list[str] = Field(default=[], description="why the answer should not be trusted")
    activity: str = ""
    done: int = 0
    total: int = 0
    before: int = Field(default=0, description="number of predictions that are computed first")


class Saved(BaseModel):
    """Names of the files that were written."""

    files: list[str]


class Predicted(BaseModel):
    """The answer of `POST /api/predict`: the row of predictions.csv and, if asked for, the mask."""

    record: dict[str, Any]
    mask_png: str | None = Field(default=None, description="binary mask as base64-encoded PNG")


class Problem(BaseModel):
    """An error."""

    detail: str
