"""Shared parts of all backbones, the EEG encoder, and the model as pure functions of its parameters."""
