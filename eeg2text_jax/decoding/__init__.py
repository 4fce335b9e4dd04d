"""Teacher-forced logits and free-running beam search, side by side."""
