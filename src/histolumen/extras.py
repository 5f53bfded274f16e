"""Optional dependencies, checked where they are needed."""

import importlib.util

from histolumen.errors import ConfigError


def install_line(extra: str) -> str:
    """The command that installs an extra, in the clone: the package is not on a public index."""
    return f"pip install -c constraints.txt -e '.[{extra}]'"


def require(extra: str, *modules: str) -> None:
    """Raise an error with the install command unless all of `modules` can be imported."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not installed; run in the clone: {install_line(extra)}")
