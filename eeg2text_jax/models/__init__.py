"""The network as pure functions: EEG encoder, bridge and language model.

In: a description (`spec`, from a transformers configuration by `backbones`), parameters (`pretrained` reads and writes
checkpoints), arrays. Out: logits, losses, caches; `functional` is the whole model.
"""
