"""`histolumen study`."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def study(
    name: Annotated[
        Literal["ablation", "parts", "lambda", "sigma", "omega"],
        typer.Argument(help="The paper's ablation table, the parts of the -best recipes, or one curve."),
    ],
    data: Annotated[Path, typer.Option(help="Manifest.")],
    out: Annotated[Path, typer.Option(help="Folder for runs and tables; the same folder goes on where it stopped.")],
    recipe: Annotated[
        str | None,
        typer.Option(help="Max-Min recipe to vary; the paper's is glas-sem. Default: folder, for parts folder-best."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Database that several workers share: sqlite:///FILE or postgresql://... ; else a file in --out."
        ),
    ] = None,
    kinds: Annotated[list[str] | None, typer.Option(help="sem, eem; else both.")] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Several: mean and deviation; else the recipe's.")] = None,
    split: Annotated[str, typer.Option(help="What is measured: train, valid or test.")] = "valid",
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Change one key in every run.")] = None,
    images: Annotated[Path | None, typer.Option(help="Where the images are, if they have moved.")] = None,
) -> None:
    """The paper's ablation table and its curves over lambda, sigma and omega; what each added part is worth.

    Start it on several machines with the same --storage (and each its own --out): they share the trainings, and one
    that dies loses at most the one it was at.
    """
    from histolumen.extras import require

    require("study", "optuna")
    from histolumen.data.manifest import check_trainable, read_manifest
    from histolumen.report.study import run_study
    from histolumen.report.study_plan import StudyPlan
    from histolumen.report.study_points import find_kinds
    from histolumen.report.study_table import study_table
    from histolumen.report.tables import as_text, save_tables

    manifest = read_manifest(data, images)
    check_trainable(manifest, data)
    plan = StudyPlan(
        study=name,
        recipe=recipe or ("folder-best" if name == "parts" else "folder"),
        overrides=tuple(overrides or ()),
        kinds=find_kinds(kinds or ()),
        seeds=tuple(seeds or ()),
        split=split,
    )
    results, failures = run_study(plan, manifest, out, storage, typer.echo)
    table = study_table(plan, results)
    typer.echo("\n" + as_text(table))
    typer.echo(f"written: {', '.join(str(path) for path in save_tables(table, out, 'table'))}")
    typer.echo(f"curves:  histolumen figures {out} --out FOLDER")
    for failure in failures:
        typer.echo(f"left out: {failure}", err=True)
    if len(results) < len(plan.points):
        raise typer.Exit(2)
