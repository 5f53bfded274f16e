"""The steps of a training epoch: loss, gradient, optimiser."""

from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader

from histolumen.config import TrainSettings
from histolumen.engine.arithmetic import memory_layout
from histolumen.engine.loading import with_short_errors
from histolumen.engine.timing import Stopwatch
from histolumen.errors import RunError
from histolumen.methods.base import Method
from histolumen.progress import Progress


class Steps:
    """Runs the steps of an epoch on the method as it was set up by Fabric."""

    def __init__(
        self, fabric: Fabric, method: Method, module: Any, optimizer: Any, settings: TrainSettings, watch: Stopwatch
    ):
        self.fabric, self.method, self.module, self.optimizer = fabric, method, module, optimizer
        self.settings, self.watch = settings, watch
        self._mixed = settings.precision == "bf16"
        self._layout = memory_layout(method, settings)

    def epoch(
        self, loader: DataLoader[Any], out: Path, number: int, rate: float, progress: Progress
    ) -> tuple[dict[str, float], float | None]:
        """Train one epoch; return the mean of each loss term and the training error in percent."""
        self.method.train()
        totals: dict[str, Tensor] = {}
        wrong = torch.zeros(2, device=self.fabric.device)  # misclassified images, all images
        for loaded in self.watch.waiting(with_short_errors(loader)):
            with self.watch.phase("forward"):
                batch = (
                    loaded.map(self.fabric.to_device).without_glass(self.method.backbone.mean).laid_out(self._layout)
                )
                # not Fabric's own precision: it casts the weights anew for each layer and pass, and takes twice as long
                with torch.autocast(self.fabric.device.type, torch.bfloat16, enabled=self._mixed):
                    terms, scores = self.module.losses(batch)
                if scores is not None:
                    wrong += torch.stack([(scores.argmax(1) != batch.labels).sum(), wrong.new_tensor(len(scores))])
                loss = cast("Tensor", sum(terms.values()))
                if not torch.isfinite(loss):
                    raise RunError(
                        f"{out}: the loss became {loss.item()} in epoch {number + 1}; lower train.lr or set "
                        "train.clip_gradient. The last finished epoch is kept."
                    )
            if loss.requires_grad:
                self._step(loss)
            detached = {name: term.detach() for name, term in {**terms, "total": loss}.items()}
            totals = {name: totals.get(name, 0) + value for name, value in detached.items()}
            progress.training_step({name: value.item() for name, value in detached.items()}, rate)
        means = {name: value / len(loader) for name, value in totals.items()}
        misclassified, total = (self._mean_over_processes(value) for value in wrong)
        error = round(100 * misclassified / total, 3) if total else None
        return {name: self._mean_over_processes(value) for name, value in means.items()}, error

    def _step(self, loss: Tensor) -> None:
        with self.watch.phase("backward"):
            self.optimizer.zero_grad()
            self.fabric.backward(loss)
        with self.watch.phase("optimizer"):
            if self.settings.clip_gradient is not None:
                self.fabric.clip_gradients(self.module, self.optimizer, max_norm=self.settings.clip_gradient)
            self.optimizer.step()

    def _mean_over_processes(self, value: Tensor) -> float:
        return cast("Tensor", self.fabric.all_reduce(value, reduce_op="mean")).item()
