"""`histolumen study`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from histolumen.cli.evaluate import BINARISE_HELP, Binarise, Split
from histolumen.cli.report import Report
from histolumen.cli.runs import Cluster, Images, Out, Overrides, Seeds, Workers, run_and_report


class Kind(StrEnum):
    """Form of the background term; an Enum because Typer does not accept lists of a Literal."""

    sem = "sem"
    eem = "eem"


def study(
    name: Annotated[
        Literal["ablation", "parts", "lambda", "sigma", "omega"],
        typer.Argument(help="The paper's ablation table, the parts of the -best recipes, or one curve."),
    ],
    data: Annotated[Path, typer.Option(metavar="MANIFEST", help="Manifest.")],
    out: Out,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Max-Min recipe to vary; the paper's is glas-sem.", show_default="folder; for parts: folder-best"
        ),
    ] = None,
    kinds: Annotated[
        list[Kind] | None,
        typer.Option(metavar="sem|eem", help="Form of the background term; repeat for both.", show_default="both"),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="ROW", help="A row of the study's table; repeat for several.", show_default="all"),
    ] = None,
    seeds: Seeds = None,
    split: Annotated[Split, typer.Option(help="Split to evaluate.")] = "valid",
    binarise: Annotated[Binarise, typer.Option(help=BINARISE_HELP)] = "threshold",
    overrides: Overrides = None,
    images: Images = None,
    workers: Workers = 1,
    cluster: Cluster = None,
    report: Report = True,
) -> None:
    """Run the paper's ablation, its curves over lambda, sigma and omega, or an ablation of the added parts.

    Machines that share the folder --out share the runs: start the same command on each.
    """
    from histolumen.report.study import StudyPlan

    plan = StudyPlan(
        study=name,
        recipe=recipe or ("folder-best" if name == "parts" else "folder"),
        overrides=tuple(overrides or ()),
        kinds=tuple(kind.value for kind in kinds or ()),
        rows=tuple(rows or ()),
        seeds=tuple(seeds or ()),
        split=split,
        binarise=binarise,
    )
    run_and_report(plan, data, images, out, workers, cluster, report=report)
