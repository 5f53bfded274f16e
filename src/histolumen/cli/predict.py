"""`histolumen predict`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from histolumen.cli.collector import paused_collector
from histolumen.cli.evaluate import FLIPS_HELP


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder, or its best/; or a file that `export` wrote.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="IMAGE_OR_FOLDER...", help="Images, or folders of images.")],
    out: Annotated[Path, typer.Option(help="Folder to write to; a call with the same model goes on there.")],
    threshold: Annotated[
        float, typer.Option(help="Pixels of the soft mask from this value on, between 0 and 1, are in the mask.")
    ] = 0.5,
    overlay: Annotated[bool, typer.Option("--overlay/--no-overlay", help="Write overlays, of the image size.")] = True,
    caption: Annotated[
        bool, typer.Option("--caption", help="Add class, probability and deciding area on a strip below each overlay.")
    ] = False,
    heatmap: Annotated[
        bool, typer.Option("--heatmap", help="Also write soft masks in colours, with a colour bar.")
    ] = False,
    geojson: Annotated[bool, typer.Option("--geojson", help="Also write regions as GeoJSON, for QuPath.")] = False,
    flips: Annotated[bool | None, typer.Option("--flips/--no-flips", help=FLIPS_HELP)] = None,
    runtime: Annotated[
        Literal["torch", "onnx", "openvino"] | None,
        typer.Option(help="What runs an exported file; default: as its suffix says. A run folder needs torch."),
    ] = None,
) -> None:
    """Predict class, probabilities and mask of each image; write masks, pictures and a table."""
    from histolumen.engine.memory import keep_memory_flat

    keep_memory_flat()  # before torch is imported
    with paused_collector():
        from histolumen.console import ConsoleProgress
        from histolumen.deploy.exported import load_predictor
        from histolumen.engine.model import Model
        from histolumen.engine.predict_files import find_images, predict_files
        from histolumen.errors import ConfigError, first_few
        from histolumen.familiarity.judgement import NOT_COMPARED, NOT_KNOWN

        files = find_images(inputs, out)
        model = load_predictor(run, runtime)
    if flips is not None:
        if not isinstance(model, Model):
            choice = "--flips" if flips else "--no-flips"
            raise ConfigError(f"{run}: an exported model has its flips inside; write it again with export {choice}")
        model = model.with_flips(flips)
    report = predict_files(
        model,
        files,
        out,
        threshold=threshold,
        overlay=overlay,
        caption=caption,
        heatmap=heatmap,
        geojson=geojson,
        progress=ConsoleProgress(),
    )
    for record in report.records[:20]:
        share = 100 * record["foreground_share"]
        typer.echo(f"{record['image']}: {record['prediction']} ({record['probability']:.3f}), foreground {share:.1f} %")
        if record.get("warnings"):
            typer.echo(f"  warning: {record['warnings']}")
    if len(report.records) > 20:
        typer.echo(f"... and {len(report.records) - 20} more")
    typer.echo(f"{len(report.records)} of {len(files)} images done")
    suspect = sum(bool(record.get("warnings")) for record in report.records)
    if report.records and all(record.get("unlike_training") is None for record in report.records):
        typer.echo(NOT_KNOWN if run.is_dir() else NOT_COMPARED, err=True)
    elif suspect:
        typer.echo(f"{suspect} of them with warnings, see the column warnings of the table")
    if report.records:
        folders = [str(out / name) for name, wanted in (("overlays", overlay), ("heatmaps", heatmap)) if wanted]
        pictures = f"    pictures: {', '.join(folders)}" if folders else ""
        typer.echo(f"table: {out / 'predictions.csv'}{pictures}")
    for failure in first_few(report.failures):
        typer.echo(f"left out: {failure}", err=True)
    if report.failures:
        raise typer.Exit(2)
