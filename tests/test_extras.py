import pytest

from histolumen.errors import ConfigError
from histolumen.extras import require


def test_a_missing_extra_gives_the_install_line():
    with pytest.raises(ConfigError, match=r"no_such_module is not installed; run: pip install .*'histolumen\[study\]'"):
        require("study", "math", "no_such_module")


def test_what_is_there_is_not_asked_for():
    require("study", "math", "json")
