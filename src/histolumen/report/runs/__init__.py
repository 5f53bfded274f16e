"""Many runs: a plan (benchmark or study) is a list of jobs; one runner executes it, one table reports it."""
