"""`histolumen demo`: training, evaluation and prediction on synthetic images."""

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.report import Report, report_or_warn

_SHEET_IMAGES = 6  # images in overlays.png
_GLASS = 0.25  # share of images with the edge of the section, as in many folders of real images


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to; it must be new or empty.")] = Path("demo-output"),
    images: Annotated[int, typer.Option(min=12, help="Number of synthetic images.")] = 120,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the images and of the training.")] = 0,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Change one key of the demo recipe.")] = None,
    report: Report = True,
) -> None:
    """Create synthetic gland images, train on their labels alone, evaluate, and draw the masks."""
    from histolumen.config import load_config
    from histolumen.console import ConsoleProgress
    from histolumen.data.sources.synthetic import write_synthetic_set
    from histolumen.engine.train import train
    from histolumen.errors import RunError

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out}: is not empty; remove it or choose another --out")
    started = time.perf_counter()
    config = load_config("demo", [f"seed={seed}", *(overrides or ())])
    typer.echo(f"1/4  creating {images} synthetic images of benign and malignant glands")
    manifest = write_synthetic_set(out / "data", images, 256, seed, ConsoleProgress(), glass=_GLASS)
    manifest.write(out / "data" / "manifest.csv")
    typer.echo(f"2/4  training on the labels alone ({config.train.epochs} epochs; the masks are not read)")
    train(config, manifest, out / "run", devices="1", progress=ConsoleProgress())
    typer.echo("3/4  evaluating on unseen test images")
    _evaluate(out, report)
    typer.echo(f"done in {time.perf_counter() - started:.0f} s")
    typer.echo(f"results:  {out / 'overlays.png'}; one picture per test image is in {out / 'overlays'}")
    typer.echo(f"model:    {out / 'run' / 'best'}; use it on any image with")
    typer.echo(f"    histolumen predict {out / 'run'} IMAGE_OR_FOLDER --out predictions")


def _evaluate(out: Path, report: bool) -> None:
    import numpy as np

    from histolumen.console import ConsoleProgress
    from histolumen.data.image import read_image
    from histolumen.data.manifest import Row, read_manifest
    from histolumen.engine.evaluate import evaluate, image_record
    from histolumen.engine.model import load
    from histolumen.engine.prediction import Prediction
    from histolumen.export.files import save_json, save_picture, save_table
    from histolumen.export.overlay import draw_comparison, draw_sheet
    from histolumen.report.html.gallery import WorstFirst
    from histolumen.report.html.page import save_page
    from histolumen.report.html.run import as_stored, describe_run

    manifest = read_manifest(out / "data" / "manifest.csv")
    pictures = []
    worst = WorstFirst()

    def draw(row: Row, prediction: Prediction, truth: np.ndarray | None) -> None:
        worst.consider(row, prediction, truth)
        if truth is None:
            return
        image = read_image(manifest.image_path(row))
        probability = prediction.probability
        caption = (
            f"true: {row.label}   predicted: {prediction.label} {probability:.2f}   (blue: missed, orange: false alarm)"
        )
        picture = draw_comparison(image, prediction.mask, truth, caption)
        save_picture(picture, out / "overlays" / f"{Path(row.image).stem}.png")
        pictures.append(picture)

    result = evaluate(load(out / "run"), manifest, "test", draw, progress=ConsoleProgress())
    folder = out / "run" / "evaluation"
    save_json(result.as_dict(), folder / "test.json")
    save_table([image_record(image) for image in result.images], folder / "test.csv")
    typer.echo(str(result))
    typer.echo("4/4  drawing image, mask, and errors of the mask")
    save_picture(draw_sheet(pictures[:_SHEET_IMAGES]), out / "overlays.png")
    if report:
        page = partial(describe_run, out / "run", manifest, as_stored(result), worst, "Demo: synthetic glands")
        report_or_warn(lambda: save_page(page(), out / "report.html"), out / "run")
