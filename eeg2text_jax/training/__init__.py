"""State, loss, optimizer, step, loop and checkpoints."""
