"""Ahead-of-time estimates for devices that are not present: memory, communication and time."""
