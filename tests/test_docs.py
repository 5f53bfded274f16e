"""Documentation that cannot go stale: commands are run, tables compared, links followed, pictures present."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gland_slides import tissue_picture
from slide_files import write_slide

from tiny import SMALL, TINY

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def sets(overrides: tuple[str, ...]) -> str:
    return " ".join(f"--set {override}" for override in overrides)


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"<!-- run -->\n```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("#")]


@pytest.fixture
def workplace(tmp_path, tiny_manifest):
    """A folder as the pages assume it: class folders with patients in the file names."""
    for index, row in enumerate(tiny_manifest.rows):
        folder = tmp_path / "my-images" / row.label
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(tiny_manifest.image_path(row), folder / f"P{index:02}_a.png")
        shutil.copy(tiny_manifest.mask_path(row), folder / f"P{index:02}_a_mask.png")
    tiny_manifest.write(tmp_path / "manifest.csv")
    (tmp_path / "my-slides").mkdir()
    write_slide(tmp_path / "my-slides" / "case1.tif", tissue_picture(), mpp=0.5)
    return tmp_path


def shortened(command: str) -> str:
    """The command as written, but trainings run on the tiny network: what is tested is that the way is right."""
    if "histolumen benchmark " in command:
        return f"{command} {sets(SMALL)}"
    if " train " in command or " study " in command:
        return f"{command} {sets(TINY)}"
    return f"{command} --images 12 {sets(TINY)}" if " demo" in command else command


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_run_in_order(page, workplace):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    for command in commands(page):
        if command.startswith(("make ", "git ", "cd ")):
            continue  # make's targets are checked below; a clone needs a network
        result = subprocess.run(
            shortened(command), shell=True, cwd=workplace, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"


def test_make_targets_in_the_pages_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= targets


def test_the_table_of_keys_is_that_of_the_schema():
    sys.path.insert(0, str(ROOT / "docs"))
    from make_recipes import page

    assert (ROOT / "docs" / "recipes.md").read_text() == page(), "run: python docs/make_recipes.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_a_gap_to_fill(page):
    assert "@@" not in page.read_text()


def test_python_in_the_tutorial_runs(tiny_run, workplace):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), flags=re.DOTALL)
    assert code is not None
    shutil.copytree(tiny_run, workplace / "runs" / "first")
    image = next((workplace / "my-images" / "benign").glob("*_a.png"))
    image.rename(image.with_name("P01_a.png"))
    result = subprocess.run(
        [sys.executable, "-c", code.group(1)], cwd=workplace, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
