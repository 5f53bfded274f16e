"""Do exported graphs answer as the trained model? python benchmarks/export_parity.py RUN --images FOLDER

Exports RUN in every format, crops and resizes the images of FOLDER to 10 sizes, 50 images in all, and prints the
largest difference of a soft mask and of a probability from the eager model, and how many classes agree. Masks are
compared before holes are filled and specks removed, steps that graphs do not contain: by a threshold, they turn any
rounding error into a region.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from histolumen.data.image import read_image
from histolumen.data.search import search_images
from histolumen.data.sources.folder import is_mask
from histolumen.deploy.card import card_of
from histolumen.deploy.exported import ExportedModel
from histolumen.deploy.formats import write_graph
from histolumen.deploy.runtimes import SUFFIXES, Runtime, open_session
from histolumen.engine.model import load
from histolumen.tissue.solid import MaskSettings

SIZES = (
    (522, 775),
    (416, 416),
    (433, 574),
    (775, 522),
    (64, 64),
    (300, 700),
    (1000, 1000),
    (131, 257),
    (90, 430),
    (768, 512),
)
"""Height and width; every other size is a crop of the image, the rest the whole image resized."""
FORMS: tuple[tuple[Literal["onnx", "openvino", "torchscript"], Runtime], ...] = (
    ("onnx", "onnx"),
    ("openvino", "openvino"),
    ("onnx", "openvino"),
    ("torchscript", "torch"),
)


def variants(folder: Path, count: int) -> list[np.ndarray]:
    """`count` images, of the sizes in turn."""
    files = [path for path in search_images(folder).images if not is_mask(path) and "anno" not in path.name]
    files = [files[k] for k in np.linspace(0, len(files) - 1, count).round().astype(int)]
    images = []
    for number, path in enumerate(files):
        height, width = SIZES[number % len(SIZES)]
        image = Image.fromarray(read_image(path))
        if number % 2 and image.width >= width and image.height >= height:
            image = image.crop((0, 0, width, height))
        images.append(np.array(image.resize((width, height), Image.Resampling.BICUBIC)))
    return images


def main() -> None:
    """Print one line per format and runtime."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    model = load(options.run, device="cpu")
    model.config = model.config.model_copy(update={"mask": MaskSettings()})
    images = variants(options.images, options.count)
    expected = [model.predict(image) for image in images]
    sizes = len({image.shape for image in images})
    print(f"{len(images)} images of {sizes} sizes\n")
    print("| file | runtime | mask: largest difference | probability | same class |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for file_format, runtime in FORMS:
            path = Path(folder) / f"model{SUFFIXES[file_format]}"
            if not path.exists():
                write_graph(model, card_of(model, file_format), path)
            exported = ExportedModel(open_session(path, runtime), model.config)
            found = [exported.predict(image) for image in images]
            pairs = list(zip(expected, found, strict=True))
            mask = max(float(np.abs(a.soft_mask - b.soft_mask).max()) for a, b in pairs)
            probability = max(
                abs(a.probabilities[name] - b.probabilities[name]) for a, b in pairs for name in model.classes
            )
            same = sum(a.label == b.label for a, b in pairs)
            print(
                f"| {file_format} | {runtime} | {mask:.1e} | {probability:.1e} | {same} of {len(images)} |", flush=True
            )


if __name__ == "__main__":
    main()
