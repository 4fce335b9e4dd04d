"""Beam search and sampling over any model that gives a step `tokens -> logits` and a cache."""
