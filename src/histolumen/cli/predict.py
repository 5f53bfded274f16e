"""`histolumen predict`."""

from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder, or its best/.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="IMAGE_OR_FOLDER...", help="Images, or folders of images.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    geojson: Annotated[bool, typer.Option("--geojson", help="Regions as GeoJSON too, for QuPath.")] = False,
) -> None:
    """Class, probabilities, soft mask, binary mask and overlay of each image."""
    from histolumen.engine.model import load
    from histolumen.engine.progress import track
    from histolumen.export.predictions import find_images, predict_files

    files = find_images(inputs, out)
    model = load(run)
    report = predict_files(model, files, out, lambda items: track(items, "predicting"), geojson=geojson)
    for record in report.records[:20]:
        share = record["foreground_share"]
        typer.echo(f"{record['image']}: {record['prediction']} ({record['probability']:.3f}), foreground {share:.1f} %")
    if len(report.records) > 20:
        typer.echo(f"... and {len(report.records) - 20} more")
    typer.echo(f"{len(report.records)} of {len(files)} images done")
    if report.records:
        typer.echo(f"table: {out / 'predictions.csv'}    pictures: {out / 'overlays'}")
    for failure in report.failures:
        typer.echo(f"left out: {failure}", err=True)
    if report.failures:
        raise typer.Exit(2)
