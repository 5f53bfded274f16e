"""The training images for mask proposals: whole, without augmentation, with labels but no masks."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from torch import Tensor

Proposals = list[Tensor]
T = TypeVar("T")


class WholeImages(Protocol):
    """All training images, loaded one at a time."""

    labels: Tensor
    classes: list[str]
    seed: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor:
        """Image `index` [1, 3, H, W] in [0, 1], on the method's device."""
        ...

    def track(self, items: Sequence[T], description: str) -> Iterable[T]:
        """Iterate over `items` and show the user how many are done."""
        ...

    def say(self, line: str) -> None:
        """Print a line for the user."""
        ...
