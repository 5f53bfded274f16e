"""The test split chooses nothing: neither its images nor its labels change what is trained or selected."""

import hashlib
from dataclasses import replace

from histolumen.data.manifest import Manifest
from histolumen.engine.train import train


def weights(run) -> dict[str, str]:
    return {
        name: hashlib.sha256((run / name / "model.safetensors").read_bytes()).hexdigest() for name in ("best", "last")
    }


def with_test_rows(manifest: Manifest, change) -> Manifest:
    rows = [change(row) if row.split == "test" else row for row in manifest.rows]
    return replace(manifest, rows=tuple(row for row in rows if row is not None))


def test_training_and_selection_do_not_depend_on_the_test_split(tiny_manifest, tiny_config, tiny_run, tmp_path):
    """Test images that do not exist, with all labels exchanged, and no test images at all: the same weights."""
    other = {"benign": "malignant", "malignant": "benign"}
    spoilt = with_test_rows(
        tiny_manifest, lambda row: replace(row, image=f"absent/{row.image}", label=other[row.label], mask="")
    )
    none = with_test_rows(tiny_manifest, lambda row: None)
    assert {row.split for row in none.rows} == {"train", "valid"}
    for name, manifest in (("spoilt", spoilt), ("none", none)):
        state = train(tiny_config(), manifest, tmp_path / name)
        assert weights(tmp_path / name) == weights(tiny_run), name
        assert state.best_epoch > 0
