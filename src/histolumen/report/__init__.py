"""The paper's tables and figures, made anew: benchmarks, complexity, studies, pictures."""
