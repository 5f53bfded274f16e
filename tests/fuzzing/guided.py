"""Fuzz one reader guided by coverage, with atheris: finds what random damage does not.

Usage: python tests/fuzzing/guided.py KIND [-runs=100000] [-seed=1] (options of libFuzzer)
"""

import contextlib
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1])]

with atheris.instrument_imports(include=["histolumen", "PIL", "yaml"]):
    from kinds import kinds

    from histolumen.errors import HistolumenError


def main() -> None:
    """Run libFuzzer on the kind that is named first; every other exception than a `HistolumenError` stops it."""
    root = Path(tempfile.mkdtemp(prefix="guided-"))
    kind = kinds(root)[sys.argv.pop(1)]
    corpus = root / "corpus"
    corpus.mkdir()
    for number, data in enumerate(kind.examples):
        (corpus / str(number)).write_bytes(data)
    (root / "input").mkdir()
    path = root / "input" / kind.name

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(HistolumenError):
            kind.read(path)

    warnings.simplefilter("ignore")
    atheris.Setup([sys.argv[0], str(corpus), "-timeout=5", "-rss_limit_mb=3000", *sys.argv[1:]], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
