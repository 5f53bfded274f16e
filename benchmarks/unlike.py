"""How well a model tells images of its training kind from others: the table of docs/reliability.md.

    python benchmarks/unlike.py RUN MANIFEST --slide SLIDE --mpp 0.62
    python benchmarks/unlike.py RUN MANIFEST --calibration

The run's own reference is used; for a run of an earlier version, it is computed from the training images of the
manifest. All altered images are made from the validation images, which had no part in it.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

import histolumen
import odd_images
from histolumen import metrics
from histolumen.calibration import fit_temperature, with_temperature
from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest, read_manifest
from histolumen.data.transforms import to_working_size
from histolumen.engine.checkpoint import find_model, load_model
from histolumen.engine.completion import describe_training
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
    parser.add_argument("--calibration", action="store_true", help="evaluate the calibration instead")
    options = parser.parse_args()
    model, manifest = histolumen.load(options.run, device="cpu"), read_manifest(options.manifest)
    if options.calibration:
        print(calibration(model, manifest))
        return
    if model.reference is None:
        method, card = load_model(find_model(options.run))
        model.reference = describe_training(method, card, manifest.split("train"), model.device)
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


def calibration(model: Model, manifest: Manifest) -> str:
    """Probabilities of the validation images at temperature 1, and at that of the other images each (leave one out)."""
    model.temperature, model.reference = 1.0, None
    valid = manifest.split("valid")
    found = model.predict_many(valid.image_path(row) for row in valid.rows)
    before = np.array([list(prediction.probabilities.values()) for prediction in found])
    labels = np.array([model.classes.index(row.label) for row in valid.rows])
    rest = [np.arange(len(labels)) != k for k in range(len(labels))]
    after = np.array([with_temperature(before[~r][0], fit_temperature(before[r], labels[r])) for r in rest])
    lines = [f"{(before.argmax(1) == labels).sum()} of {len(labels)} right, T {fit_temperature(before, labels)}"]
    for name, values in (("temperature 1", before), ("calibrated, leave one out", after)):
        error = metrics.calibration_error(values.argmax(1) == labels, values.max(1))(np.ones((1, len(labels))))[0]
        cross_entropy = -np.log(values[np.arange(len(labels)), labels]).mean()
        certainty = values.max(1).mean()
        lines.append(f"{name}: certainty {certainty:.3f}, ECE {error:.3f}, cross-entropy {cross_entropy:.3f}")
    return "\n".join(lines)


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
