"""The documentation is up to date: commands run, tables equal the code, links and pictures exist."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gland_slides import tissue_picture
from slide_files import write_slide

from commands import histolumen
from tiny import SMALL, TINY

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def sets(overrides: tuple[str, ...]) -> str:
    return " ".join(f"--set {override}" for override in overrides)


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"<!-- run -->\n```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("#")]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"<!-- run python -->\n```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.fixture
def workplace(tmp_path, tiny_manifest):
    """The folder that the pages assume: class folders with patients in the file names."""
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
    """The command as written, with settings that make training tiny."""
    if "histolumen benchmark " in command:
        return f"{command} {sets(SMALL)}"
    if " train " in command or " study " in command or " --folds " in command:
        return f"{command} {sets(TINY)}"
    return f"{command} --images 12 {sets(TINY)}" if " demo" in command else command


def test_every_benchmark_has_its_table_on_the_page():
    page = (ROOT / "docs" / "performance.md").read_text()
    for script in runpy.run_path(str(ROOT / "benchmarks" / "run_all.py"))["BENCHMARKS"]:
        table = re.search(rf"<!-- {script} -->\n([^<]*)<!-- end -->", page)
        assert table is not None, script
        assert "| measured | value | goal |" in table[1], script


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_run_in_order(page, workplace):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    if any("--out manifest.csv" in command for command in commands(page)):
        (workplace / "manifest.csv").unlink()  # the page makes its own
    for command in commands(page):
        if command.startswith(("make ", "git ", "cd ")):
            continue  # targets of make are checked below; git needs a network
        words = shlex.split(shortened(command))
        if words[0] == "histolumen":
            result = histolumen(*words[1:], cwd=workplace)
        else:
            result = subprocess.run(words, cwd=workplace, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"


def test_make_targets_in_the_pages_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test", "test-quick"} <= named
    assert named <= targets


def test_the_table_of_keys_equals_the_schema():
    sys.path.insert(0, str(ROOT / "docs"))
    from make_recipes import page

    assert (ROOT / "docs" / "recipes.md").read_text() == page(), "run: python docs/make_recipes.py"


def test_the_table_of_encoders_equals_the_catalogue():
    sys.path.insert(0, str(ROOT / "docs"))
    from make_encoders import page

    assert (ROOT / "docs" / "encoders.md").read_text() == page(), "run: python docs/make_encoders.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_source_paths_in_the_pages_exist(page):
    """Files and folders in backticks exist, relative to the root, src/histolumen or docs."""
    named = re.findall(r"`([\w./*-]+(?:\.(?:py|yaml|md|toml|txt|csv|ipynb)|/))`", page.read_text())
    roots = (ROOT, ROOT / "src" / "histolumen", ROOT / "docs")
    written_by_users = ("runs/", "benchmark/", "camelyon16/")
    for path in named:
        if path.startswith(written_by_users) or "/" not in path.rstrip("/") or "NAME" in path:
            continue
        assert any(list(root.glob(path)) for root in roots), f"{page.name} names {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_a_placeholder(page):
    assert "@@" not in page.read_text()


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in PAGES for number in range(len(python_blocks(page)))],
    ids=lambda value: getattr(value, "name", value),
)
def test_python_in_the_pages_runs(page, number, tiny_run, workplace, monkeypatch):
    shutil.copytree(tiny_run, workplace / "runs" / "first")
    monkeypatch.chdir(workplace)
    exec(compile(python_blocks(page)[number], f"{page.name}, block {number}", "exec"), {"__name__": "__main__"})


def test_the_notebook_runs(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)


def test_the_manifest_that_the_tutorial_shows_has_the_masks_that_its_comparison_needs():
    text = (ROOT / "docs" / "tutorial.md").read_text()
    counts = dict(re.findall(r"^    (train|valid|test) .*; (\d+) with a mask$", text, flags=re.MULTILINE))
    assert int(counts["test"]) > 0  # benchmark
    assert int(counts["valid"]) > 0  # study
