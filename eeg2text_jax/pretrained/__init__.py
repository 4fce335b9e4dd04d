"""Foreign checkpoints -> our parameters, and back."""
