"""Run `histolumen ...` commands in the test process, which is faster than a new interpreter for each.

Tests that need a separate process (kills, torchrun, clusters) start one themselves.
"""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from histolumen.cli import main


def histolumen(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command; output and exit code are those of the real command."""
    out, err = io.StringIO(), io.StringIO()
    command = [str(argument) for argument in arguments]
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["histolumen", *command]),
        mock.patch.dict(os.environ, {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}),
    ):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
