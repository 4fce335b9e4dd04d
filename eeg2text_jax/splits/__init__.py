"""Division of the samples into train, dev and test parts, and leakage between these parts."""
