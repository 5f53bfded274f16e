"""A page as one HTML file: style, scripts and pictures are inside, and nothing else may be loaded or run."""

import base64
import hashlib
import re
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from histolumen import __version__
from histolumen.engine.checkpoint import write_text
from histolumen.report.html.content import Page

_SCRIPTS = ("vendor/chart.umd.min.js", "charts.js", "gallery.js")
_LICENCES = ("vendor/chart-LICENSE.txt",)
_SHADES = 10  # classes shade-0 to shade-10 of confusion matrices

_templates = Environment(
    loader=PackageLoader("histolumen.report.html", "static"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)


def save_page(page: Page, path: Path) -> Path:
    """Write a page as one HTML file, atomically."""
    write_text(path, as_html(page).encode("utf-8", "backslashreplace").decode())  # names that are not Unicode
    return path


def as_html(page: Page) -> str:
    """A page as HTML. All text is escaped by the template; only the package's own files are inserted as they are."""
    style, scripts = _file("report.css"), [_script(name) for name in _SCRIPTS]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return _templates.get_template("report.html").render(
        page=page,
        policy=policy,
        style=style,
        scripts=scripts,
        licences=[_file(name) for name in _LICENCES],
        version=__version__,
        written=datetime.now().astimezone(),
        shade=lambda share: round(_SHADES * share),
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _script(name: str) -> str:
    """A script of the package, without the reference to its source map, which is a file of its own."""
    text = re.sub(r"//# sourceMappingURL=.*", "", _file(name))
    if "</script" in text.lower():
        raise ValueError(f"{name}: would end the element that holds it")
    return text


@cache
def _file(name: str) -> str:
    return (resources.files("histolumen.report.html") / "static" / name).read_text(encoding="utf-8")
