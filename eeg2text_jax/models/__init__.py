"""Shared parts of all backbones, brain encoders, and the model as pure functions of its parameters."""
