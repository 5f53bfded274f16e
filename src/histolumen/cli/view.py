"""`histolumen view`."""

from pathlib import Path
from typing import Annotated

import typer

from histolumen.cli.collector import paused_collector


def view(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="Run folders; two can be compared on an image.")
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of images, or manifest; default: the images of the first run."),
    ] = None,
    slides: Annotated[list[Path] | None, typer.Option(help="Slide, or folder of slides.")] = None,
    slide_mpp: Annotated[
        float | None, typer.Option(help="Microns per pixel of the slides; default: as stated in the file.")
    ] = None,
    model_mpp: Annotated[
        float | None, typer.Option(help="Microns per pixel of the network's input; default: as stored in the model.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own is protected by a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8000,
    token: Annotated[
        str,
        typer.Option(
            envvar="HISTOLUMEN_TOKEN", help="Secret that requests must carry; default beyond this machine: random."
        ),
    ] = "",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log requests and full errors, which contain names of files.")
    ] = False,
) -> None:
    """Look at images, slides and predictions in a browser: layers, thresholds, comparison, corrections."""
    from histolumen.engine.memory import keep_memory_flat

    keep_memory_flat()  # before torch is imported
    with paused_collector():
        from histolumen.engine.slides.predict import SlideSettings
        from histolumen.settings import from_options
        from histolumen.view.serve import serve
        from histolumen.view.settings import ViewSettings

    reading = from_options(SlideSettings, slide_mpp=slide_mpp, model_mpp=model_mpp)
    settings = from_options(ViewSettings, host=host, port=port, token=token, verbose=verbose, slides=reading)
    serve(list(runs or []), list(images or []), list(slides or []), settings, browser=browser, say=typer.echo)
