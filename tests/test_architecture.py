"""Imports have one direction: a package never imports from a later one (docs/architecture.md)."""

import ast
from pathlib import Path

import histolumen

SOURCE = Path(histolumen.__file__).parent
ORDER = [
    "cores", "threads", "errors", "extras", "settings", "atomic", "locking", "vision", "progress", "console",
    "neighbours", "components", "lanes", "losses", "metrics", "calibration",
    "export", "slides", "tissue", "data", "encoders", "nets", "proposals", "familiarity", "methods",
    "config", "engine", "deploy", "api", "report", "view", "cli",
]  # fmt: skip


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "histolumen":
            packages |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("histolumen."):
            packages.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("histolumen.")}
    return packages & set(ORDER)


def test_every_package_is_in_the_order():
    packages = {package_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert packages == set(ORDER)


def test_no_package_imports_from_a_later_one():
    wrong = [
        f"{path.relative_to(SOURCE)} imports {package}"
        for path in SOURCE.rglob("*.py")
        if package_of(path) in ORDER
        for package in imported_packages(path)
        if ORDER.index(package) > ORDER.index(package_of(path))
    ]
    assert wrong == []


def test_losses_and_metrics_import_nothing_else():
    for name in ("losses", "metrics", "errors", "progress"):
        assert imported_packages(SOURCE / f"{name}.py") == set()


def test_help_does_not_import_torch():
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['histolumen', '--help']\n"
        "try:\n import histolumen.cli; histolumen.cli.main()\nexcept SystemExit:\n pass\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
