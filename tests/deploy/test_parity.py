"""Every method answers in every format as the trained model does."""

import numpy as np
import pytest
import torch
from models import tiny_model

from histolumen.deploy.card import card_of
from histolumen.deploy.formats import write_graph
from histolumen.deploy.parity import check_parity
from histolumen.deploy.runtimes import SUFFIXES, open_session
from histolumen.errors import RunError

METHODS = [
    ("all_ones", {}),
    ("cam_avg", {"alignment": "centres"}),
    ("cam_max", {"negative_class": "benign"}),
    ("deep_mil", {}),
    ("erase", {}),
    ("maxmin", {"background": "eem"}),
    ("maxmin", {"mask_from": "decoder", "classifier_scale": 0.5}),
    ("maxmin", {"mask_from": "decoder", "refine": True}),
    ("maxmin", {"refine": True, "alignment": "centres"}),
    ("maxmin", {"mask_from": "decoder", "refine": True, "class_from": "image"}),
    ("maxmin", {"mask_at": "features", "mask_stride": 8}),
    ("negev", {}),
    ("unet", {}),
    ("wildcat", {}),
]


@pytest.mark.parametrize(("name", "options"), METHODS, ids=[f"{k}-{name}" for k, (name, _) in enumerate(METHODS)])
def test_onnx_answers_as_the_model(name, options, tmp_path):
    model = tiny_model(name, "images.test_flips=true", **options)
    write_graph(model, card_of(model, "onnx"), tmp_path / "model.onnx")
    assert check_parity(model, open_session(tmp_path / "model.onnx")) < 1e-4
    assert check_parity(model, open_session(tmp_path / "model.onnx", "openvino")) < 1e-4


@pytest.mark.parametrize("file_format", ["openvino", "torchscript"])
@pytest.mark.parametrize("overrides", [(), ("images.glass=remove", "images.resize=square")], ids=["plain", "square"])
def test_other_formats_answer_as_the_model(file_format, overrides, tmp_path):
    model = tiny_model("maxmin", *overrides)
    path = tmp_path / f"model{SUFFIXES[file_format]}"
    write_graph(model, card_of(model, file_format), path)
    assert check_parity(model, open_session(path)) < 1e-4


def test_glass_is_painted_over_and_no_part_of_the_mask(tmp_path):
    model = tiny_model("cam_avg", "images.glass=remove", "images.test_flips=true")
    write_graph(model, card_of(model, "onnx"), tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    image = np.random.default_rng(0).integers(40, 200, (120, 90, 3), dtype=np.uint8)
    tissue = np.ones((120, 90), np.uint8)
    tissue[:, :40] = 0
    probabilities, mask = session.run(image, tissue)
    assert not mask[:, :40].any()
    other = image.copy()
    other[:, :30] = 255  # what lies on glass does not matter
    same_probabilities, same_mask = session.run(other, tissue)
    assert np.array_equal(probabilities, same_probabilities)
    assert np.array_equal(mask, same_mask)
    kept = session.run(image, np.ones((1, 1), np.uint8))[1]
    assert kept[:, :40].any()


def test_a_graph_with_other_answers_is_refused(tmp_path):
    model = tiny_model("cam_avg")
    write_graph(model, card_of(model, "torchscript"), tmp_path / "model.pt")
    with torch.no_grad():
        model.method.head.weight.neg_()
    with pytest.raises(RunError, match="differs from the trained model"):
        check_parity(model, open_session(tmp_path / "model.pt"))
