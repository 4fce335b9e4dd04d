"""Which samples train, tune and test a model, and what leaks between those parts."""
