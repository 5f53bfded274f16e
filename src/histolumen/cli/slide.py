"""`histolumen slide`."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from histolumen.engine.slides.batch import SlideState

FAILED = 3  # exit code: some slides failed


def slide(
    run: Annotated[Path, typer.Argument(help="Run folder, or its best/.")],
    slides: Annotated[
        list[Path],
        typer.Argument(metavar="SLIDE...", help="Slides (.svs, .tif, .ndpi, .mrxs, ...), or folders of them."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write to; an interrupted call with the same folder is resumed.")],
    workers: Annotated[int, typer.Option(min=1, help="Number of threads that read tiles while the network runs.")] = 2,
    cluster: Annotated[
        str | None,
        typer.Option(help="Address of a dask scheduler whose workers predict the slides.", metavar="ADDRESS"),
    ] = None,
    slide_mpp: Annotated[
        float | None, typer.Option(help="Microns per pixel of the slides; default: as stated in the file.")
    ] = None,
    model_mpp: Annotated[
        float | None, typer.Option(help="Microns per pixel of the network's input; default: as stored in the model.")
    ] = None,
    flips: Annotated[
        bool | None,
        typer.Option(
            "--flips/--no-flips", help="Average over four flips, four times the work; default: as for images."
        ),
    ] = None,
    tile: Annotated[int, typer.Option(min=128, help="Side of a tile in pixels of the network's input.")] = 1024,
    overlap: Annotated[int, typer.Option(min=64, help="Overlap of neighbouring tiles, blended.")] = 192,
    min_area: Annotated[float, typer.Option(min=0, help="Smallest region in the GeoJSON, in µm².")] = 100.0,
) -> None:
    """Predict class, heat map and regions of whole slides, for QuPath. Exit code 3: some slides failed."""
    from histolumen.engine.memory import keep_memory_flat

    keep_memory_flat()  # before torch is imported
    from histolumen.console import ConsoleProgress
    from histolumen.engine.slides.batch import do_slides, plan_jobs, save_slides
    from histolumen.engine.slides.predict import SlideSettings
    from histolumen.settings import from_options

    settings = from_options(
        SlideSettings,
        tile=tile,
        overlap=overlap,
        readers=workers,
        slide_mpp=slide_mpp,
        model_mpp=model_mpp,
        flips=flips,
        min_area=min_area,
    )
    jobs, repeated = plan_jobs(run, slides, out, settings)
    if cluster is None:
        states = do_slides(jobs, ConsoleProgress())
    else:
        from histolumen.engine.slides.cluster import do_slides_on_cluster

        states = do_slides_on_cluster(jobs, cluster)
    total = len(jobs) + len(repeated)
    done: list[SlideState] = []
    try:
        done.extend(_print_states(chain(repeated, states), total))
    finally:
        if done:
            save_slides(done, out)
    good = sum(state.state == "done" for state in done)
    typer.echo(f"{good} of {total} slides done")
    typer.echo(f"table: {out / 'slides.csv'}")
    if good < total:
        raise typer.Exit(FAILED)


def _print_states(states: "Iterable[SlideState]", total: int) -> "Iterator[SlideState]":
    """Yield the states and print a line for each."""
    from histolumen.familiarity.judgement import NOT_KNOWN

    for number, state in enumerate(states, start=1):
        if state.state == "failed":
            typer.echo(f"left out: {state.why}", err=True)
        else:
            record = state.record
            typer.echo(
                f"{number} of {total}  {Path(state.slide).name}: {record['prediction'] or 'foreground'} "
                f"({record['probability']:.3f}), {record['regions']} regions, {record['foreground_mm2']:.3f} of "
                f"{record['tissue_mm2']:.3f} mm² tissue, {state.seconds:.0f} s"
            )
            if record.get("warnings"):
                typer.echo(f"  warning: {record['warnings']}")
            elif record.get("unlike_training") is None:
                typer.echo(f"  {NOT_KNOWN}", err=True)
        yield state
