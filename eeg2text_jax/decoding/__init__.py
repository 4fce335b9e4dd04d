"""From parameters and batches to tokens: teacher-forced logits beside beam search, greedy search and sampling.

In: a step `tokens -> logits` and its cache, or a model of `models`; `settings` says how. Out: tokens and scores, on one
device (`generate`, `teacher_forced`) or many. It knows no run and no condition.
"""
