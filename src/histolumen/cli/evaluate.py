"""`histolumen evaluate`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

Split = Literal["train", "valid", "test"]
Binarise = Literal["threshold", "true-label"]
BINARISE_HELP = (
    "threshold: the soft mask at 0.5. true-label: the paper's rule for its baselines, where the argmax over class maps "
    "is the true class or, with images.negative_class, any class with foreground."
)


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder, or its best/ or last/.")],
    data: Annotated[Path, typer.Option(help="Manifest.")],
    split: Annotated[Split, typer.Option(help="Split to evaluate.")] = "test",
    json: Annotated[Path | None, typer.Option(help="Write all scores to this file; - is standard output.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Per-image table; default: evaluation/SPLIT.csv in the run folder.")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if they have moved.")] = None,
    binarise: Annotated[Binarise, typer.Option(help=BINARISE_HELP)] = "threshold",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files of --json and --csv.")] = False,
) -> None:
    """Evaluate a model: classification always, masks where the manifest has ground truth."""
    from histolumen.atomic import refuse_replacing
    from histolumen.console import ConsoleProgress
    from histolumen.data.manifest import read_manifest
    from histolumen.engine.evaluate import evaluate as measure
    from histolumen.engine.evaluate import image_record
    from histolumen.engine.model import load
    from histolumen.errors import first_few
    from histolumen.export.files import save_json, save_table, to_json

    for path in (json, csv):
        if path is not None and path != Path("-"):
            refuse_replacing(path, overwrite)
    model = load(run)
    manifest = read_manifest(data, images)
    result = measure(model, manifest, split, binarise=binarise, progress=ConsoleProgress())
    home = run.parent if (run.parent / "config.yaml").is_file() else run  # not in best/, which training replaces
    name = split if binarise == "threshold" else f"{split}-{binarise}"
    table = csv or home / "evaluation" / f"{name}.csv"
    save_table([image_record(image) for image in result.images], table)
    if json == Path("-"):
        sys.stdout.write(to_json(result.as_dict()) + "\n")
    else:
        target = json or home / "evaluation" / f"{name}.json"
        save_json(result.as_dict(), target)
        typer.echo(str(result))
        typer.echo(f"per image: {table}    all scores: {target}")
    for failure in first_few(result.failures):
        typer.echo(f"left out: {failure}", err=True)
    if result.failures:
        raise typer.Exit(2)
