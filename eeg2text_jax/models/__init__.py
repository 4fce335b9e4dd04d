"""EEG encoder, bridge and encoder-decoder backbones."""
