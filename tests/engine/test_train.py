"""Guarantees of a run: no mask is read, resume is exact, the number of processes does not change the result."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml

from commands import histolumen
from histolumen.config import RunConfig, load_config
from histolumen.data import dataset
from histolumen.data.manifest import Manifest, Row, read_manifest
from histolumen.engine.checkpoint import load_model
from histolumen.engine.resume import check_folder
from histolumen.engine.runlog import read_metrics
from histolumen.engine.selection import TrainingState, epoch_score
from histolumen.engine.train import train
from histolumen.engine.validate import Validation
from histolumen.errors import ConfigError, DataError, ImageError, RunError
from tiny import SMALL, TINY


def weights(run: Path, which: str = "last") -> bytes:
    return (run / which / "model.safetensors").read_bytes()


def command(manifest: Manifest, out: Path, *options: str) -> list[str]:
    settings = [part for override in TINY for part in ("--set", override)]
    table = manifest.root / "manifest.csv"
    return ["train", "glas-sem", "--data", str(table), "--out", str(out), *settings, *options]


def start(arguments: list[str], *prefix: str, cwd: Path | None = None) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    launcher = prefix or (sys.executable, "-m", "histolumen")
    return subprocess.Popen(
        [*launcher, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )


def test_the_run_folder_has_all_files(tiny_run):
    names = {path.name for path in tiny_run.iterdir()}
    assert {"config.yaml", "manifest.csv", "env.json", "metrics.jsonl", "last", "best"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    complete = {"model.safetensors", "model.json", "reference.safetensors"}
    assert {p.name for p in (tiny_run / "best").iterdir()} == complete
    assert {p.name for p in (tiny_run / "last").iterdir()} == {"model.safetensors", "model.json", "state.pt"}
    assert not [name for name in names if name.startswith(".")]
    records = read_metrics(tiny_run)
    assert [record["epoch"] for record in records] == [1, 2]
    assert set(records[0]["loss"]) == {"localizer", "size", "foreground", "background", "total"}
    assert set(records[0]["valid"]) == {"error", "cross_entropy", "foreground_share", "foreground_spread"}
    assert records[1]["schedule"]["t"] == pytest.approx(5.05)


def test_the_saved_recipe_and_manifest_can_be_read(tiny_run, tiny_manifest, tiny_config):
    assert load_config(str(tiny_run / "config.yaml")) == tiny_config()
    again = read_manifest(tiny_run / "manifest.csv")
    assert again.rows == tiny_manifest.rows
    assert again.image_path(again.rows[0]).is_file()


def test_training_never_reads_a_mask(tiny_manifest, tiny_run, tiny_config, tmp_path):
    """With all mask files deleted, although the manifest names them, the weights are bit-identical."""
    copy = tmp_path / "without"
    for row in tiny_manifest.rows:
        target = copy / row.image
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(tiny_manifest.image_path(row).read_bytes())
    train(tiny_config(), replace(tiny_manifest, root=copy), tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tiny_run)
    assert weights(tmp_path / "run", "best") == weights(tiny_run, "best")


def test_the_best_epoch_does_not_depend_on_masks(tiny_manifest, tiny_run, tiny_config, tmp_path):
    inverted = tmp_path / "inverted"
    from PIL import Image, ImageOps

    for row in tiny_manifest.rows:
        for name in (row.image, row.mask):
            (inverted / name).parent.mkdir(parents=True, exist_ok=True)
            (inverted / name).write_bytes((tiny_manifest.root / name).read_bytes())
        mask = Image.open(inverted / row.mask).convert("L")
        ImageOps.invert(mask).save(inverted / row.mask)
    train(tiny_config(), replace(tiny_manifest, root=inverted), tmp_path / "run")
    ours, theirs = (json.loads((run / "best" / "model.json").read_text()) for run in (tmp_path / "run", tiny_run))
    assert ours["epoch"] == theirs["epoch"]
    assert ours["sha256"] == theirs["sha256"]


def test_a_killed_and_resumed_run_equals_an_unbroken_one(tiny_manifest, tmp_path):
    settings = ("--set", "train.epochs=6")
    whole = histolumen(*command(tiny_manifest, tmp_path / "whole", *settings))
    assert whole.returncode == 0, whole.stderr

    broken = start(command(tiny_manifest, tmp_path / "broken", *settings))
    state = tmp_path / "broken" / "last" / "state.pt"
    deadline = time.monotonic() + 200
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    broken.send_signal(signal.SIGKILL)  # at an arbitrary moment
    broken.wait()
    done = len(read_metrics(tmp_path / "broken"))
    resumed = histolumen(*command(tiny_manifest, tmp_path / "broken", "--resume", *settings))
    assert resumed.returncode == 0, resumed.stderr

    assert done < 6, "the run ended before it could be killed"
    for which in ("last", "best"):
        assert weights(tmp_path / "broken", which) == weights(tmp_path / "whole", which)
    strip = [
        [{k: v for k, v in r.items() if k != "seconds"} for r in read_metrics(tmp_path / n)]
        for n in ("broken", "whole")
    ]
    assert strip[0] == strip[1]


TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc_per_node",
    "2",
)  # on a free port
BEST = (*TINY, "train.epochs=3", "train.batch_size=2", "train.schedule=constant", "method.self_training=2")


def shortened(config: RunConfig, epochs: int) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={"epochs": epochs})})


def test_proposals_need_no_masks_and_are_kept_on_resume(tiny_manifest, tmp_path):
    """No mask file exists; a run stopped after its first or second epoch resumes with the same proposals."""
    config = load_config("glas-best", BEST)
    train(config, tiny_manifest, tmp_path / "whole")
    bare = Manifest(tuple(replace(row, mask="") for row in tiny_manifest.rows), tiny_manifest.root)
    for stop in (1, 2):
        out = tmp_path / f"stopped after {stop}"
        train(shortened(config, stop), bare, out)
        train(config, bare, out, resume=True)
        assert weights(out) == weights(tmp_path / "whole")
    names = set(safetensors.torch.load((tmp_path / "whole" / "proposals.safetensors").read_bytes()))
    count = len(tiny_manifest.split("train").rows)
    assert names == {f"{kind}.{k}" for kind in ("first", "now") for k in range(count)}


def test_a_damaged_proposal_file_is_refused(tiny_manifest, tmp_path):
    config = load_config("glas-best", BEST)
    train(shortened(config, 1), tiny_manifest, tmp_path / "run")
    others = safetensors.torch.save({"other": torch.zeros(1), "names": torch.zeros(1)})
    for content, message in ((b"not tensors", "cannot be read"), (others, "contains no proposals")):
        (tmp_path / "run" / "proposals.safetensors").write_bytes(content)
        with pytest.raises(RunError, match=rf"proposals\.safetensors: {message}"):
            train(config, tiny_manifest, tmp_path / "run", resume=True)


def test_two_processes_equal_one(tmp_path, tiny_manifest):
    """Equal losses and, after ten steps, equal weights, with frozen BatchNorm and no dropout."""
    rows = [row for row in tiny_manifest.rows if row.split == "train"][:8]
    Manifest(tuple(rows), tiny_manifest.root).write(tmp_path / "eight.csv")
    settings = [
        "backbone.statistics=frozen",
        "method.dropout=0",
        "train.epochs=5",
        "train.head_lr_factor=10",
        "method.lambda=1",
    ]
    arguments = ["train", "glas-sem", "--data", str(tmp_path / "eight.csv")]
    arguments += [part for override in (*TINY, *settings) for part in ("--set", override)]
    two = start([*arguments, "--out", str(tmp_path / "two")], *TORCHRUN, "-m", "histolumen")
    one = histolumen(*arguments, "--out", tmp_path / "one")
    assert one.returncode == 0, one.stderr
    out, err = two.communicate(timeout=300)
    assert two.returncode == 0, err
    assert out.count("epochs done") == 1  # only one process reports
    losses = [[record["loss"] for record in read_metrics(tmp_path / name)] for name in ("one", "two")]
    for single, double in zip(*losses, strict=True):
        assert double == pytest.approx(single, abs=1e-4)
    first, second = (safetensors.torch.load(weights(tmp_path / name)) for name in ("one", "two"))
    assert max((first[key].float() - second[key].float()).abs().max().item() for key in first) < 1e-4
    initial = _initial_weights(tmp_path / "one")
    assert any(not torch.equal(initial[key], first[key]) for key in first)  # training changed the weights


def test_two_processes_train_methods_with_unused_or_no_weights(tmp_path, tiny_manifest):
    recipes = ("glas-negev", "glas-all-ones", "glas-best")
    script = tmp_path / "script.py"
    script.write_text(  # one launch for all of them: starting processes is what takes the time
        "from pathlib import Path\n"
        "from histolumen.config import load_config\n"
        "from histolumen.data.manifest import read_manifest\n"
        "from histolumen.engine.train import train\n"
        f"for recipe in {recipes}:\n"
        f"    config = load_config(recipe, {[*SMALL, 'train.batch_size=4']})\n"
        f"    train(config, read_manifest(Path({str(tiny_manifest.root / 'manifest.csv')!r})), Path(recipe))\n"
    )
    process = start([str(script)], *TORCHRUN, cwd=tmp_path)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert {recipe: len(read_metrics(tmp_path / recipe)) for recipe in recipes} == dict.fromkeys(recipes, 2)


def test_unet_learns_only_from_images_whose_mask_is_known(tiny_manifest, tiny_config, tmp_path, monkeypatch):
    masked = next(row for row in tiny_manifest.split("train").rows if row.label == "benign")
    rows = tuple(replace(row, mask=row.mask if row.image == masked.image else "") for row in tiny_manifest.rows)
    seen = []
    real = dataset.TrainingImages._mask
    monkeypatch.setattr(
        dataset.TrainingImages,
        "_mask",
        lambda self, index, *rest: seen.append(self.manifest.rows[index]) or real(self, index, *rest),
    )
    config = load_config("glas-unet", [*SMALL, "train.epochs=1", "train.batch_size=2", "train.select=last"])
    train(config, Manifest(rows, tiny_manifest.root), tmp_path / "run")
    benign = {row.image for row in seen if row.label == "benign"}
    assert benign == {masked.image}  # other benign images may have glands; malignant ones have, by convention, none
    with pytest.raises(DataError, match="no training image has one"):
        train(config, Manifest(tuple(replace(row, mask="") for row in rows), tiny_manifest.root), tmp_path / "none")


def test_two_processes_resume_exactly(tmp_path, tiny_manifest):
    """With dropout, running statistics and validation shared between the processes."""

    def run(out: str, epochs: int, *options: str) -> None:
        arguments = command(tiny_manifest, tmp_path / out, "--set", f"train.epochs={epochs}", *options)
        process = start(arguments, *TORCHRUN, "-m", "histolumen")
        assert process.wait(timeout=300) == 0, process.stderr.read()

    run("whole", 3)
    run("parts", 2)
    run("parts", 3, "--resume")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    whole, parts = ([record["valid"] for record in read_metrics(tmp_path / name)] for name in ("whole", "parts"))
    assert whole == parts


def _initial_weights(run: Path) -> dict[str, torch.Tensor]:
    from histolumen.encoders.backbone import build_backbone
    from histolumen.methods.base import build_method

    config = load_config(str(run / "config.yaml"))
    torch.manual_seed(config.seed)
    return build_method(config.method, build_backbone(config.backbone), 2).state_dict()


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tiny_manifest, tiny_config, tiny_run, tmp_path):
    train(tiny_config(), tiny_manifest, tmp_path / "same")
    train(tiny_config("seed=1"), tiny_manifest, tmp_path / "other")
    assert weights(tmp_path / "same") == weights(tiny_run)
    assert weights(tmp_path / "other") != weights(tiny_run)


def test_loader_processes_do_not_change_the_result(tiny_manifest, tiny_config, tiny_run, tmp_path):
    train(tiny_config("train.workers=2"), tiny_manifest, tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tiny_run)


def test_the_best_epoch_keeps_its_own_sigma(tiny_manifest, tiny_config, tmp_path):
    config = tiny_config("train.select=last", "train.epochs=3", recipe="glas-sem-release")
    progress = train(config, tiny_manifest, tmp_path / "run")
    assert progress.best_epoch == 3
    best, _ = load_model(tmp_path / "run" / "best")
    last, _ = load_model(tmp_path / "run" / "last")
    assert best.scheduled_values()["sigma"] == pytest.approx(0.152)  # of epoch 3
    assert last.scheduled_values()["sigma"] == pytest.approx(0.153)  # for epoch 4


@pytest.mark.parametrize(
    ("rule", "errors", "cross_entropies", "chosen"),
    [
        ("accuracy", [20, 10, 10, 30], [1, 1, 2, 0], 3),  # the latest among the best: the paper's rule
        ("cross_entropy", [20, 10, 10, 30], [3, 1, 2, 4], 2),
        ("pixel_cross_entropy", [20, 10, 10, 30], [3, 1, 2, 4], 1),  # of masks, here in the order of the epochs
        ("last", [0, 10, 20, 30], [1, 2, 3, 4], 4),
    ],
)
def test_epoch_rules(rule, errors, cross_entropies, chosen):
    progress = TrainingState()
    for epoch, (error, entropy) in enumerate(zip(errors, cross_entropies, strict=True)):
        progress = progress.after(epoch, epoch_score(rule, epoch, Validation(error, entropy, 50.0, 5.0, 0.1 + epoch)))
    assert progress.epochs == len(errors)
    assert progress.best_epoch == chosen


def test_without_validation_images_the_last_epoch_is_kept(tiny_manifest, tiny_config, tmp_path):
    rows = tuple(row for row in tiny_manifest.rows if row.split == "train")
    progress = train(tiny_config(), Manifest(rows, tiny_manifest.root), tmp_path / "run")
    assert progress.best_epoch == 2
    assert "valid" not in read_metrics(tmp_path / "run")[0]


def test_more_than_two_classes(tiny_manifest, tiny_config, tmp_path):
    names = ("a", "b", "c")
    rows = tuple(replace(row, label=names[i % 3]) for i, row in enumerate(tiny_manifest.rows))
    train(tiny_config("train.epochs=1"), Manifest(rows, tiny_manifest.root), tmp_path / "run")
    _, card = load_model(tmp_path / "run" / "best")
    assert card.classes == ["a", "b", "c"]


def test_a_folder_with_a_run_is_not_overwritten(tiny_manifest, tiny_config, tiny_run):
    before = weights(tiny_run)
    with pytest.raises(RunError, match="add --resume"):
        train(tiny_config(), tiny_manifest, tiny_run)
    assert weights(tiny_run) == before


def test_a_run_is_not_resumed_with_another_recipe(tiny_manifest, tiny_config, tiny_run):
    with pytest.raises(RunError, match=r"train\.lr = 0\.001, not 0\.01"):
        train(tiny_config("train.lr=0.01"), tiny_manifest, tiny_run, resume=True)


def test_an_older_run_without_resolution_can_be_resumed(tiny_manifest, tiny_config, tiny_run, tmp_path):
    old = shutil.copytree(tiny_run, tmp_path / "run")
    recipe = yaml.safe_load((old / "config.yaml").read_text())
    del recipe["images"]["mpp"]
    (old / "config.yaml").write_text(yaml.safe_dump(recipe))
    tiny_manifest.write(old / "manifest.csv")
    check_folder(old, tiny_config(), tiny_manifest, resume=True)


def test_a_cosine_schedule_is_resumed_with_the_same_number_of_epochs(tiny_manifest, tiny_config, tmp_path):
    config = tiny_config("train.schedule=cosine", "train.epochs=1")
    train(config, tiny_manifest, tmp_path / "run")
    with pytest.raises(RunError, match="cosine schedule, which depends on it"):
        check_folder(tmp_path / "run", tiny_config("train.schedule=cosine"), tiny_manifest, resume=True)


def test_a_run_is_not_resumed_on_other_images(tiny_manifest, tiny_config, tiny_run):
    fewer = replace(tiny_manifest, rows=tiny_manifest.rows[:-1])
    with pytest.raises(RunError, match="other images or labels"):
        train(tiny_config(), fewer, tiny_run, resume=True)


def test_a_bad_image_in_a_loader_process_is_one_line(tiny_manifest, tiny_config, tmp_path):
    rows = (replace(tiny_manifest.rows[0], image="gone.png", split="train"), *tiny_manifest.rows[1:])
    with pytest.raises(ImageError, match=r"^[^\n]*gone\.png: no such file[^\n]*$"):
        train(tiny_config("train.workers=1"), replace(tiny_manifest, rows=rows), tmp_path / "run")


def test_a_loss_that_is_not_finite_is_an_error(tiny_manifest, tiny_config, tmp_path):
    config = tiny_config("train.lr=1e30", "train.epochs=4")
    with pytest.raises(RunError, match=r"the loss became .* lower train\.lr"):
        train(config, tiny_manifest, tmp_path / "run")


def test_batch_must_divide_among_processes(tiny_manifest, tiny_config, tmp_path, monkeypatch):
    from histolumen.engine import train as module

    class TwoProcesses:
        world_size = 3

    monkeypatch.setattr(module, "make_fabric", lambda *_: TwoProcesses())
    with pytest.raises(ConfigError, match="cannot be divided among 3"):
        train(tiny_config(), tiny_manifest, tmp_path / "run")


def test_labels_of_one_class_are_refused_before_any_work(tiny_config, tmp_path):
    manifest = Manifest((Row("a.png", "benign", "train"), Row("b.png", "malignant", "test")), tmp_path)
    with pytest.raises(DataError, match="only 'benign'"):
        train(tiny_config(), manifest, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_gradient_clipping_bounds_the_step(tiny_manifest, tiny_config, tmp_path):
    train(tiny_config("train.clip_gradient=1e-9", "train.weight_decay=0"), tiny_manifest, tmp_path / "run")
    trained, _ = load_model(tmp_path / "run" / "last")
    initial = _initial_weights(tmp_path / "run")
    for name, parameter in trained.named_parameters():
        assert torch.allclose(parameter, initial[name], atol=1e-6), name


def test_bfloat16_trains_where_the_processor_has_it_and_is_refused_elsewhere(
    tiny_manifest, tiny_config, tmp_path, monkeypatch
):
    from histolumen.engine import arithmetic

    config = tiny_config()
    config = config.model_copy(update={"train": config.train.model_copy(update={"precision": "bf16", "epochs": 1})})
    monkeypatch.setattr(arithmetic, "computes_in_bf16", lambda: False)
    with pytest.raises(ConfigError, match="cannot compute in bfloat16"):
        train(config, tiny_manifest, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    monkeypatch.setattr(arithmetic, "computes_in_bf16", lambda: True)  # emulated where it must be: slow, but the same
    train(config, tiny_manifest, tmp_path / "run")
    stored = safetensors.torch.load_file(tmp_path / "run" / "last" / "model.safetensors")
    assert {value.dtype for value in stored.values() if value.is_floating_point()} == {torch.float32}
    assert all(0 < record["loss"]["localizer"] < 5 for record in read_metrics(tmp_path / "run"))
