"""Optional parts: asked for when they are needed, with the line that installs them."""

import importlib.util

from histolumen.errors import ConfigError


def require(extra: str, *modules: str) -> None:
    """Raise, with the install line, unless all of `modules` can be imported."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} is not installed; run: pip install -c constraints.txt 'histolumen[{extra}]'"
        )
