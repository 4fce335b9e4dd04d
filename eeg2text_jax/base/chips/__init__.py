"""Times and traffic of a compiled program, read from its text, for TPUs and GPUs that need not be present."""
