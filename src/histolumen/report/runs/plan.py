"""A plan: the list of configurations to train and evaluate, validated before the first run starts."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import ValidationError, field_validator

from histolumen.config import RunConfig
from histolumen.data.manifest import Manifest
from histolumen.engine.evaluate import Binarisation
from histolumen.errors import ConfigError, RunError
from histolumen.export.files import read_json, save_json
from histolumen.locking import exclusive
from histolumen.report.rows import Printed
from histolumen.settings import Settings

_FORMER_NAMES = {"honest": "threshold", "paper": "true-label"}
_OWN_START = {"all_ones": "--", "unet": "own network, from scratch"}  # these do not use the backbone
_STARTS = {"none": "from scratch", "auto": "published weights"}


@dataclass(frozen=True)
class Job:
    """One training run and its evaluation.

    Args:
        key: name of the run folder, unique in a plan.
        title: row of the table; jobs that differ only in the seed share it.
        config: configuration of the run.
        binarise: how its masks are binarised.
        printed: the paper's scores.
        ranked: whether its scores may be marked as best; False for the lower and upper bound.
        shows_error: whether the table has its classification error.
        kind: curve of a study that the job belongs to.
        value: position on that curve.
    """

    key: str
    title: str
    config: RunConfig
    binarise: Binarisation = "threshold"
    printed: Printed | None = None
    ranked: bool = True
    shows_error: bool = True
    kind: str | None = None
    value: float | None = None

    def images(self, manifest: Manifest) -> Manifest:
        """The images of this run, with their splits."""
        return manifest

    @property
    def start(self) -> str:
        """The weights that training starts from."""
        method, backbone = self.config.method.name, self.config.backbone
        if method in _OWN_START:
            return _OWN_START[method]
        return f"{backbone.name}, {_STARTS.get(backbone.weights, Path(backbone.weights).name)}"

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.title}, seed {self.config.seed}"


class Plan(Settings):
    """Settings of a benchmark or study, saved in its folder as `file`."""

    file: ClassVar[str]
    """File name of the saved plan."""
    fixed: ClassVar[tuple[str, ...]]
    """Keys that must be equal in every call with the same folder."""
    lists: ClassVar[tuple[str, ...]]
    """Keys to which a later call may add values."""
    shows_start: ClassVar[bool] = False
    """Whether the table has a column with the initial weights of each row."""
    needs_masks: ClassVar[bool] = True
    """Whether its table has no use for images without masks."""
    first_column: ClassVar[str]
    """Heading of the table's first column."""

    seeds: tuple[int, ...]
    """One run per seed."""
    overrides: tuple[str, ...] = ()
    """`block.key=value`, for every run."""
    split: str
    """Split to evaluate."""
    binarise: Binarisation = "threshold"
    """How soft masks are binarised."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in the title of the table."""

    @property
    @abstractmethod
    def training_notes(self) -> list[str]:
        """Notes below the table about how the runs are trained."""

    @abstractmethod
    def jobs(self) -> list[Job]:
        """All runs. An invalid configuration raises here, before anything is trained."""

    @field_validator("seeds")
    @classmethod
    def _each_seed_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(seeds)))

    @field_validator("binarise", mode="before")
    @classmethod
    def _read_former_names(cls, value: Any) -> Any:
        return _FORMER_NAMES.get(value, value)

    def joined(self, earlier: Self) -> Self:
        """Merge this plan with an earlier one of the same folder."""
        for key in self.fixed:
            before, now = getattr(earlier, key), getattr(self, key)
            if before != now:
                raise RunError(f"--out holds runs with {key} {before!r}, not {now!r}; choose another folder")
        if bool(earlier.seeds) != bool(self.seeds):
            raise RunError("--out holds runs with and without --seeds; choose another folder for one of them")
        both = {key: (*getattr(earlier, key), *getattr(self, key)) for key in self.lists}
        return type(self)(**{**self.model_dump(), **both})


P = TypeVar("P", bound=Plan)


def save_plan(plan: Plan, out: Path) -> Plan:
    """Merge the plan with that of earlier calls, save the result in the folder and return it."""
    with exclusive(out, "plan.lock", wait=lambda _: None):  # two calls at once would forget one another's runs
        earlier = read_plan(out, type(plan)) if (out / plan.file).exists() else None
        whole = plan if earlier is None else plan.joined(earlier)
        save_json(whole.model_dump(mode="json"), out / plan.file)
        return whole


def read_plan(out: Path, plan_type: type[P]) -> P:
    """Read the plan of a folder."""
    path = out / plan_type.file
    try:
        content = read_json(path)
        return plan_type.model_validate(content.get("plan", content))  # earlier versions stored scores in the same file
    except (OSError, ValueError, AttributeError, ValidationError, ConfigError) as error:
        raise RunError(f"{path}: not a valid plan; choose another folder, or delete the file") from error
