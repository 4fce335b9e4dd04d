"""Files of checkpoints -> our parameters, and back."""
