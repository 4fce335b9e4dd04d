"""EEG encoder, bridge and encoder-decoder backbones."""

# Each is a module here that describes it, and a table of names in `pretrained/` that reads and writes its checkpoints.
BACKBONES = ("bart", "bert2bert", "pegasus", "t5")
