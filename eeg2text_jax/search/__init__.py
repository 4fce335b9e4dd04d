"""Beam search and sampling for any model with a decoder step `tokens -> logits` and a KV cache."""
