"""From a configuration and a data file to the best parameters of each arm.

In: `configuration` (the command line), `sections` (fields and ranges). Out: a `study` (data, split, tokenizer,
arms, `conditions`), steps (`step`), checkpoints, curves; `loop` is the training itself.
"""
