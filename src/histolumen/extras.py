"""Optional dependencies, checked where they are needed."""

import importlib.util

from histolumen.errors import ConfigError


def require(extra: str, *modules: str) -> None:
    """Raise an error with the install command unless all of `modules` can be imported."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not installed; run: pip install -c constraints.txt -e '.[{extra}]'")
