"""Does a configuration fit a TPU that is not there? Its real programs, compiled ahead of time."""
