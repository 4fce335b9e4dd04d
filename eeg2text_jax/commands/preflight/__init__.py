"""Memory, communication and time of a run on chips that are not present."""
