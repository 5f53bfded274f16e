"""The bill of materials: every package of this environment and the vendored files, as CycloneDX JSON.

usage: python scripts/sbom.py [sbom.json]        (make sbom)
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from licences import ROOT, VENDORED

FILES = {  # name here, name at npm: file
    ("OpenSeadragon", "openseadragon"): "view/static/vendor/openseadragon.min.js",
    ("Chart.js", "chart.js"): "report/html/static/vendor/chart.umd.min.js",
}


def write_sbom(path: Path, *, validate: bool = True) -> None:
    """Write the bill of materials; `validate` checks it against the schema of CycloneDX, which takes a while."""
    command = [Path(sys.executable).parent / "cyclonedx-py", "environment", sys.executable, "--output-reproducible"]
    command += ["--pyproject", ROOT / "pyproject.toml", "--validate" if validate else "--no-validate", "-o", path]
    subprocess.run(list(map(str, command)), check=True, stderr=None if validate else subprocess.DEVNULL)  # noqa: S603
    content = json.loads(path.read_text(encoding="utf-8"))
    content["components"] += [vendored(*names, ROOT / "src/histolumen" / file) for names, file in FILES.items()]
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def vendored(name: str, at_npm: str, path: Path) -> dict[str, object]:
    """A component that no package manager knows about; its first lines state the version."""
    data = path.read_bytes()
    found = re.search(rb"\bv?(\d+\.\d+\.\d+)", data[:200])
    version = found[1].decode() if found else "unknown"
    return {
        "type": "library",
        "bom-ref": f"{at_npm}=={version}",
        "name": name,
        "version": version,
        "purl": f"pkg:npm/{at_npm}@{version}",
        "licenses": [{"license": {"id": VENDORED[name]}}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}],
    }


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "sbom.json")
    write_sbom(target)
    print(f"{target}: {len(json.loads(target.read_text(encoding='utf-8'))['components'])} components")
