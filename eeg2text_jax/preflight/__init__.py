"""What a configuration takes on devices that are not there: memory, communication and bounds of the time."""
