"""The training loop: one process or many, killed and resumed, the same for every method."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader

from histolumen.config import RunConfig
from histolumen.data.dataset import EpochSampler, TrainingImages, collate
from histolumen.data.manifest import Manifest, check_trainable
from histolumen.data.transforms import working_mpp
from histolumen.engine.checkpoint import ModelCard, load_state, load_weights, save_model, write_text
from histolumen.engine.launch import make_fabric
from histolumen.engine.memory import keep_freed_memory
from histolumen.engine.optim import build_optimizer, learning_rate, set_learning_rate
from histolumen.engine.progress import SilentReporter, TrainingReporter, console_reporter
from histolumen.engine.proposals import WholeImages, make_proposals, read_proposals
from histolumen.engine.resume import check_folder, random_state, set_random_state
from histolumen.engine.runlog import RunLog, environment
from histolumen.engine.validate import Validation, validate
from histolumen.errors import ConfigError, DataError, ImageError, RunError
from histolumen.methods.base import Batch, build_method
from histolumen.nets.backbones import build_backbone


def is_main_process() -> bool:
    """Whether this is the process that reports and writes."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


@dataclass(frozen=True)
class Progress:
    """How far a run is: epochs done, and the best of them by the run's own rule."""

    epochs: int = 0
    best_epoch: int = 0
    best_score: float = -math.inf

    def after(self, epoch: int, score: float) -> "Progress":
        """Count a finished epoch; of equal scores the latest is the best (the paper's rule)."""
        if score >= self.best_score:
            return Progress(epoch + 1, epoch + 1, score)
        return replace(self, epochs=epoch + 1)


def train(
    config: RunConfig, manifest: Manifest, out: Path, *, resume: bool = False, devices: str = "auto", nodes: int = 1
) -> Progress:
    """Train and write a run folder.

    Args:
        config: the recipe.
        manifest: the images; masks in it are read only by methods that declare so.
        out: the run folder.
        resume: go on after the last finished epoch of `out`.
        devices: processes on this machine, or "auto".
        nodes: machines.
    """
    check_trainable(manifest, manifest.root)
    check_folder(out, config, manifest, resume=resume)
    keep_freed_memory()
    fabric = make_fabric(devices, nodes)
    if config.train.batch_size % fabric.world_size:
        raise ConfigError(
            f"train.batch_size {config.train.batch_size} cannot be divided among {fabric.world_size} processes; "
            "change --devices or --set train.batch_size"
        )
    return _Run(fabric, config, manifest, out).train(resume=resume)


class _Run:
    def __init__(self, fabric: Fabric, config: RunConfig, manifest: Manifest, out: Path):
        self.fabric, self.config, self.out = fabric, config, out
        self.manifest, self.classes = manifest, manifest.classes
        torch.manual_seed(config.seed)  # the same first weights in every process
        self.method = build_method(config.method, build_backbone(config.backbone), len(self.classes))
        torch.manual_seed(config.seed * 1009 + fabric.global_rank)  # but dropout of its own
        self.optimizer = build_optimizer(self.method, config.train)
        self.method.begin(config.train.epochs, self.classes)
        training = manifest.split("train")
        if self.method.reads_masks:
            training = replace(training, rows=tuple(row for row in training.rows if training.knows_mask(row)))
            if not training.rows:
                raise DataError(f"{manifest.root}: {config.method.name} needs masks, and no training image has one")
        self.images = TrainingImages(
            training, self.classes, config.images, config.seed, with_masks=self.method.reads_masks
        )
        self.mpp = working_mpp(map(training.image_path, training.rows), config.images)
        self.own_batch = config.train.batch_size // fabric.world_size
        self.sampler = EpochSampler(
            len(self.images), self.own_batch, config.seed, fabric.global_rank, fabric.world_size
        )
        self.loader = self._make_loader()

    def _make_loader(self) -> DataLoader[Any]:
        workers = self.config.train.workers
        return DataLoader(
            self.images,
            self.own_batch,
            sampler=self.sampler,
            num_workers=workers,
            collate_fn=collate,
            persistent_workers=workers > 0,
            generator=torch.Generator(),  # else it draws from the one that dropout uses, depending on `workers`
        )

    def train(self, *, resume: bool) -> Progress:
        module, optimizer = self._set_up()
        progress = self._resume() if resume and (self.out / "last").exists() else self._begin()
        epochs = self.config.train.epochs
        with ExitStack() as stack:
            reporter: TrainingReporter = SilentReporter()
            log = None
            if self.fabric.is_global_zero:
                reporter = stack.enter_context(console_reporter(epochs, len(self.loader), progress.epochs))
                log = RunLog(self.out, progress.epochs)
                stack.callback(log.close)
            for epoch in range(progress.epochs, epochs):
                started = time.perf_counter()
                self._propose(epoch, reporter, resumed=epoch == progress.epochs > 0)
                rate = learning_rate(epoch, self.config.train)
                set_learning_rate(self.optimizer, rate)
                scheduled = self.method.statistics()
                losses, error = self._epoch(epoch, module, optimizer, reporter, rate)
                self._share_buffers()
                validation = validate(self.fabric, self.method, self.manifest, self.classes, self.config.images)
                if log is not None:  # before saving: a kill in between only repeats the epoch, line included
                    seconds = round(time.perf_counter() - started, 2)
                    record = {"epoch": epoch + 1, "seconds": seconds, "lr": rate, "loss": losses, **_named(scheduled)}
                    record |= {} if error is None else {"train": {"error": error}}
                    log.write({**record, "valid": validation.as_dict()} if validation else record)
                    reporter.epoch(_line(epoch, epochs, losses, validation, seconds))
                progress = self._keep(epoch, progress, validation)
        return progress

    def _set_up(self) -> tuple[Any, Any]:
        """Hand the method to Fabric; one without weights has nothing to share among processes."""
        if not list(self.method.parameters()):
            return self.fabric.to_device(self.method), self.optimizer
        module, optimizer = self.fabric.setup(self.method, self.optimizer)
        module.mark_forward_method("losses")
        return module, optimizer

    def _propose(self, epoch: int, reporter: TrainingReporter, *, resumed: bool) -> None:
        """Let the method propose masks where it wants to; a resumed run goes on with those it had."""
        asked = self.method.proposes(epoch)
        if asked and self.fabric.is_global_zero:
            reporter.epoch(f"epoch {epoch + 1:>3}: proposing masks for {len(self.images)} training images ...")
            examples = WholeImages(self.images, self.fabric.device, self.config.seed, reporter)
            make_proposals(self.method, examples, self.out, again=epoch > 0)
        if asked:
            self.fabric.barrier()  # until the first process has written them
        if asked or (resumed and self.method.proposes(0)):
            self.images.proposals = read_proposals(self.out)
            self.loader = self._make_loader()  # loader processes hold a copy of the images

    def _epoch(
        self, epoch: int, module: Any, optimizer: Any, reporter: TrainingReporter, rate: float
    ) -> tuple[dict[str, float], float | None]:
        """One pass over the training images; gives the mean of each loss term and the error while training."""
        self.method.train()
        self.sampler.epoch = epoch
        totals: dict[str, Tensor] = {}
        wrong = torch.zeros(2, device=self.fabric.device)  # wrongly classified, and all
        for tensors in _with_plain_errors(self.loader):
            batch = Batch(*(None if x is None else self.fabric.to_device(x) for x in tensors))  # type: ignore[arg-type]
            terms, scores = module.losses(batch)
            if scores is not None:
                wrong += torch.stack([(scores.argmax(1) != batch.labels).sum(), wrong.new_tensor(len(scores))])
            loss = cast("Tensor", sum(terms.values()))
            if not torch.isfinite(loss):
                raise RunError(
                    f"{self.out}: the loss became {loss.item()} in epoch {epoch + 1}; lower train.lr or set "
                    "train.clip_gradient. The last finished epoch is kept."
                )
            if loss.requires_grad:
                self._step(loss, module, optimizer)
            detached = {name: term.detach() for name, term in {**terms, "total": loss}.items()}
            totals = {name: totals.get(name, 0) + value for name, value in detached.items()}
            reporter.step({name: value.item() for name, value in detached.items()}, rate)
        means = {name: value / len(self.loader) for name, value in totals.items()}
        mistakes, seen = (self._mean_over_processes(value) for value in wrong)
        error = round(100 * mistakes / seen, 3) if seen else None
        return {name: self._mean_over_processes(value) for name, value in means.items()}, error

    def _step(self, loss: Tensor, module: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        self.fabric.backward(loss)
        if self.config.train.clip_gradient is not None:
            self.fabric.clip_gradients(module, optimizer, max_norm=self.config.train.clip_gradient)
        optimizer.step()

    def _share_buffers(self) -> None:
        """Give every process the running statistics of the first, which is the one that saves."""
        if self.fabric.world_size > 1:
            for buffer in self.method.buffers():
                torch.distributed.broadcast(buffer, src=0)

    def _all_random_states(self) -> Tensor:
        """[processes, bytes]: so that each process goes on with its own dropout after a resume."""
        own = random_state().to(self.fabric.device)
        states = [torch.empty_like(own) for _ in range(self.fabric.world_size)]
        if self.fabric.world_size > 1:
            torch.distributed.all_gather(states, own)
        else:
            states = [own]
        return torch.stack(states).cpu()

    def _mean_over_processes(self, value: Tensor) -> float:
        return cast("Tensor", self.fabric.all_reduce(value, reduce_op="mean")).item()

    def _keep(self, epoch: int, progress: Progress, validation: Validation | None) -> Progress:
        """Save the epoch as `best/` if the rule says so, and always as `last/`.

        `best/` holds sigma and t as they were in the epoch it is chosen for; `last/` is ready for the next epoch.
        """
        score = epoch_score(self.config.train.select, epoch, validation) if self.method.ready else -math.inf
        progress = progress.after(epoch, score)
        card = ModelCard(self.config, self.classes, epoch + 1, validation.as_dict() if validation else {}, self.mpp)
        if progress.best_epoch == progress.epochs and self.fabric.is_global_zero:
            save_model(self.out / "best", self.method, card)
        self.method.end_epoch()
        random_states = self._all_random_states()
        if self.fabric.is_global_zero:
            state = {
                "optimizer": self.optimizer.state_dict(),
                "random": random_states,
                "epochs": progress.epochs,
                "best_epoch": progress.best_epoch,
                "best_score": progress.best_score,
            }
            save_model(self.out / "last", self.method, card, state)
        self.fabric.barrier()
        return progress

    def _begin(self) -> Progress:
        if self.fabric.is_global_zero:
            write_text(self.out / "config.yaml", self.config.as_yaml())
            self.manifest.write(self.out / "manifest.csv")
            write_text(self.out / "env.json", json.dumps(environment(), indent=2) + "\n")
        self.fabric.barrier()
        return Progress()

    def _resume(self) -> Progress:
        folder = self.out / "last"
        load_weights(self.method, folder)
        state = load_state(folder)
        self.optimizer.load_state_dict(state["optimizer"])
        random_states = state["random"]
        if len(random_states) != self.fabric.world_size:
            raise RunError(
                f"{self.out}: was trained by {len(random_states)} process(es), not {self.fabric.world_size}; "
                "resume it with the same number"
            )
        set_random_state(random_states[self.fabric.global_rank])
        return Progress(state["epochs"], state["best_epoch"], state["best_score"])


def _with_plain_errors(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's batches; an image error of a loader process is one line again, without that process's traceback."""
    try:
        yield from loader
    except ImageError as error:
        raise ImageError(str(error).strip().splitlines()[-1].removeprefix("histolumen.errors.ImageError: ")) from error


def epoch_score(rule: str, epoch: int, validation: Validation | None) -> float:
    """How good an epoch is by `train.select`; higher is better."""
    judged = validation and (validation.error if rule == "accuracy" else validation.cross_entropy)
    return float(epoch) if rule == "last" or judged is None else -judged


def _named(scheduled: dict[str, float]) -> dict[str, Any]:
    return {"schedule": scheduled} if scheduled else {}


def _line(epoch: int, epochs: int, losses: dict[str, float], validation: Validation | None, seconds: float) -> str:
    terms = "  ".join(f"{name} {value:.3f}" for name, value in losses.items())
    line = f"epoch {epoch + 1:>3} of {epochs}  {seconds:5.1f} s  {terms}"
    if validation is None:
        return line
    error = "" if validation.error is None else f"error {validation.error:.1f} %  "
    share = f"{validation.foreground_share:.0f} ± {validation.foreground_spread:.0f} %"
    return f"{line}  |  validation: {error}foreground {share}"
