"""`histolumen benchmark`."""

from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.evaluate import BINARISE_HELP, Binarise, Split
from histolumen.cli.report import Report
from histolumen.cli.runs import Cluster, Images, Out, Overrides, Seeds, Workers, run_and_report
from histolumen.report.rows import ROWS

_METHODS = ", ".join(row.name for row in ROWS)


def benchmark(
    target: Annotated[
        str, typer.Argument(metavar="glas|camelyon16|MANIFEST", help="A benchmark of the paper, or your own manifest.")
    ],
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="MANIFEST", help="Manifest of glas or camelyon16.", show_default="glas.csv or camelyon16.csv here"
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD", help=f"Repeat for several of: {_METHODS}.", show_default="all of them"),
    ] = None,
    seeds: Seeds = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe with the backbone, images and training of all methods.",
            show_default="each method's own, glas-METHOD or camelyon16-METHOD; for your own manifest: folder",
        ),
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Backbone for all methods, instead of the recipe's.")] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARCHITECTURE=FILE", help="Initial weights of all methods with that backbone. Repeat for several."
        ),
    ] = None,
    split: Annotated[Split, typer.Option(help="Split to evaluate.")] = "test",
    binarise: Annotated[Binarise, typer.Option(help=BINARISE_HELP)] = "threshold",
    overrides: Overrides = None,
    images: Images = None,
    workers: Workers = 1,
    cluster: Cluster = None,
    report: Report = True,
) -> None:
    """Train and evaluate all methods; write tables as text, CSV, LaTeX and HTML."""
    from histolumen.report.benchmark import NAMED, BenchmarkPlan

    named = target in NAMED
    plan = BenchmarkPlan(
        target=target if named else "",
        methods=tuple(methods or ()),
        seeds=tuple(seeds or [0]),
        recipe=recipe if named else recipe or "folder",
        backbone=backbone,
        weights=tuple(weights or ()),
        overrides=tuple(overrides or ()),
        split=split,
        binarise=binarise,
    )
    manifest = (data or Path(f"{target}.csv")) if named else Path(target)
    run_and_report(plan, manifest, images, out, workers, cluster, report=report)
