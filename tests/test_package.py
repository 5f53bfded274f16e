"""The built package: complete, and usable without the clone. `make test-install` installs its dependencies too."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "histolumen"
PACKED = ("pyproject.toml", "README.md", "LICENSE")


def run(*command: object, cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a source distribution of a copy: setuptools leaves files in the folder that it builds."""
    clone = tmp_path_factory.mktemp("clone")
    for name in PACKED:
        shutil.copy(ROOT / name, clone)
    shutil.copytree(SOURCE, clone / "src" / "histolumen", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", clone / "dist", clone, cwd=clone)
    return next((clone / "dist").glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_source_tree(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name.removeprefix("histolumen/") for name in archive.namelist() if name.startswith("histolumen/")}
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert packed == {path.relative_to(SOURCE).as_posix() for path in files}
    kinds = {Path(name).suffix for name in packed}
    assert {".yaml", ".html", ".tex", ".js", ".css", ".csv", ".gz", ".typed"} <= kinds


@pytest.mark.slow
def test_the_wheel_names_extras_script_and_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        of = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    metadata = Parser().parsestr(of["METADATA"])
    assert {"slides", "study", "view", "cluster", "weights"} <= set(metadata.get_all("Provides-Extra"))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "histolumen = histolumen.cli:main" in of["entry_points.txt"]
    assert "Apache License" in of["LICENSE"]


@pytest.mark.slow
def test_the_first_step_of_the_demo_runs_from_the_installed_wheel(wheel, tmp_path):
    place = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", place, wheel, cwd=tmp_path)
    environment = {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    used = run(sys.executable, "-c", "import histolumen; print(histolumen.__file__)", cwd=tmp_path, **environment)
    assert Path(used.strip()).is_relative_to(place)
    command = (sys.executable, place / "bin" / "histolumen", "data", "synthetic", "x", "--images", 12, "--size", 64)
    run(*command, cwd=tmp_path, **environment)
    assert len(list((tmp_path / "x" / "images").iterdir())) == 12
    assert "folder-best" in run(sys.executable, "-m", "histolumen", "recipes", cwd=tmp_path, **environment)


# --- install lines of the documentation


def test_every_extra_in_the_pages_exists():
    import tomllib

    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "Dockerfile"]
    lines = [found for page in pages for found in re.findall(r"\'\.\[([a-z,]+)\]\'", page.read_text())]
    assert len(lines) >= 5
    assert {extra for line in lines for extra in line.split(",")} <= extras


# --- the container


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile and their arguments, without comments."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def test_every_path_that_the_container_copies_exists_and_is_sent_to_the_builder():
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [argument.split()[:-1] for name, argument in instructions() if name == "COPY"]
    paths = {path for each in copied if not each[0].startswith("--from=") for path in each}
    assert {"src", "pyproject.toml", "constraints.txt"} <= paths
    assert paths == sent
    for path in paths:
        assert (ROOT / path).exists(), path


def test_stages_are_pinned_and_name_no_registry():
    stages = [argument.split() for name, argument in instructions() if name == "FROM"]
    assert len({stage[0] for stage in stages}) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", stages[0][0])
    named = {stage[2] for stage in stages if len(stage) == 3}
    used = re.findall(r"--from=(\S+)", (ROOT / "Dockerfile").read_text())
    assert set(used) <= named
    assert not re.search(r"://|\b[a-z0-9-]+\.(?:org|com|io|net)\b", (ROOT / "Dockerfile").read_text())


def test_the_container_runs_the_command_as_an_ordinary_user():
    import tomllib

    last = dict(instructions())
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert last["ENTRYPOINT"] == '["histolumen"]'
    assert "histolumen" in scripts
    assert last["USER"] not in {"root", "0"}
    order = [name for name, _ in instructions()]
    assert order.index("USER") > max(index for index, name in enumerate(order) if name in {"RUN", "COPY"})


def test_the_container_installs_with_the_pinned_versions():
    command = next(argument for name, argument in instructions() if name == "RUN")
    script, place = re.search(r"bash (\S+) (\S+)$", command).groups()
    assert '-c constraints.txt "$PACKAGE"' in (ROOT / script).read_text()
    assert f"PATH={place}/bin:$PATH" in dict(instructions())["ENV"]
