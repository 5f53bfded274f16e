"""The command line: one small file per command. Commands import the engine when they run, so `--help` is quick."""

import os
import sys
from typing import Annotated

import typer

from histolumen import __version__
from histolumen.cli import (
    benchmark,
    complexity,
    data,
    demo,
    doctor,
    encoders,
    evaluate,
    figures,
    predict,
    recipes,
    slide,
    study,
    train,
    view,
)
from histolumen.errors import HistolumenError

app = typer.Typer(
    name="histolumen",
    help="Train on image-level labels of histology images; predict the class and the pixels that decided it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.add_typer(data.app, name="data")
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(slide.slide)
app.command()(view.view)
app.command()(benchmark.benchmark)
app.command()(complexity.complexity)
app.command()(study.study)
app.command()(figures.figures)
app.add_typer(recipes.app, name="recipes")
app.command()(encoders.encoders)
app.command()(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"histolumen {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line. A user error prints one line to standard error and exits with code 2."""
    try:
        app()
    except HistolumenError as error:
        sys.stderr.write(f"histolumen: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write(
            "\nhistolumen: interrupted; finished epochs and files are kept (train: continue with --resume)\n"
        )
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
