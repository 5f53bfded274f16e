"""The training loop: one or many processes, resumable, the same for every method."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from histolumen.atomic import remove_abandoned
from histolumen.config import RunConfig
from histolumen.data.check import split_notes
from histolumen.data.dataset import EpochSampler, TrainingImages
from histolumen.data.leakage import refuse_shared_patients
from histolumen.data.manifest import Manifest, check_trainable
from histolumen.data.transforms import working_mpp
from histolumen.encoders.backbone import build_backbone
from histolumen.encoders.freezing import freeze_stages
from histolumen.engine.arithmetic import check_precision, compile_backbone, memory_layout
from histolumen.engine.checkpoint import ModelCard, load_state, load_weights, save_model, write_text
from histolumen.engine.completion import complete_model
from histolumen.engine.launch import make_fabric
from histolumen.engine.loading import decode_once, loader_processes, make_loader
from histolumen.engine.memory import keep_freed_memory
from histolumen.engine.optim import build_optimizer, learning_rate, set_learning_rate
from histolumen.engine.proposals import WholeTrainingImages, make_proposals, read_proposals
from histolumen.engine.resume import check_folder, random_state, set_random_state
from histolumen.engine.runlog import RunLog, environment
from histolumen.engine.selection import TrainingState, epoch_score
from histolumen.engine.steps import Steps
from histolumen.engine.supervised import MaskValidation
from histolumen.engine.timing import Stopwatch
from histolumen.engine.validate import Validation, validate
from histolumen.errors import ConfigError, DataError, HistolumenError, RunError
from histolumen.locking import exclusive
from histolumen.methods.base import build_method
from histolumen.progress import SILENT, Progress


def train(
    config: RunConfig,
    manifest: Manifest,
    out: Path,
    *,
    resume: bool = False,
    devices: str = "auto",
    nodes: int = 1,
    profile: bool = False,
    progress: Progress = SILENT,
) -> TrainingState:
    """Train and write a run folder.

    Args:
        config: the recipe.
        manifest: the images; masks are read only by methods with `reads_masks`.
        out: the run folder.
        resume: continue after the last finished epoch of `out`.
        devices: number of processes on this machine, or "auto".
        nodes: number of machines.
        profile: report where the time went, as a message at the end.
        progress: receives steps and epochs.
    """
    check_trainable(manifest, manifest.root)
    refuse_shared_patients(manifest, manifest.root)
    check_folder(out, config, manifest, resume=resume)
    check_precision(config.train.precision)
    keep_freed_memory()
    fabric = make_fabric(devices, nodes)
    if config.train.batch_size % fabric.world_size:
        raise ConfigError(
            f"train.batch_size {config.train.batch_size} cannot be divided among {fabric.world_size} processes; "
            "change --devices or --set train.batch_size"
        )
    reporting = progress if fabric.is_global_zero else SILENT
    with _only_writer(fabric, out):
        check_folder(out, config, manifest, resume=resume)  # again: another run may have ended meanwhile
        return _Run(fabric, config, manifest, out, reporting).train(resume=resume, profile=profile)


@contextmanager
def _only_writer(fabric: Fabric, out: Path) -> Iterator[None]:
    """Hold the run folder by the first process; if it is in use, all processes raise the same error."""
    with ExitStack() as stack:
        refusal = None
        if fabric.is_global_zero:
            try:
                stack.enter_context(exclusive(out))
                remove_abandoned(out)
            except HistolumenError as error:
                refusal = error
        if (refusal := fabric.broadcast(refusal)) is not None:
            raise refusal
        yield


class _Run:
    def __init__(self, fabric: Fabric, config: RunConfig, manifest: Manifest, out: Path, progress: Progress):
        self.fabric, self.config, self.out, self.progress = fabric, config, out, progress
        self.manifest, self.classes = manifest, manifest.classes
        torch.manual_seed(config.seed)  # the same initial weights in every process
        negative_class = config.images.negative_index(self.classes)
        self.method = build_method(config.method, build_backbone(config.backbone), len(self.classes), negative_class)
        freeze_stages(self.method.backbone, config.backbone.freeze)
        layout = memory_layout(self.method, config.train)
        self.method = self.method.to(memory_format=layout)  # pyright: ignore[reportCallIssue]
        if config.train.compile:
            compile_backbone(self.method.backbone)
        torch.manual_seed(config.seed * 1009 + fabric.global_rank)  # but independent dropout
        self.optimizer = build_optimizer(self.method, config.train)
        self.method.on_train_start(config.train.epochs)
        training = manifest.split("train")
        if self.method.reads_masks:
            training = replace(training, rows=tuple(row for row in training.rows if training.knows_mask(row)))
            if not training.rows:
                raise DataError(f"{manifest.root}: {config.method.name} needs masks, and no training image has one")
        self.images = TrainingImages(
            training,
            self.classes,
            config.images,
            config.seed,
            with_masks=self.method.reads_masks,
            multiple=self.method.backbone.size_multiple,
        )
        self.mpp = working_mpp(map(training.image_path, training.rows), config.images, self.images.multiple)
        self.mask_validation: MaskValidation | None = None
        if config.train.select == "pixel_cross_entropy":  # only U-Net: see engine/supervised.py
            self.mask_validation = MaskValidation(self.method, manifest, self.classes, config.images)
        self.own_batch = config.train.batch_size // fabric.world_size
        self.sampler = EpochSampler(
            len(self.images),
            self.own_batch,
            config.seed,
            fabric.global_rank,
            fabric.world_size,
            fill=config.train.last_batch == "fill",
        )
        batch_bytes = self.own_batch * 3 * self.images.settings.crop**2 * 4
        self.workers = loader_processes(config.train.workers, fabric.device, batch_bytes)
        self.loader = self._make_loader()

    def _make_loader(self) -> Any:
        return make_loader(self.images, self.own_batch, self.sampler, self.workers)

    def train(self, *, resume: bool, profile: bool) -> TrainingState:
        module, optimizer = self._set_up()
        on_gpu = self.fabric.device.type == "cuda"
        watch = Stopwatch(torch.cuda.synchronize if profile and on_gpu else None)
        steps = Steps(self.fabric, self.method, module, optimizer, self.config.train, watch)
        state = self._resume() if resume and (self.out / "last").exists() else self._begin()
        epochs = self.config.train.epochs
        with ExitStack() as stack:
            log = RunLog(self.out, state.epochs) if self.fabric.is_global_zero else None
            for note in [*split_notes(self.manifest), *self.method.backbone.notes]:
                self.progress.message(note)
            decode_once(self.images, self.workers, self.progress)
            self.progress.training_started(epochs, len(self.loader), state.epochs)
            if profile:
                stack.callback(lambda: self.progress.message(watch.table()))
            stack.callback(self.progress.training_ended)
            for epoch in range(state.epochs, epochs):
                started = time.perf_counter()
                with watch.phase("proposals"):
                    self._propose(epoch, resumed=epoch == state.epochs > 0)
                rate = learning_rate(epoch, self.config.train)
                set_learning_rate(self.optimizer, rate)
                scheduled = self.method.scheduled_values()
                self.sampler.epoch = epoch
                losses, error = steps.epoch(self.loader, self.out, epoch, rate, self.progress)
                self._share_buffers()
                with watch.phase("validation"):
                    validation = self._validate()
                if log is not None:  # before saving: after a kill in between, the epoch and its line are repeated
                    seconds = round(time.perf_counter() - started, 2)
                    record: dict[str, Any] = {"epoch": epoch + 1, "seconds": seconds, "lr": rate, "loss": losses}
                    record |= {"schedule": scheduled} if scheduled else {}
                    record |= {} if error is None else {"train": {"error": error}}
                    record |= {"valid": validation.as_dict()} if validation else {}
                    log.write(record)
                    self.progress.training_epoch(record)
                with watch.phase("checkpoint"):
                    state = self._save(epoch, state, validation)
        if self.fabric.is_global_zero:
            valid = self.manifest.split("valid")
            complete_model(self.out / "best", self.images.manifest, valid, self.fabric.device, self.progress)
        self.fabric.barrier()
        return state

    def _set_up(self) -> tuple[Any, Any]:
        """Set up method and optimiser with Fabric; DDP does not accept a method without weights."""
        if not list(self.method.parameters()):
            return self.fabric.to_device(self.method), self.optimizer
        module, optimizer = self.fabric.setup(self.method, self.optimizer)
        module.mark_forward_method("losses")
        return module, optimizer

    def _propose(self, epoch: int, *, resumed: bool) -> None:
        """Let the method propose masks if it needs new ones; a resumed run reloads the current ones."""
        needed = self.method.wants_proposals(epoch)
        if needed and self.fabric.is_global_zero:
            self.progress.message(f"epoch {epoch + 1:>3}: proposing masks for {len(self.images)} training images ...")
            examples = WholeTrainingImages(self.images, self.fabric.device, self.config.seed, self.progress)
            make_proposals(self.method, examples, self.out, again=epoch > 0)
        if needed:
            self.fabric.barrier()  # the first process writes them
        if needed or (resumed and self.method.wants_proposals(0)):
            self.images.proposals = read_proposals(self.out)
            self.loader = self._make_loader()  # loader processes hold a copy of the images

    def _validate(self) -> Validation | None:
        validation = validate(self.fabric, self.method, self.manifest, self.classes, self.config.images)
        if validation and self.mask_validation:
            pixels = self.mask_validation.pixel_cross_entropy(self.fabric)
            validation = replace(validation, pixel_cross_entropy=pixels)
        return validation

    def _share_buffers(self) -> None:
        """Copy the running statistics of the first process, which saves the model, to all others."""
        if self.fabric.world_size > 1:
            for buffer in self.method.buffers():
                torch.distributed.broadcast(buffer, src=0)

    def _all_random_states(self) -> Tensor:
        """Random states of all processes [processes, bytes], so that each one resumes its own dropout."""
        own = random_state().to(self.fabric.device)
        states = [torch.empty_like(own) for _ in range(self.fabric.world_size)]
        if self.fabric.world_size > 1:
            torch.distributed.all_gather(states, own)
        else:
            states = [own]
        return torch.stack(states).cpu()

    def _save(self, epoch: int, state: TrainingState, validation: Validation | None) -> TrainingState:
        """Save the epoch as `last/` and, if it is the best so far, as `best/`.

        `best/` holds sigma and t of its own epoch, `last/` those of the next epoch.
        """
        score = epoch_score(self.config.train.select, epoch, validation) if self.method.selectable else -math.inf
        state = state.after(epoch, score)
        card = ModelCard(self.config, self.classes, epoch + 1, validation.as_dict() if validation else {}, self.mpp)
        if state.best_epoch == state.epochs and self.fabric.is_global_zero:
            save_model(self.out / "best", self.method, card)
        self.method.on_epoch_end()
        random_states = self._all_random_states()
        if self.fabric.is_global_zero:
            training_state = {
                "optimizer": self.optimizer.state_dict(),
                "random": random_states,
                "epochs": state.epochs,
                "best_epoch": state.best_epoch,
                "best_score": state.best_score,
            }
            save_model(self.out / "last", self.method, card, training_state)
        self.fabric.barrier()
        return state

    def _begin(self) -> TrainingState:
        if self.fabric.is_global_zero:
            write_text(self.out / "config.yaml", self.config.as_yaml())
            self.manifest.write(self.out / "manifest.csv")
            write_text(self.out / "env.json", json.dumps(environment(), indent=2) + "\n")
        self.fabric.barrier()
        return TrainingState()

    def _resume(self) -> TrainingState:
        folder = self.out / "last"
        load_weights(self.method, folder)
        state = load_state(folder)
        self.optimizer.load_state_dict(state["optimizer"])
        random_states = state["random"]
        if len(random_states) != self.fabric.world_size:
            raise RunError(
                f"{self.out}: was trained by {len(random_states)} process(es), not {self.fabric.world_size}; "
                "resume with the same number"
            )
        set_random_state(random_states[self.fabric.global_rank])
        return TrainingState(state["epochs"], state["best_epoch"], state["best_score"])
