"""`histolumen evaluate`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from histolumen.engine.evaluate import Evaluation

Binarise = Literal["honest", "paper"]
_TITLES = {
    "error": "classification error",
    "f1_plus": "F1+ (foreground Dice)",
    "f1_minus": "F1- (background Dice)",
    "pxap": "PxAP",
    "miou": "mIoU",
    "predicted_foreground_share": "foreground, predicted",
    "true_foreground_share": "foreground, true",
}


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder, or its best/ or last/.")],
    data: Annotated[Path, typer.Option(help="Manifest.")],
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file; - is standard output.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Per-image table; else evaluation/SPLIT.csv in the run folder.")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Where the images are, if they have moved.")] = None,
    binarise: Annotated[
        Binarise, typer.Option(help="paper: how the paper made its rivals' masks, from the true label.")
    ] = "honest",
) -> None:
    """Measure a model: classification error always, masks where the manifest has them."""
    from histolumen.data.manifest import read_manifest
    from histolumen.engine.evaluate import evaluate as measure
    from histolumen.engine.evaluate import image_record
    from histolumen.engine.model import load
    from histolumen.engine.progress import track
    from histolumen.export.files import save_json, save_table, to_json

    model = load(run)
    manifest = read_manifest(data, images)
    result = measure(model, manifest, split, lambda rows: track(rows, "evaluating"), binarise=binarise)
    home = run.parent if (run.parent / "config.yaml").is_file() else run  # beside best/, which is replaced as a whole
    name = split if binarise == "honest" else f"{split}-{binarise}"
    table = csv or home / "evaluation" / f"{name}.csv"
    save_table([image_record(image) for image in result.images], table)
    if json == Path("-"):
        sys.stdout.write(to_json(result.as_dict()) + "\n")
    else:
        target = json or home / "evaluation" / f"{name}.json"
        save_json(result.as_dict(), target)
        typer.echo(score_table(result))
        typer.echo(f"per image: {table}    all figures: {target}")
    for failure in result.failures:
        typer.echo(f"left out: {failure}", err=True)
    if result.failures:
        raise typer.Exit(2)


def score_table(result: "Evaluation") -> str:
    """The figures of an evaluation as aligned text."""
    with_mask = sum(bool(image.row.mask) for image in result.images)
    lines = [f"{result.split}: {len(result.images)} images, {with_mask} with a mask (percent, 95 % interval)"]
    for name, score in result.scores.items():
        lines.append(f"  {_TITLES[name]:24} {score.value:6.2f}   [{score.low:6.2f}, {score.high:6.2f}]")
    if result.taken_as_empty:
        lines.append(f"  {result.taken_as_empty} images of a class without any mask were taken to have no foreground")
    if result.confusion is None:
        lines.append("  no masks: classification only")
    else:
        tn, fp, fn, tp = result.confusion.values()
        hit, correct = tp / max(tp + fn, 1), tn / max(tn + fp, 1)
        lines.append(
            f"  pixels: {100 * hit:.1f} % of the foreground found, {100 * correct:.1f} % of the background left out"
        )
    return "\n".join(lines)
