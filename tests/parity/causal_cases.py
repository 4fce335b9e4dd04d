"""Small random decoder-only models in PyTorch and ours: configurations of every family, prompts, generation."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch_reference import Case, Pair, make_pair

FAMILIES = {  # name -> backbone
    "llama2": "llama", "llama3": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen2.5": "qwen2", "qwen3": "qwen3",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3",
}  # fmt: skip


def cases(quick: tuple[str, ...]) -> list:
    """Family and seed: one of each family in `quick`; ten of each family with `-m slow`."""
    every = itertools.product(FAMILIES, range(10))
    return [pytest.param(*one, marks=[] if one[0] in quick and not one[1] else [pytest.mark.slow]) for one in every]


def random_case(rng: np.random.Generator, family: str) -> Case:
    """A family and sizes that differ from case to case; windows are shorter than the sequences."""
    backbone = FAMILIES[family]
    groups, kv_heads, head_dim = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2])), int(rng.choice([4, 8]))
    heads = groups * kv_heads
    fields: dict[str, Any] = {
        "vocab_size": int(rng.integers(60, 140)), "hidden_size": heads * 8, "intermediate_size": 48,
        "num_hidden_layers": int(rng.integers(2, 4)), "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": bool(rng.integers(2)),
    }  # fmt: skip
    local = {"sliding_window": int(rng.integers(2, 6))}
    if backbone == "llama":
        fields["attention_bias"] = bool(rng.integers(2))
        fields["rope_parameters"] = _llama_rope(rng, family)
    if backbone == "qwen2":
        fields.pop("head_dim")  # its own is the width over the heads
    if family == "qwen2.5":  # the fields of a window are there, and no layer uses it
        fields |= {"use_sliding_window": False, "max_window_layers": 1, **local}
        fields["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    if family in ("qwen2", "qwen3") and rng.integers(2):
        fields |= {"use_sliding_window": True, "max_window_layers": 1, **local}
    if backbone in ("mistral", "gemma2", "gemma3"):
        fields |= local
    if backbone in ("gemma", "gemma2", "gemma3"):
        fields["tie_word_embeddings"] = True
    if backbone == "gemma2":
        fields |= {"query_pre_attn_scalar": 6, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    if backbone == "gemma3":
        fields |= {"query_pre_attn_scalar": 6, "layer_types": _pattern(fields["num_hidden_layers"])}
    return Case(backbone, fields)


def _llama_rope(rng: np.random.Generator, family: str) -> dict[str, Any]:
    """Plain or linear scaling for Llama 2; for Llama 3 its own in half of the cases, with a short first context."""
    if family == "llama2":
        linear = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
        return linear if rng.integers(2) else {"rope_type": "default", "rope_theta": 1e4}
    if rng.integers(2):
        return {"rope_type": "default", "rope_theta": 5e5}
    return {
        "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip


def _pattern(layers: int) -> list[str]:
    return ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]


def random_pair(family: str, seed: int) -> Pair:
    """One configuration of a family with random weights, twice."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(family)])
    pair = make_pair(random_case(rng, family), seed=seed)
    pair.theirs.set_attn_implementation("eager")  # the only one with soft caps
    return pair


def prompts(pair: Pair, rng: np.random.Generator, size: int, longest: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings `[B, S, D]` of different lengths and their mask, padded on the left; numbers in the padding, too."""
    lengths = rng.integers(1, longest + 1, size)
    lengths[0] = longest
    x = rng.normal(size=(size, longest, pair.model.spec.d_model)).astype(np.float32)
    return x, np.arange(longest)[None] >= longest - lengths[:, None]


def their_logits(pair: Pair, x: np.ndarray, mask: np.ndarray, ids: np.ndarray) -> torch.Tensor:
    """PyTorch's logits at every target position, `[B, T, V]`: after prompts `x`, targets `ids [B, T]`."""
    after = pair.theirs.get_input_embeddings()(torch.tensor(ids[:, :-1]))
    whole = torch.cat([torch.as_tensor(x), after], dim=1)
    seen = torch.cat([torch.tensor(mask), torch.ones(after.shape[:2], dtype=torch.bool)], dim=1).long()
    places = (seen.cumsum(-1) - 1).clamp(min=0)
    return pair.theirs(inputs_embeds=whole, attention_mask=seen, position_ids=places).logits[:, x.shape[1] - 1 :]
