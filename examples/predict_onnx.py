"""Class and mask of images by an exported model: python predict_onnx.py model.onnx IMAGE...

Needs numpy, pillow and onnxruntime, but neither histolumen nor torch. Writes IMAGE_mask.png beside each image.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1])
card = json.loads(session.get_modelmeta().custom_metadata_map["histolumen"])
for path in map(Path, sys.argv[2:]):
    inputs = {"image": np.asarray(Image.open(path).convert("RGB"))}
    if "tissue" in card["inputs"]:  # 0 on bare glass, 1 elsewhere; a single 1: no glass
        inputs["tissue"] = np.ones((1, 1), np.uint8)
    probabilities, soft_mask = session.run(["probabilities", "soft_mask"], inputs)
    Image.fromarray(soft_mask >= 0.5).save(path.with_name(f"{path.stem}_mask.png"))
    k = int(probabilities.argmax())
    print(f"{path}: {card['classes'][k]} ({probabilities[k]:.3f}), foreground {(soft_mask >= 0.5).mean():.1%}")
