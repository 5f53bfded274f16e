"""`histolumen slide`."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from histolumen.slides.batch import SlideState

FAILED = 3  # some slides were done, others could not be


def slide(
    run: Annotated[Path, typer.Argument(help="Run folder, or its best/.")],
    slides: Annotated[
        list[Path],
        typer.Argument(metavar="SLIDE...", help="Slides (.svs, .tif, .ndpi, .mrxs, ...), or folders of them."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write to; the same folder goes on where it stopped.")],
    workers: Annotated[int, typer.Option(min=1, help="Threads that read tiles while the network works.")] = 2,
    cluster: Annotated[
        str | None, typer.Option(help="Address of a dask scheduler whose workers do the slides.", metavar="ADDRESS")
    ] = None,
    slide_mpp: Annotated[
        float | None, typer.Option(help="Microns per pixel of the slides; else what they state.")
    ] = None,
    model_mpp: Annotated[
        float | None, typer.Option(help="Microns per pixel that the network sees; else what the model knows.")
    ] = None,
    flips: Annotated[
        bool | None,
        typer.Option("--flips/--no-flips", help="Mean over four flips, four times the work; else as the model does."),
    ] = None,
    tile: Annotated[int, typer.Option(min=128, help="Side of a tile in pixels that the network sees.")] = 1024,
    overlap: Annotated[int, typer.Option(min=64, help="Overlap of neighbouring tiles, blended.")] = 192,
    min_area: Annotated[float, typer.Option(min=0, help="Leave smaller regions out of the GeoJSON, in µm².")] = 100.0,
) -> None:
    """Class, heat map and regions of whole slides, for OpenSlide and QuPath. Exit code 3: some slides failed."""
    from histolumen.engine.progress import track
    from histolumen.slides.batch import do_slides, plan_jobs, save_slides
    from histolumen.slides.predict import SlideSettings

    settings = SlideSettings(tile, overlap, workers, slide_mpp, model_mpp, flips, min_area)
    jobs, repeated = plan_jobs(run, slides, out, settings)
    if cluster is None:
        states = do_slides(jobs, lambda name: lambda tiles, what: track(tiles, f"{name}, {what}"))
    else:
        from histolumen.slides.cluster import do_slides_on_cluster

        states = do_slides_on_cluster(jobs, cluster)
    total = len(jobs) + len(repeated)
    done: list[SlideState] = []
    try:
        done.extend(_told(chain(repeated, states), total))
    finally:
        if done:
            save_slides(done, out)
    good = sum(state.state == "done" for state in done)
    typer.echo(f"{good} of {total} slides done")
    typer.echo(f"table: {out / 'slides.csv'}")
    if good < total:
        raise typer.Exit(FAILED)


def _told(states: "Iterable[SlideState]", total: int) -> "Iterator[SlideState]":
    """Print a line for each slide as it is finished."""
    for number, state in enumerate(states, start=1):
        if state.state == "failed":
            typer.echo(f"left out: {state.why}", err=True)
        else:
            found = state.record
            typer.echo(
                f"{number} of {total}  {Path(state.slide).name}: {found['prediction'] or 'foreground'} "
                f"({found['probability']:.3f}), {found['regions']} regions, {found['foreground_mm2']:.3f} of "
                f"{found['tissue_mm2']:.3f} mm² tissue, {state.seconds:.0f} s"
            )
        yield state
