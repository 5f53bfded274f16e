"""The paper's tables and figures: benchmarks, complexity, studies, qualitative results."""
