"""What a run knows: its configuration, its folder, and what it made or found before training."""
