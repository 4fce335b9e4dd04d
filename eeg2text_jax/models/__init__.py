"""EEG encoder, bridge and language model as pure functions; `functional` is the whole model.

In: a description (`spec`, made by `backbones`), parameters (`pretrained` reads and writes them), arrays. Out: logits,
losses, caches.
"""
