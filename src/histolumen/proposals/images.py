"""The training images for mask proposals: whole, without augmentation, with labels but no masks."""

from typing import Protocol

from torch import Tensor

Proposals = list[Tensor]


class WholeImages(Protocol):
    """All training images, loaded one at a time."""

    labels: Tensor
    seed: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor:
        """Image `index` [1, 3, H, W] in [0, 1], on the method's device."""
        ...

    def say(self, line: str) -> None:
        """Print a line for the user."""
        ...
