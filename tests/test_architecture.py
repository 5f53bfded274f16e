"""Imports go one way: a room never imports from one that comes later (docs/architecture.md)."""

import ast
from pathlib import Path

import histolumen

SOURCE = Path(histolumen.__file__).parent
ORDER = [
    "errors", "extras", "settings", "atomic", "vision",
    "data", "nets", "losses", "grouping", "metrics", "methods",
    "config", "reference", "engine", "export", "slides", "report", "cli",
]  # fmt: skip


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "histolumen":
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("histolumen."):
            rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("histolumen.")}
    return rooms & set(ORDER)


def test_every_room_has_its_place():
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert rooms == set(ORDER)


def test_no_room_imports_from_a_later_one():
    wrong = [
        f"{path.relative_to(SOURCE)} imports {room}"
        for path in SOURCE.rglob("*.py")
        if room_of(path) in ORDER
        for room in imported_rooms(path)
        if ORDER.index(room) > ORDER.index(room_of(path))
    ]
    assert wrong == []


def test_losses_and_metrics_know_nothing_else():
    for name in ("losses", "metrics", "errors", "settings"):
        assert imported_rooms(SOURCE / f"{name}.py") == set()


def test_help_does_not_import_torch():
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['histolumen', '--help']\n"
        "try:\n import histolumen.cli; histolumen.cli.main()\nexcept SystemExit:\n pass\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
