"""Beam search as a person would write it: lists, loops, one sentence, float64. Only for tests."""

import numpy as np


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def processed(scores, tokens, spec):
    scores = scores.copy()
    length = len(tokens)
    for token in set(tokens) if spec.repetition_penalty != 1 else ():
        penalty = spec.repetition_penalty
        scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
    if n := spec.no_repeat_ngram_size:
        for i in range(length - n + 1):
            if tokens[i : i + n - 1] == tokens[length - n + 1 :]:
                scores[tokens[i + n - 1]] = -np.inf
    if length < spec.min_length:
        scores[list(spec.eos_token_id)] = -np.inf
    if spec.forced_bos_token_id is not None and length == 1:
        scores = only(spec.forced_bos_token_id, scores)
    if spec.forced_eos_token_id is not None and length == spec.max_length - 1:
        scores = only(spec.forced_eos_token_id, scores)
    scores[list(spec.suppress_tokens)] = -np.inf
    if length == (1 if spec.forced_bos_token_id is None else 2):
        scores[list(spec.begin_suppress_tokens)] = -np.inf
    return scores


def only(token, scores):
    forced = np.full_like(scores, -np.inf)
    forced[token] = 0
    return forced


def slow_beam_search(logits_after, spec):
    """Finished hypotheses `(score, tokens)`, best first. `logits_after(tokens) -> [V]`."""
    live, finished = [(0.0, [spec.decoder_start_token_id])], []
    beams, improvable = spec.num_beams, True
    while improvable and live and len(live[0][1]) < spec.max_length:
        if spec.early_stopping is True and len(finished) == beams:
            break
        candidates = [
            (score + gain, [*tokens, token])
            for score, tokens in live
            for token, gain in enumerate(processed(log_softmax(logits_after(tokens)), tokens, spec))
            if gain > -np.inf
        ]
        candidates = sorted(candidates, key=lambda c: -c[0])[: (1 + len(spec.eos_token_id)) * beams]
        ends = [c[1][-1] in spec.eos_token_id or len(c[1]) >= spec.max_length for c in candidates]
        for (score, tokens), end in list(zip(candidates, ends, strict=True))[:beams]:
            if end:
                finished.append((score / (len(tokens) - 1) ** spec.length_penalty, tokens))
        finished = sorted(finished, key=lambda f: -f[0])[:beams]
        live = [c for c, end in zip(candidates, ends, strict=True) if not end][:beams]
        if len(finished) == beams and live:
            longest = spec.early_stopping == "never" and spec.length_penalty > 0
            hope = live[0][0] / ((spec.max_length if longest else len(live[0][1])) - 1) ** spec.length_penalty
            improvable = hope > finished[-1][0]
    return finished
