"""Training, evaluation and prediction: the same for every method."""
