"""Training of all arms of a run: state, losses, optimizer, steps, loop and checkpoints."""
