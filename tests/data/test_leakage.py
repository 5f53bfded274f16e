"""Patients and images that are in two splits are found."""

import numpy as np
import pytest
from PIL import Image

from histolumen.data.image import read_image
from histolumen.data.leakage import Fingerprints, fingerprint, refuse_shared_patients
from histolumen.data.manifest import Manifest, Row
from histolumen.data.sources.glas import paper_split
from histolumen.data.sources.synthetic_image import KINDS, make_sample
from histolumen.errors import DataError

SHARED = (Row("1.png", "a", "train", patient="p"), Row("2.png", "b", "test", patient="p"))


def test_a_patient_in_two_splits_is_refused(tmp_path):
    with pytest.raises(DataError, match="patient p has images in the splits test and train; give all images"):
        refuse_shared_patients(Manifest(SHARED, tmp_path), tmp_path)
    refuse_shared_patients(Manifest(SHARED[:1], tmp_path), tmp_path)


def test_the_published_split_of_glas_is_kept_as_it_is(tmp_path):
    """Its validation images are of patients of the training images; numbers of the paper depend on it."""
    names = list(paper_split().items())
    rows = [Row(f"{name}.png", "a", split, patient="p") for name, split in names]
    refuse_shared_patients(Manifest(tuple(rows), tmp_path), tmp_path)
    moved = Row(rows[0].image, "a", "test" if rows[0].split != "test" else "train", patient="p")
    with pytest.raises(DataError, match="patient p"):
        refuse_shared_patients(Manifest((moved, *rows[1:]), tmp_path), tmp_path)


def sample(seed: int) -> Image.Image:
    return Image.fromarray(make_sample(KINDS[seed % 2], 128, seed).image)


def variants(picture: Image.Image, folder) -> dict[str, np.ndarray]:
    turned = {f"turned {way.name}": np.asarray(picture.transpose(way)) for way in Image.Transpose}
    picture.save(folder / "x.jpg", quality=50)
    brighter = np.asarray(picture).astype(float) * 1.1
    return turned | {
        "jpeg": read_image(folder / "x.jpg"),
        "resized": np.asarray(picture.resize((97, 97))),
        "brighter": brighter.clip(0, 255).astype(np.uint8),
        "grey": np.asarray(picture.convert("L").convert("RGB")),
    }


def test_turned_compressed_resized_and_brightened_copies_are_found(tmp_path):
    """And no two different images are taken for copies."""
    found = Fingerprints()
    for seed in range(12):
        found.add(f"{seed}", "train", fingerprint(np.asarray(sample(seed))))
    copies = variants(sample(5), tmp_path)
    for name, pixels in copies.items():
        found.add(name, "test", fingerprint(pixels))
    assert {(one, other) for one, other in found.across_splits()} == {
        ((name, "test"), ("5", "train")) for name in copies
    }


def test_plain_images_are_not_called_copies():
    found = Fingerprints()
    for number, split in enumerate(["train", "test"]):
        found.add(str(number), split, fingerprint(np.full((64, 64, 3), 255, np.uint8)))
    assert list(found.across_splits()) == []
