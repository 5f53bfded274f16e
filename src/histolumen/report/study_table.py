"""The table of a study."""

from histolumen.report.study import PointResult
from histolumen.report.study_plan import StudyPlan
from histolumen.report.tables import Table


def study_table(plan: StudyPlan, results: list[PointResult]) -> Table:
    """One line per point; the ablation has the paper's figures beside."""
    ablation = plan.study == "ablation"
    columns = ["FG, BG, ASC" if ablation else "setting", "error", "F1+", "F1-", "PxAP", "min/run"]
    columns += ["paper: error", "paper: F1+", "paper: F1-"] if ablation else []
    rows = []
    for result in results:
        scores = [f"{value:.2f}" for value in result.scores.values()]
        printed = [f"{value:.2f}" for value in result.point.printed or ()]
        rows.append([result.point.label, *scores, f"{result.seconds / 60:.1f}", *printed])
    training = ", ".join([plan.recipe, *plan.overrides])
    notes = [f"Percent, {plan.split} split, soft mask at 0.5. Recipe {training}; one run each."]
    if ablation:
        notes.append("FG: Eq. 1-1. BG: Eq. 6 (EEM) or 7 (SEM). ASC: the size barrier of Eq. 5.")
        notes.append("Columns 'paper' are printed in the paper (GlaS test set), not measured.")
    missing = len(plan.points) - len(results)
    if missing:
        notes.append(f"{missing} point(s) are missing.")
    return Table(f"Study: {plan.study}", columns, rows, notes)
