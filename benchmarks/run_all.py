"""Run all benchmarks and print their rows as one table; with --write, replace the table in docs/performance.md.

A benchmark is a script that prints rows with `timing.row` and has `--quick`. To add one, add a line to `BENCHMARKS`.

usage: python benchmarks/run_all.py [--quick] [--only NAME ...] [--write]
"""

import argparse
import platform
import subprocess
import sys
from pathlib import Path

BENCHMARKS = [
    "startup.py",
    "prediction.py",
    "neighbour.py",
    "folder.py",
    "sizes.py",
]
_HERE = Path(__file__).parent
_PAGE = _HERE.parent / "docs" / "performance.md"
_START, _END = "<!-- written by benchmarks/run_all.py -->", "<!-- end -->"


def rows_of(script: str, *, quick: bool) -> list[str]:
    """The rows that a benchmark prints; what else it prints is passed on."""
    command = [sys.executable, str(_HERE / script), *(["--quick"] if quick else [])]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    lines = result.stdout.splitlines()
    print("\n".join([f"{script}:", *(f"    {line}" for line in lines)]), flush=True)
    return [line for line in lines if line.startswith("| ")]


def main() -> None:
    """Run and collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: shows that everything runs")
    parser.add_argument("--only", nargs="+", default=BENCHMARKS, choices=BENCHMARKS)
    parser.add_argument("--write", action="store_true", help=f"replace the table in {_PAGE.name}")
    options = parser.parse_args()
    rows = [line for script in options.only for line in rows_of(script, quick=options.quick)]
    from histolumen.cores import busy_cores, read_cores  # noqa: PLC0415 - after the runs

    busy = busy_cores() or 0.0
    note = f"{platform.machine()}, {read_cores().threads} cores; mean load of the last minute {busy:.1f}."
    table = "\n".join([note, "", "| measured | value | goal |", "|---|---|---|", *rows])
    print(table)
    if options.write:
        before, _, rest = _PAGE.read_text(encoding="utf-8").partition(_START)
        _, _, after = rest.partition(_END)
        _PAGE.write_text(f"{before}{_START}\n{table}\n{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
