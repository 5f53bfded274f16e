"""`histolumen train`."""

from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.report import Report, report_or_warn


def train(
    recipe: Annotated[str, typer.Argument(help="Shipped recipe (see `histolumen recipes`) or a YAML file.")],
    data: Annotated[Path, typer.Option(help="Manifest (see `histolumen data`).")],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key, for example train.epochs=10. Repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume after the last finished epoch.")] = False,
    devices: Annotated[str, typer.Option(help="Number of processes on this machine; auto is one.")] = "auto",
    nodes: Annotated[int, typer.Option(min=1, help="Number of machines.")] = 1,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="32|bf16",
            help="Arithmetic of the networks, short for --set train.precision=...; bf16 is refused where the processor "
            "cannot compute in it.",
        ),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Print where the time went, at the end.")] = False,
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if they have moved.")] = None,
    report: Report = True,
) -> None:
    """Train a model from labelled images. Only U-Net, which is fully supervised, reads masks."""
    from histolumen.config import load_config
    from histolumen.console import ConsoleProgress
    from histolumen.data.manifest import check_trainable, read_manifest
    from histolumen.engine import train as training
    from histolumen.engine.launch import is_main_process

    shortcuts = [f"train.precision={precision}"] if precision else []
    config = load_config(recipe, [*(overrides or ()), *shortcuts])
    manifest = read_manifest(data, images)
    check_trainable(manifest, data)
    state = training.train(
        config,
        manifest,
        out,
        resume=resume,
        devices=devices,
        nodes=nodes,
        profile=profile,
        progress=ConsoleProgress(),
    )
    if is_main_process():
        typer.echo(f"{state.epochs} epochs done; best by train.select={config.train.select}: {state.best_epoch}")
        typer.echo(f"run: {out}    model: {out / 'best'}")
        if report:
            from histolumen.report.html.write import write_training_report

            report_or_warn(lambda: write_training_report(out, ConsoleProgress()), out)
