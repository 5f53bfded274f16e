import pytest

from histolumen.errors import ConfigError
from histolumen.extras import require


def test_a_missing_extra_gives_the_install_command():
    with pytest.raises(ConfigError, match=r"no_such_module is not installed; run: pip install .*-e '\.\[study\]'"):
        require("study", "math", "no_such_module")


def test_installed_modules_raise_no_error():
    require("study", "math", "json")
