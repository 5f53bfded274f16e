"""Options and output shared by `benchmark` and `study`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from histolumen.cli.report import report_or_warn

if TYPE_CHECKING:
    from histolumen.report.runs.plan import Plan

Out = Annotated[
    Path,
    typer.Option(help="Folder for runs and tables. Another call with the same folder resumes or shares the work."),
]
Seeds = Annotated[
    list[int] | None,
    typer.Option(
        min=0,
        metavar="SEED",
        help="Repeat for several seeds: the table then has means with intervals.",
        show_default="0; study: the recipe's own",
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="BLOCK.KEY=VALUE", help="Change one key in every run; repeatable.")
]
Images = Annotated[Path | None, typer.Option(help="Folder of the images, if they have moved.")]
Workers = Annotated[int, typer.Option(min=1, help="Number of processes on this machine that share the runs.")]
Cluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Address of a dask scheduler whose workers execute the runs.")
]


def run_and_report(
    plan: "Plan", data: Path, images: Path | None, out: Path, workers: int, cluster: str | None, *, report: bool
) -> None:
    """Run the unfinished jobs of a plan, print and write its table and report; exit code 2 if a run failed."""
    from histolumen.atomic import remove_abandoned
    from histolumen.console import ConsoleProgress
    from histolumen.data.leakage import refuse_shared_patients
    from histolumen.data.manifest import check_trainable, read_manifest
    from histolumen.locking import exclusive
    from histolumen.report.runs.runner import run_plan
    from histolumen.report.runs.table import results_table, table_name
    from histolumen.report.tables import as_text, save_tables

    manifest = read_manifest(data, images)
    check_trainable(manifest, data)
    refuse_shared_patients(manifest, data)
    results = run_plan(plan, manifest, out, workers=workers, cluster=cluster, progress=ConsoleProgress())
    table = results_table(results)
    typer.echo("\n" + as_text(table))
    with exclusive(out, "plan.lock", wait=lambda _: None):  # calls may share the folder
        remove_abandoned(out)
        written = save_tables(table, out, table_name(plan))
    typer.echo(f"written: {', '.join(map(str, written))}")
    typer.echo(f"figures: histolumen figures {out} --out FOLDER")
    if report and results.runs:
        from histolumen.report.html.write import write_report

        report_or_warn(lambda: write_report(out, progress=ConsoleProgress()), out)
    for failure in results.failures:
        typer.echo(f"left out: {failure}", err=True)
    if results.failures:
        raise typer.Exit(2)
