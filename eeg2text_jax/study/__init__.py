"""A run before training: its configuration, its workdir, and its data, split, tokenizer, arms and model."""
