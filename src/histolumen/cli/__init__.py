"""The command line: one small file per command. Commands import the engine when they run, so `--help` is quick."""

import contextlib
import gc
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from histolumen import __version__, threads
from histolumen.cli import (
    benchmark,
    complexity,
    data,
    demo,
    doctor,
    encoders,
    evaluate,
    export,
    figures,
    predict,
    recipes,
    report,
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
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.add_typer(data.app, name="data")
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(export.export)
app.command()(slide.slide)
app.command()(view.view)
app.command()(benchmark.benchmark)
app.command()(complexity.complexity)
app.command()(study.study)
app.command()(figures.figures)
app.command()(report.report)
app.add_typer(recipes.app, name="recipes")
app.command()(encoders.encoders)
app.command()(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"histolumen {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            max=1024,
            help="Threads of the network in each process, like OMP_NUM_THREADS.",
            show_default="the cores that the process may use, divided among processes",
        ),
    ] = None,
) -> None:
    """Options before the command."""
    if count is not None:
        threads.choose(count)


def main() -> None:
    """Run the command line. A user error prints one line to standard error and exits with code 2."""
    warnings.showwarning = _print_warning
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where an error can be explained, not when the interpreter exits
            gc.freeze()  # no search for cycles among all objects when it exits: it takes longer than `--help`
    except HistolumenError as error:
        sys.stderr.write(f"histolumen: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write(
            "\nhistolumen: interrupted; finished epochs and files are kept (train: continue with --resume)\n"
        )
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output, such as `head`, has exited
        _drop_output()
        sys.exit(1)
    except OSError as error:  # of the system: a full device, a limit, a network drive that is gone
        sys.stderr.write(f"histolumen: {error.filename or 'standard output'}: {error.strerror or error}\n")
        _drop_output()
        sys.exit(2)


def _drop_output() -> None:
    """Discard what is still buffered for standard output, which cannot take it."""
    with contextlib.suppress(OSError, ValueError):  # an output without a file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print a warning of this package as a note, without the line of code that raised it."""
    if category.__module__.startswith("histolumen."):
        sys.stderr.write(f"note: {message}\n")
    else:
        _other_warnings(message, category, *where)


_other_warnings = warnings.showwarning
