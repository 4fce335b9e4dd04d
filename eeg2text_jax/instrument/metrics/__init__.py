"""Scores of texts and rankings, each with its signature, and tables of them."""
