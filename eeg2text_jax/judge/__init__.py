"""Metrics that need a model: BERTScore, similarity, and LATTEScore, whose judge is tuned here.

In: pairs of texts, a frozen model. Out: soft prompts, scores, baselines, tables of speakers. `model_metrics` makes the
metrics that a command names.
"""
