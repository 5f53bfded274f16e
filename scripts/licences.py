"""The licence of every dependency, and whether it permits distribution together with Apache-2.0 software.

usage: python scripts/licences.py        (make licences); exit code 1 if a licence is unknown or not permitted
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib",
}  # fmt: skip
"""May be combined with Apache-2.0 in any form; `BSD` is one of its variants without the advertising clause."""
FILE_COPYLEFT = {"MPL-2.0"}
"""Only changed files of the dependency itself must be published; histolumen changes none."""
EXCEPTIONS = {
    "openslide-bin": "LGPL-2.1: shared libraries in a wheel of their own, which the user installs and can replace",
    "openslide-python": "LGPL-2.1: imported unchanged from a wheel of its own, which the user installs and can replace",
}
"""Runtime dependencies under other licences, and why they may be used; histolumen does not contain any of them."""
VENDORED = {"OpenSeadragon": "BSD-3-Clause", "Chart.js": "MIT"}
"""Files of other projects in this package, in folders called `vendor`."""
_SPELLINGS = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "bsd license": "BSD",
    "bsd 3-clause license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "osi approved :: apache software license": "Apache-2.0",
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
}


def requirements(*extras: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for: of the package itself, and of the given extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from map(Requirement, project["dependencies"])
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if canonicalize_name(requirement.name) == project["name"]:
                yield from requirements(*sorted(requirement.extras))
            else:
                yield requirement


def runtime_extras() -> list[str]:
    """All extras but the developers' own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [extra for extra in project["optional-dependencies"] if extra != "dev"]


def installed(wanted: Iterable[Requirement]) -> dict[str, Distribution | None]:
    """The wanted distributions and all that they need, by name; None: not installed."""
    found: dict[str, Distribution | None] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in wanted]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for each in ("", *requirement.extras):
            if (name, each) in seen:
                continue
            seen.add((name, each))
            try:
                found[name] = package = distribution(name)
            except PackageNotFoundError:
                found[name] = None
                continue
            waiting += [(Requirement(line), each) for line in package.requires or ()]
    return dict(sorted(found.items()))


def licence_of(found: Distribution) -> str:
    """An SPDX expression, or the words of the package; empty: not stated."""
    fields = {name: str(value) for name, value in found.metadata.json.items() if isinstance(value, str)}
    if expression := fields.get("license_expression"):
        return expression
    stated = fields.get("license", "")
    if stated and stated != "UNKNOWN" and "\n" not in stated and len(stated) < 40:
        return _SPELLINGS.get(stated.lower(), stated)
    lines: list[str] = found.metadata.get_all("Classifier") or []
    classifiers = [line.rpartition(" :: ")[2] for line in lines if "License ::" in line]
    if classifiers:
        return " AND ".join(_SPELLINGS.get(line.lower(), line) for line in classifiers)
    for file in found.files or ():
        if file.name.upper().startswith(("LICENSE", "LICENCE")) and ".dist-info" in str(file):
            first = next((line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()), "")
            return _SPELLINGS.get(first.lower(), "")
    return ""


def is_permitted(licence: str) -> bool:
    """Whether every part of an SPDX expression is on one of the two lists; of alternatives one suffices."""
    parts = re.split(r"\s+AND\s+", licence.replace("(", "").replace(")", ""))
    allowed = PERMISSIVE | FILE_COPYLEFT
    return bool(licence) and all(any(each in allowed for each in re.split(r"\s+OR\s+", part)) for part in parts)


def problems() -> list[str]:
    """Runtime dependencies whose licence is unknown or not permitted, and exceptions that are not needed."""
    found = {name: each for name, each in installed(requirements(*runtime_extras())).items() if each is not None}
    refused = {name: licence_of(each) for name, each in found.items() if not is_permitted(licence_of(each))}
    wrong = [
        f"{name}: {licence or 'licence not stated'}; add it to EXCEPTIONS with a reason, or do without it"
        for name, licence in refused.items()
        if name not in EXCEPTIONS
    ]
    return wrong + [f"{name}: is no exception any more" for name in EXCEPTIONS if name in found.keys() - refused.keys()]


def main() -> None:
    """Print the table."""
    runtime = installed(requirements(*runtime_extras()))
    for name, found in installed(requirements(*runtime_extras(), "dev")).items():
        if found is None:
            print(f"{name:36} {'not installed':16}")
            continue
        use = "" if name in runtime else "   (for developers only)"
        note = f"   [{EXCEPTIONS[name]}]" if name in EXCEPTIONS else use
        print(f"{name:36} {found.version:16} {licence_of(found) or 'not stated'}{note}")
    for name, licence in VENDORED.items():
        print(f"{name:36} {'in this package':16} {licence}")
    wrong = problems()
    for problem in wrong:
        print(f"WRONG: {problem}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
