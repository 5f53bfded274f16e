"""Run all benchmarks; with --write, put the rows of each into its own table in docs/performance.md.

A benchmark is a script that prints rows with `timing.row` and has `--quick`. To add one, add a line to `BENCHMARKS`
and, where its table belongs on the page, `<!-- NAME.py -->` and `<!-- end -->`.

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
    "training_step.py",
    "processes.py",
    "export_speed.py",
    "slides.py",
]
_HERE = Path(__file__).parent
_PAGE = _HERE.parent / "docs" / "performance.md"
_END = "<!-- end -->"


def rows_of(script: str, *, quick: bool) -> list[str]:
    """The rows that a benchmark prints; what else it prints is passed on."""
    command = [sys.executable, str(_HERE / script), *(["--quick"] if quick else [])]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    lines = result.stdout.splitlines()
    print("\n".join([f"{script}:", *(f"    {line}" for line in lines)]), flush=True)
    return [line for line in lines if line.startswith("| ")]


def machine() -> str:
    """What is measured on, in one line: processor, cores, and how busy they are."""
    import torch  # noqa: PLC0415 - not needed for --help

    from histolumen.cores import busy_cores, read_cores  # noqa: PLC0415

    busy, vectors = busy_cores() or 0.0, torch.backends.cpu.get_cpu_capability()
    cores = read_cores().threads
    return f"{platform.machine()} with {vectors}, {cores} cores; mean load of the minute before {busy:.1f}."


def write(script: str, table: str) -> None:
    """Replace the table of one benchmark."""
    start = f"<!-- {script} -->"
    before, found, rest = _PAGE.read_text(encoding="utf-8").partition(start)
    replaced, closed, after = rest.partition(_END)
    if not found or not closed or "<!--" in replaced:
        raise SystemExit(f"{_PAGE}: no place for the table of {script}: write {start} and {_END} where it belongs")
    _PAGE.write_text(f"{before}{start}\n{table}\n{_END}{after}", encoding="utf-8")


def main() -> None:
    """Run and collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: shows that everything runs")
    parser.add_argument("--only", nargs="+", default=BENCHMARKS, choices=BENCHMARKS)
    parser.add_argument("--write", action="store_true", help=f"replace the tables in {_PAGE.name}")
    options = parser.parse_args()
    for script in options.only:
        measured_on = machine()
        rows = rows_of(script, quick=options.quick)
        table = "\n".join([measured_on, "", "| measured | value | goal |", "|---|---|---|", *rows])
        if options.write:
            write(script, table)


if __name__ == "__main__":
    main()
