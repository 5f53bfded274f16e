import re
import tomllib
from pathlib import Path

import pytest

from histolumen.errors import ConfigError
from histolumen.extras import require


def test_a_missing_extra_gives_the_install_command():
    with pytest.raises(
        ConfigError, match=r"no_such_module is not installed; run in the clone: pip install .*-e '\.\[study\]'"
    ):
        require("study", "math", "no_such_module")


def test_installed_modules_raise_no_error():
    require("study", "math", "json")


def test_nothing_tells_to_install_a_package_that_is_not_published():
    """Every file of the repository names the clone, never an index."""
    root = Path(__file__).parents[1]
    wrong = re.compile(r"pip3? install [^\n]*(?<![\w./-])histolumen(\[|\b(?![.-]))")
    assert wrong.search("pip install histolumen[slides]")
    pages = [*root.glob("*.md"), *root.glob("docs/*"), *root.glob("src/**/*.py"), *root.glob("scripts/*")]
    assert [path.name for path in pages if path.is_file() and wrong.search(path.read_text(errors="ignore"))] == []


def test_the_install_line_names_extras_that_exist():
    root = Path(__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [path.read_text() for path in root.glob("src/**/*.py")]
    named = {name for text in texts for name in re.findall(r"(?:install_line|require)\(['\"](\w+)['\"]", text)}
    assert {"slides", "weights"} <= named <= set(extras)
