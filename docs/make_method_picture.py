"""Draw docs/images/method.png: python docs/make_method_picture.py RUN MANIFEST, with a run of folder-best."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import histolumen
from histolumen.data.image import read_image
from histolumen.data.manifest import read_manifest
from histolumen.engine.proposals import read_proposals

SIDE, GAP, IMAGES = 220, 6, 4


def tile(pixels: np.ndarray) -> np.ndarray:
    """An RGB or grey picture as a square tile with a white gap around it."""
    rgb = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
    square = Image.fromarray(rgb.astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.pad(np.array(square), ((GAP, GAP), (GAP, GAP), (0, 0)), constant_values=255)


def main(run: Path, manifest_path: Path) -> None:
    """Draw one row per image: image, proposal, mask, X+, X-."""
    model, manifest = histolumen.load(run), read_manifest(manifest_path)
    rows, proposals = manifest.split("train").rows, read_proposals(run)
    grey = 255 * model.method.backbone.mean.flatten().numpy()  # the colour of masked pixels
    lines = []
    for index in np.linspace(0, len(rows) - 1, IMAGES).round().astype(int):
        image = read_image(manifest.image_path(rows[index]))
        soft = model.predict(image).soft_mask[..., None]
        plus, minus = (share * image + (1 - share) * grey for share in (soft, 1 - soft))
        pictures = (image, proposals[index].numpy(), 255 * soft[..., 0], plus, minus)
        lines.append(np.hstack([tile(picture) for picture in pictures]))
    Image.fromarray(np.vstack(lines)).save(Path(__file__).parent / "images" / "method.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
