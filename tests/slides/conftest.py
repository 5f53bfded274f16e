"""Fixtures of slides."""

from pathlib import Path

import pytest
from gland_slides import tissue_picture
from slide_files import write_slide


@pytest.fixture(scope="session")
def gland_slide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """640 x 512 pixels at 0.5 microns."""
    return write_slide(tmp_path_factory.mktemp("slides") / "glands.tif", tissue_picture(), mpp=0.5)
