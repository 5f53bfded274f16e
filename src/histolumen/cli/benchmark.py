"""`histolumen benchmark`."""

from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.evaluate import Binarise


def benchmark(
    target: Annotated[
        str, typer.Argument(metavar="glas|camelyon16|MANIFEST", help="A benchmark of the paper, or your own manifest.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for runs and tables; the same folder goes on where it stopped.")],
    data: Annotated[
        Path | None, typer.Option(help="Manifest of glas or camelyon16; else glas.csv or camelyon16.csv here.")
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="One or more, as in --methods sem cam-avg; else all of them.")
    ] = None,
    seeds: Annotated[list[int] | None, typer.Option(min=0, help="One or more, as in --seeds 0 1 2; else 0.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="One recipe's backbone, images and training for all methods; else each method's own (glas-METHOD), "
            "and for your own manifest: folder."
        ),
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Backbone for all methods, instead of the recipe's.")] = None,
    split: Annotated[str, typer.Option(help="What is measured: train, valid or test.")] = "test",
    binarise: Annotated[
        Binarise, typer.Option(help="paper: how the paper made its rivals' masks, from the true label.")
    ] = "honest",
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Change one key in every run.")] = None,
    images: Annotated[Path | None, typer.Option(help="Where the images are, if they have moved.")] = None,
) -> None:
    """Train and measure all methods; tables as text, CSV, LaTeX and HTML. Stopped, it goes on where it was."""
    from histolumen.data.manifest import check_trainable, read_manifest
    from histolumen.report.benchmark import run_benchmark
    from histolumen.report.benchmark_table import benchmark_table
    from histolumen.report.plan import NAMED, Plan
    from histolumen.report.rows import find_rows
    from histolumen.report.tables import as_text, save_tables

    named = target in NAMED
    path = (data or Path(f"{target}.csv")) if named else Path(target)
    plan = Plan(
        target=target if named else "",
        methods=tuple(row.name for row in find_rows(methods or ())),
        seeds=tuple(dict.fromkeys(seeds or [0])),
        recipe=recipe if named else recipe or "folder",
        backbone=backbone,
        overrides=tuple(overrides or ()),
        split=split,
        binarise=binarise,
    )
    manifest = read_manifest(path, images)
    check_trainable(manifest, path)
    result = run_benchmark(plan, manifest, out, typer.echo)
    table = benchmark_table(result)
    name = "table" if binarise == "honest" else f"table-{binarise}"
    typer.echo("\n" + as_text(table))
    typer.echo(f"written: {', '.join(str(path) for path in save_tables(table, out, name))}")
    for failure in result.failures:
        typer.echo(f"left out: {failure}", err=True)
    if result.failures:
        raise typer.Exit(2)
