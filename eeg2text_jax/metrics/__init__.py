"""Metrics of predicted texts and of rankings; every figure has a signature that states its settings."""
