"""The table of a study."""

from statistics import mean, stdev

from histolumen.report.study import PointResult, by_label
from histolumen.report.study_plan import StudyPlan
from histolumen.report.tables import Table


def study_table(plan: StudyPlan, results: list[PointResult]) -> Table:
    """One line per point; the ablation has the paper's figures beside."""
    ablation = plan.study == "ablation"
    columns = ["FG, BG, ASC" if ablation else "setting", "error", "F1+", "F1-", "PxAP", "min/run"]
    columns += ["paper: error", "paper: F1+", "paper: F1-"] if ablation else []
    rows = []
    for label, seeds in by_label(results).items():
        scores = [_mean([result.scores[name] for result in seeds]) for name in seeds[0].scores]
        printed = [f"{value:.2f}" for value in seeds[0].point.printed or ()]
        rows.append([label, *scores, f"{mean(result.seconds for result in seeds) / 60:.1f}", *printed])
    training = ", ".join([plan.recipe, *plan.overrides])
    runs = f"mean ± standard deviation of seeds {plan.seeds}" if len(plan.seeds) > 1 else "one run each"
    notes = [f"Percent, {plan.split} split, soft mask at 0.5. Recipe {training}; {runs}."]
    if ablation:
        notes.append("FG: Eq. 1-1. BG: Eq. 6 (EEM) or 7 (SEM). ASC: the size barrier of Eq. 5.")
        notes.append("Columns 'paper' are printed in the paper (GlaS test set), not measured.")
    missing = len(plan.points) - len(results)
    if missing:
        notes.append(f"{missing} point(s) are missing.")
    return Table(f"Study: {plan.study}", columns, rows, notes)


def _mean(values: list[float]) -> str:
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
