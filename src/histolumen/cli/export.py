"""`histolumen export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from histolumen.cli.evaluate import FLIPS_HELP

Format = Literal["onnx", "openvino", "torchscript"]


def export(
    run: Annotated[Path, typer.Argument(help="Run folder, or its best/.")],
    out: Annotated[Path, typer.Option(help="File (.onnx, .xml or .pt), or a folder for model.onnx, .xml or .pt.")],
    file_format: Annotated[Format, typer.Option("--format", help="Format of the graph.")] = "onnx",
    flips: Annotated[bool | None, typer.Option("--flips/--no-flips", help=FLIPS_HELP)] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Quantise to 8 bits; needs --calibrate. Only onnx and openvino.")
    ] = False,
    calibrate: Annotated[
        Path | None, typer.Option(help="Manifest for --int8: training images calibrate, validation images are scored.")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the manifest's images, if they have moved.")] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="With --int8: write even if F1 falls by more than one point.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Write a model as one graph, from an image of any size to class and mask, for other runtimes."""
    from histolumen.console import ConsoleProgress
    from histolumen.data.manifest import read_manifest
    from histolumen.deploy.export import card_path, export_model
    from histolumen.engine.model import load
    from histolumen.errors import ConfigError

    if int8 != (calibrate is not None):
        raise ConfigError("--int8 and --calibrate MANIFEST belong together: give both or neither")
    manifest = None if calibrate is None else read_manifest(calibrate, images)
    model = load(run, device="cpu")
    result = export_model(
        model if flips is None else model.with_flips(flips),
        out,
        file_format,
        calibrate=manifest,
        accept_loss=accept_loss,
        overwrite=overwrite,
        progress=ConsoleProgress(),
    )
    typer.echo(f"graph: {result.path}    card: {card_path(result.path)}")
    typer.echo(f"use it: histolumen predict {result.path} IMAGES --out FOLDER, or without histolumen: docs/export.md")
