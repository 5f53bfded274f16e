"""How well a model tells images of its training kind from others: the table of docs/reliability.md.

    python benchmarks/unlike.py RUN MANIFEST --slide SLIDE --mpp 0.62

The run's own reference is used; for a run of an earlier version, it is computed from the training images of the
manifest. All altered images are made from the validation images, which had no part in it.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

import histolumen
import odd_images
from histolumen.data.image import read_image
from histolumen.data.manifest import read_manifest
from histolumen.data.transforms import to_working_size
from histolumen.engine.checkpoint import find_model, load_model
from histolumen.engine.completion import calibrate, describe_training
from histolumen.engine.evaluate import evaluate
from histolumen.engine.model import Model
from histolumen.familiarity.judgement import find_faults, judge
from histolumen.familiarity.reference import Reference
from histolumen.slides.reader import open_slide


def main() -> None:
    """Print one row per kind of image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--slide", type=Path, help="a slide of other tissue")
    parser.add_argument("--mpp", type=float, default=0.62, help="microns per pixel of the images in the manifest")
    parser.add_argument("--calibration", action="store_true", help="also evaluate the calibration")
    options = parser.parse_args()
    model, manifest = histolumen.load(options.run, device="cpu"), read_manifest(options.manifest)
    if model.reference is None:
        method, card = load_model(find_model(options.run))
        model.reference = describe_training(method, card, manifest.split("train"), model.device)
        model.temperature = calibrate(method, card, manifest.split("valid"), model.device)
    if model.reference is None:
        raise SystemExit("too few training images")
    good = [read_image(path) for path in manifest.image_paths("valid")]
    kinds = {"validation images": good}
    kinds |= {name: [change(image) for image in good] for name, change in odd_images.CHANGES.items()}
    kinds |= {"noise": odd_images.noise(), "text": odd_images.text(), "photographs": odd_images.photos()}
    kinds["immunohistochemistry"] = odd_images.immunohistochemistry()
    if options.slide:
        with open_slide(options.slide) as slide:
            kinds["slide of other tissue"] = odd_images.fields_of(slide, options.mpp)
        training = [read_image(path) for path in manifest.image_paths("train")[::8]]
        kinds["the same, in the glands' colours"] = odd_images.in_colours_of(kinds["slide of other tissue"], training)
    print("| Images | Number | Flagged | AUROC | Distance, median (lowest) | Faults named |\n|---|---|---|---|---|---|")
    usual: np.ndarray | None = None
    for name, images in kinds.items():
        distances, line = measure(model, model.reference, images)
        usual = distances if usual is None else usual
        auroc = (distances[:, None] > usual[None]).mean() + 0.5 * (distances[:, None] == usual[None]).mean()
        shown = "" if usual is distances else f"{auroc:.3f}"
        print(f"| {name} | {len(images)} | {line[0]} | {shown} | {line[1]} | {line[2]} |", flush=True)
    if options.calibration:
        print(f"temperature {model.temperature}")
        print(evaluate(model, manifest, "valid"))


def measure(model: Model, reference: Reference, images: list[np.ndarray]) -> tuple[np.ndarray, tuple[int, str, str]]:
    """Distances of images; number with any warning, summary of the distances, and number of each fault."""
    backbone, faults = model.method.backbone, Counter[str]()
    distances, flagged = [], 0
    for image in images:
        pixels = to_working_size(image, model.config.images, None, backbone.size_multiple).permute(1, 2, 0).numpy()
        description = reference.describe(backbone, pixels)
        judgement = judge(reference, description)
        distances.append(judgement.unlike)
        flagged += bool(judgement.warnings)
        faults.update(fault.name for fault in find_faults(reference, description))
    named = ", ".join(f"{name} {count}" for name, count in faults.most_common())
    return np.array(distances), (flagged, f"{np.median(distances):.2f} ({min(distances):.2f})", named)


if __name__ == "__main__":
    main()
