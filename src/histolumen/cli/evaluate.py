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
FLIPS_HELP = "Average over four flips of each image, four times the work; default: as the recipe says."
_FOLDS = "With --folds"  # panels of the help
_RUN = "Without --folds"


def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder, or its best/ or last/; with --folds a recipe.")
    ],
    data: Annotated[Path, typer.Option(help="Manifest.")],
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if they have moved.")] = None,
    binarise: Annotated[Binarise, typer.Option(help=BINARISE_HELP)] = "threshold",
    flips: Annotated[bool | None, typer.Option("--flips/--no-flips", help=FLIPS_HELP, rich_help_panel=_RUN)] = None,
    split: Annotated[
        Split | None, typer.Option(help="Split to evaluate.", show_default="test", rich_help_panel=_RUN)
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(help="Write all scores to this file; - is standard output.", rich_help_panel=_RUN),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Per-image table; default: evaluation/SPLIT.csv in the run folder.", rich_help_panel=_RUN),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the files of --json and --csv.", rich_help_panel=_RUN),
    ] = False,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Cross-validate a recipe: train it this many times on all but one fold.", rich_help_panel=_FOLDS
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the runs; the same call again resumes.", rich_help_panel=_FOLDS),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="BLOCK.KEY=VALUE", help="Change one key; repeatable.", rich_help_panel=_FOLDS),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes that share the runs.", rich_help_panel=_FOLDS)
    ] = 1,
) -> None:
    """Evaluate a model: classification always, masks where the manifest has ground truth. With --folds, cross-validate
    a recipe on the training and validation images."""
    from histolumen.errors import ConfigError

    if folds is not None:
        if split or json or csv or overwrite or flips is not None:
            raise ConfigError(
                "--split, --json, --csv, --overwrite and --flips are for a run; with --folds the results are in --out, "
                "and flips are set by --set images.test_flips=true"
            )
        if out is None:
            raise ConfigError("--folds trains several runs; give a folder for them with --out")
        _cross_validate(run, data, images, folds, out, tuple(overrides or ()), binarise, workers)
        return
    if out is not None or overrides or workers != 1:
        raise ConfigError("--out, --set and --workers are for the cross-validation of a recipe; add --folds 5")
    _evaluate_run(run, data, images, split or "test", json, csv, binarise, flips, overwrite)


def _evaluate_run(
    run: str,
    data: Path,
    images: Path | None,
    split: Split,
    json: Path | None,
    csv: Path | None,
    binarise: Binarise,
    flips: bool | None,
    overwrite: bool,
) -> None:
    from histolumen.engine.memory import keep_memory_flat

    keep_memory_flat()  # before torch is imported
    from histolumen.atomic import refuse_replacing
    from histolumen.config import recipe_names
    from histolumen.console import ConsoleProgress
    from histolumen.data.manifest import read_manifest
    from histolumen.engine.evaluate import evaluate as measure
    from histolumen.engine.evaluate import image_record
    from histolumen.engine.model import load
    from histolumen.errors import RunError, first_few
    from histolumen.export.files import save_json, save_table, to_json

    for path in (json, csv):
        if path is not None and path != Path("-"):
            refuse_replacing(path, overwrite)
    folder = Path(run)
    if not folder.exists() and run in recipe_names():
        raise RunError(
            f"{run}: is a recipe, not a run; train it first, or cross-validate it with --folds 5 --out FOLDER"
        )
    model = load(folder) if flips is None else load(folder).with_flips(flips)
    manifest = read_manifest(data, images)
    result = measure(model, manifest, split, binarise=binarise, progress=ConsoleProgress())
    home = folder.parent if (folder.parent / "config.yaml").is_file() else folder  # not best/: training replaces it
    name = split if binarise == "threshold" else f"{split}-{binarise}"
    if flips is not None:
        name += "-flips" if flips else "-no-flips"
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


def _cross_validate(
    recipe: str,
    data: Path,
    images: Path | None,
    folds: int,
    out: Path,
    overrides: tuple[str, ...],
    binarise: Binarise,
    workers: int,
) -> None:
    from histolumen.console import ConsoleProgress
    from histolumen.data.manifest import read_manifest
    from histolumen.report.folds import FoldsPlan, folds_table
    from histolumen.report.runs.runner import run_plan
    from histolumen.report.runs.table import table_name
    from histolumen.report.tables import as_text, save_tables

    stored = Path(recipe) / "config.yaml"
    plan = FoldsPlan(
        recipe=str(stored) if stored.is_file() else recipe, folds=folds, overrides=overrides, binarise=binarise
    )
    results = run_plan(plan, read_manifest(data, images), out, workers=workers, progress=ConsoleProgress())
    table = folds_table(results)
    typer.echo("\n" + as_text(table))
    typer.echo(f"written: {', '.join(str(path) for path in save_tables(table, out, table_name(plan)))}")
    for failure in results.failures:
        typer.echo(f"left out: {failure}", err=True)
    if results.failures:
        raise typer.Exit(2)
