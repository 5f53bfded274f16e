"""What the numbers of a report mean, and what they do not mean, in plain words."""

from typing import Any

from histolumen.report.html.content import Section, Text

NOT_A_DEVICE = (
    "For research only. This is not a medical device: no number, class or picture on this page may be used to diagnose "
    "or treat a patient."
)
_MASK = (
    "The mask shows the pixels that this network relied on for its class, learned from one label per image. It is not "
    "an annotation by a person: it may leave out tissue that a pathologist would mark, and mark tissue that merely "
    "goes along with the class in these images."
)
_PROBABILITY = (
    "A probability says how sure the network is, not how often it is right. It is worth what the calibration chart "
    "of an evaluation shows, and nothing on tissue, stains or scanners unlike those of the training images."
)
_ELSEWHERE = (
    "All scores are about images like these. Another laboratory, scanner, stain, organ or choice of patients may give "
    "quite different ones; measure again there."
)


def meaning_of_scores(evaluation: dict[str, Any], trivial: dict[str, float], chosen_on: str | None) -> Section:
    """About an evaluated model.

    Args:
        evaluation: `Evaluation.as_dict()`.
        trivial: scores of the trivial answer.
        chosen_on: the split whose labels chose the epoch, if one did.
    """
    count, split = evaluation["images"], evaluation["split"]
    points = []
    if "error" in evaluation:
        points.append(
            f"The classification error is the share of images with a wrong class: with {count} images, one more "
            f"mistake adds {100 / count:.1f} points. The area under the ROC curve is the chance that of two images of "
            "different classes the right one gets the higher probability; 50 % is a guess."
        )
    if "f1_plus" in trivial:
        points.append(
            "F1+ and F1- are the overlap (Dice) of mask and truth, on the foreground and on the background, as a mean "
            "over images: 100 is perfect. Read them together and beside the trivial answer: calling every pixel "
            f"foreground already gives F1+ {trivial['f1_plus']:.1f} here, with F1- 0. PxAP rates the soft mask over "
            "all thresholds."
        )
    elif not evaluation["pixel_confusion"]:
        points.append("These images have no true masks, so the masks were not measured: look at the gallery.")
    points.append(
        "Intervals (95 %, bootstrap) say how far a score would move with other images of the same kind. They know "
        f"nothing of other seeds, and {count} images are {'few' if count < 100 else 'a sample'}."
    )
    points += _split_notes(split, chosen_on)
    return Section(
        "What the numbers mean", [Text([*points, _MASK, _PROBABILITY, _ELSEWHERE, NOT_A_DEVICE], listed=True)]
    )


def meaning_of_predictions() -> Section:
    """About predictions without truth."""
    unmeasured = "Nothing on this page was compared with the truth: it shows answers, not how good they are."
    return Section("What this means", [Text([unmeasured, _MASK, _PROBABILITY, NOT_A_DEVICE], listed=True)])


def meaning_of_table(*, with_paper: bool) -> Section:
    """About a benchmark or study, with or without the paper's columns."""
    rows = (
        "Rows are comparable where they share the backbone, its initial weights and the training; the table says what "
        "they start from. Differences smaller than the intervals may be chance."
    )
    paper = "The paper's columns are copied from it, not measured here: its test images, its own backbone and schedule."
    return Section(
        "What the numbers mean",
        [Text([rows, *([paper] if with_paper else []), _MASK, _ELSEWHERE, NOT_A_DEVICE], listed=True)],
    )


def _split_notes(split: str, chosen_on: str | None) -> list[str]:
    if split == "train":
        return [
            "These are training images: the network has seen them with their labels, and unseen ones will score lower."
        ]
    if split == chosen_on:
        return [
            f"The labels of these {split} images chose the epoch that was kept, so their classification scores are a "
            "little too good. The test split is unseen."
        ]
    return []
