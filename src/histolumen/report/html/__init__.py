"""The report: one self-contained HTML file about a run, a benchmark, a study, predictions or slides."""
