"""Charts and tables of an evaluation, by hand."""

import numpy as np
import pytest

from histolumen.metrics import count_pixels
from histolumen.report.html.gallery import first_shown, record_rank
from histolumen.report.html.measured import (
    class_matrix,
    histogram,
    pixel_matrix,
    reliability_chart,
    roc_chart,
    scores_table,
    sizes_chart,
    trivial_scores,
)
from histolumen.report.rows import Printed


def image(name: str, label: str, p_b: float, share: float | None = None, **more: object) -> dict[str, object]:
    prediction = "b" if p_b >= 0.5 else "a"
    record = {"image": name, "label": label, "prediction": prediction, "probability": max(p_b, 1 - p_b), "p_a": 1 - p_b}
    record |= {"p_b": p_b, "wrong": int(prediction != label), "foreground_share": 0.5}
    return record | ({} if share is None else {"true_foreground_share": share, "miou": 50.0}) | more


def evaluation(images: list[dict[str, object]], **more: object) -> dict[str, object]:
    return {"split": "valid", "images": len(images), "per_image": images, "pixel_confusion": None, **more}


FOUR = [image("1", "a", 0.1), image("2", "a", 0.6), image("3", "b", 0.9), image("4", "b", 0.8)]


def test_classes_and_pixels_are_counted_by_their_true_name():
    matrix = class_matrix(evaluation([*FOUR, image("5", "b", 0.5, prediction="no tissue")]))
    assert matrix.predicted == ["a", "b", "no tissue"]
    assert matrix.counts == [[1, 1, 0], [0, 2, 1]]
    pixels = {"true_negative": 6, "false_positive": 2, "false_negative": 1, "true_positive": 3}
    assert pixel_matrix(evaluation(FOUR, pixel_confusion=pixels)).counts == [[6, 2], [1, 3]]
    assert pixel_matrix(evaluation(FOUR)) is None


def test_the_roc_curve_passes_through_its_points():
    chart = roc_chart({"": evaluation(FOUR, auc=100.0)})
    assert chart.series[0].points == [(0, 0), (0, 50), (0, 100), (50, 100), (100, 100)]
    assert chart.series[0].label == "b, area 100.0 %"
    assert chart.x.title == "a called b, %"
    assert roc_chart({"": evaluation(FOUR[:2])}) is None  # one class only


def test_three_classes_have_a_curve_each():
    images = [{**image(str(k), label, 0.2), "p_c": 0.1 * k} for k, label in enumerate("abc")]
    assert [series.label for series in roc_chart({"": evaluation(images)}).series] == ["a", "b", "c", "guess"]


def test_calibration_compares_probability_and_accuracy():
    chart = reliability_chart(evaluation([image("1", "b", 0.82), image("2", "a", 0.88), image("3", "b", 0.55)]))
    (low, high) = chart.series[0].points
    assert low == pytest.approx((55, 100))
    assert high == pytest.approx((85, 50))
    assert list(chart.series[0].names) == ["1 image", "2 images"]


def test_sizes_are_shown_where_the_truth_is_known():
    chart = sizes_chart(evaluation([image("1", "a", 0.1, 0.25), image("2", "b", 0.9)]))
    assert [(series.label, series.points) for series in chart.series[:-1]] == [("a", [(25, 50)])]
    assert sizes_chart(evaluation(FOUR)) is None


def test_the_trivial_answer_is_all_ones_and_the_frequent_class():
    truth = np.zeros((10, 10), bool)
    truth[:4] = True
    counts = count_pixels(np.ones((10, 10)), truth)
    pixels = dict(
        zip(("true_negative", "false_positive", "false_negative", "true_positive"), (0, 60, 0, 40), strict=True)
    )
    scores = trivial_scores(evaluation([image("1", "a", 0.1, 0.4)], error=0.0, pixel_confusion=pixels), "a")
    assert scores["f1_plus"] == pytest.approx(100 * counts.f1_plus)
    assert scores["miou"] == pytest.approx(100 * counts.miou)
    assert (scores["f1_minus"], scores["pxap"], scores["error"]) == (0, 40, 0)
    assert "f1_plus" not in trivial_scores(evaluation(FOUR, error=25.0), "a")
    normal = trivial_scores(evaluation([image("1", "a", 0.1, 0.0)], pixel_confusion=pixels), "a")
    assert "f1_plus" not in normal  # no image has foreground


def test_scores_stand_beside_the_trivial_answer_and_the_papers():
    intervals = {"error": [0.0, 50.0], "f1_plus": [None, None], "true_foreground_share": [0.3, 0.4]}
    content = evaluation(FOUR, error=25.0, f1_plus=None, true_foreground_share=0.35, interval_95=intervals)
    table = scores_table(content, {"error": 50.0}, Printed(1.25, 72.0, 69.0))
    assert table.columns[-1] == "the paper's"
    assert table.rows == [
        ["classification error", "25.0", "0.0 – 50.0", "50.0", "1.25"],
        ["F1+ (foreground Dice)", "--", "--", "--", "72.00"],
        ["foreground, true", "35.0", "30.0 – 40.0", "--", "--"],
    ]
    assert "the paper's" not in scores_table(content, {}).columns


def test_shares_are_counted_in_ten_bins():
    bars = histogram("", {"a": [0.0, 0.05, 1.0], "b": []}, "", "")
    assert bars.series == {"a": [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]}


def test_the_gallery_begins_with_the_worst_mask_and_then_the_least_certain():
    images = [image("sure", "a", 0.01), image("unsure", "a", 0.49), image("masked", "a", 0.1, 0.2)]
    assert sorted(images, key=record_rank) == [images[2], images[1], images[0]]
    assert first_shown(evaluation(images), 2) == {"masked", "unsure"}
