"""Beam search and sampling, ignorant of models: they see a step `tokens -> logits` and a cache."""
