"""What the encoder is fed: EEG, or one of its controls."""
