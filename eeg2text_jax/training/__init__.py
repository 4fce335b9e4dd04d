"""From a configuration and a data file to the best parameters of each arm; `loop` is the training itself.

In: `configuration` (the command line), `sections` (fields and ranges). Out: a `study`, steps, checkpoints, curves.
"""
