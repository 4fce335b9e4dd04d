"""Random programs (a small model of random weights, random settings) whose tokens must be those of PyTorch."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch_reference import Case, Pair, make_pair
from transformers import GenerationConfig, GenerationMixin

from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.decoding.settings import GenerationSpec

TIE = 1e-5  # hypotheses whose scores differ by less are equal in float32
BACKBONES = ("bart", "pegasus", "t5", "t5-gated", "bert2bert")
SENTENCES = 10


class Verdict(NamedTuple):
    """How the hypotheses of one sentence compare."""

    same: bool
    tie: bool
    detail: str


def random_case(rng: np.random.Generator, backbone: str) -> Case:
    """A backbone of two or three small layers; widths, heads and vocabulary differ from case to case."""
    heads, layers = int(rng.choice([2, 4])), int(rng.integers(2, 4))
    vocab = int(rng.integers(60, 140))
    if backbone in ("bart", "pegasus"):
        sides = {f"{side}_{field}": value for side in ("encoder", "decoder") for field, value in
                 (("layers", layers), ("attention_heads", heads), ("ffn_dim", 48))}  # fmt: skip
        tokens = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
        if backbone == "pegasus":
            tokens = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
        return Case(backbone, {"vocab_size": vocab, "d_model": 32, "max_position_embeddings": 40, **sides, **tokens})
    if backbone.startswith("t5"):
        gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if "gated" in backbone else {}
        return Case("t5", {
            "vocab_size": vocab, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": layers, "num_heads": heads,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "decoder_start_token_id": 0,
            "pad_token_id": 0, "eos_token_id": 1, **gated,
        })  # fmt: skip
    return Case("bert2bert", {
        "vocab_size": vocab, "hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 48, "max_position_embeddings": 40, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
    })  # fmt: skip


def random_settings(rng: np.random.Generator, vocab: int, eos: int) -> dict[str, Any]:
    """Settings over all deterministic fields; each is off about half of the time."""

    def sometimes(*values: Any) -> Any:
        return values[0] if rng.random() < 0.5 else values[rng.integers(len(values))]

    def some_tokens() -> tuple[int, ...]:
        return tuple(int(t) for t in rng.choice(np.arange(3, vocab), size=4, replace=False))

    beams, length = int(rng.choice([1, 2, 3, 5])), int(rng.integers(6, 19))
    return {
        "num_beams": beams,
        "num_return_sequences": int(rng.integers(1, beams + 1)),
        "max_length": length,
        "min_length": sometimes(0, length // 2, length),
        # Random models rarely end by themselves: more end tokens make the bookkeeping of finished hypotheses work.
        "eos_token_id": (eos, *(some_tokens() if rng.random() < 0.6 else ())),
        "length_penalty": sometimes(1.0, 0.0, 0.6, 2.0, -0.5),
        "early_stopping": sometimes(False, True, "never"),
        "repetition_penalty": sometimes(1.0, 5.0, 1.3, 0.8),
        "no_repeat_ngram_size": sometimes(0, 1, 2, 3),
        "forced_bos_token_id": sometimes(None, 5),
        "forced_eos_token_id": sometimes(None, eos),
        "suppress_tokens": sometimes((), some_tokens()),
        "begin_suppress_tokens": sometimes((), some_tokens()),
        "renormalize_logits": sometimes(False, True),
    }


def random_sampling(rng: np.random.Generator, settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings for sampling, with temperature, top-k and top-p.

    torch.multinomial cannot draw more tokens than a beam search leaves possible, so beams have no forced tokens and
    keep many.
    """
    beams = settings["num_beams"] > 1
    forced = {"forced_bos_token_id": None, "forced_eos_token_id": None} if beams else {}
    return {
        **settings,
        **forced,
        "do_sample": True,
        "num_return_sequences": settings["num_return_sequences"] if beams else int(rng.integers(1, 4)),
        "temperature": float(rng.choice([1.0, 0.7, 1.4])),
        "top_k": int(rng.choice([0, 30, 45] if beams else [0, 3, 20])),
        "top_p": float(rng.choice([1.0, 0.98] if beams else [1.0, 0.8])),
    }


@contextlib.contextmanager
def our_draws(spec: GenerationSpec, keys: jax.Array) -> Iterator[None]:
    """Make torch.multinomial draw with our random numbers: the largest log-probabilities after our Gumbel noise."""
    if spec.num_beams == 1:
        of_each = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
        keys = of_each(keys, jnp.arange(spec.num_return_sequences)).reshape(-1)
    length = len(spec.decoder_prompt)  # given tokens are not drawn

    def multinomial(probabilities: torch.Tensor, num_samples: int) -> torch.Tensor:
        nonlocal length
        length += 1
        assert bool(((probabilities > 0).sum(dim=-1) >= num_samples).all()), "fewer tokens than draws"
        noise = jax.vmap(lambda key: jax.random.gumbel(jax.random.fold_in(key, length), probabilities.shape[1:]))(keys)
        order = np.argsort(-(probabilities.log().numpy() + np.asarray(noise)), axis=1, kind="stable")
        return torch.tensor(order[:, :num_samples])

    with mock.patch.object(torch, "multinomial", multinomial):
        yield


def random_inputs(rng: np.random.Generator, pair: Pair, entry: str, size: int = SENTENCES) -> dict[str, np.ndarray]:
    """Sentences of different lengths, random numbers in the padding too."""
    spec, longest = pair.model.spec, 9
    lengths = rng.integers(2, longest + 1, size)
    lengths[0] = longest
    if entry == "input_ids":
        vocab = min(spec.vocab_size, spec.encoder_vocab_size or spec.vocab_size)
        values = rng.integers(3, vocab, (size, longest))
    else:
        values = rng.normal(size=(size, longest, spec.d_model)).astype(np.float32)
    return {entry: values, "mask": np.arange(longest)[None] < lengths[:, None]}


def compare_program(seed: int, sampled: bool = False) -> list[Verdict]:
    """One program on its inputs: a verdict a sentence; sampled with the same random numbers on both sides."""
    rng = np.random.default_rng(seed)
    backbone = BACKBONES[seed % len(BACKBONES)]
    pair = make_pair(random_case(rng, backbone), seed=seed)
    settings = random_settings(rng, pair.model.spec.vocab_size, pair.model.eos_token)
    entry = "input_ids" if backbone == "bert2bert" or rng.random() < 0.5 else "inputs_embeds"
    inputs = random_inputs(rng, pair, entry)
    settings = random_sampling(rng, settings) if sampled else settings
    spec = GenerationSpec.from_fields(settings, pair.model)
    given = {entry: torch.tensor(inputs[entry]), "attention_mask": torch.tensor(inputs["mask"]).long()}
    search = partial(torch_generate, pair.theirs, spec, their_fields(spec), given)
    return compare(pair, inputs, spec, seed, search, f"seed {seed} {backbone} {settings}")


def compare(
    pair: Pair, inputs: dict[str, np.ndarray], spec: GenerationSpec, seed: int, search: Callable, detail: str
) -> list[Verdict]:
    """Our sentences and those of `search`, PyTorch's, with the same random numbers: a verdict a sentence."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(SENTENCES))
    ours = generate(pair.model, pair.params, {k: jnp.asarray(v) for k, v in inputs.items()}, spec, key=keys)
    with our_draws(spec, keys) if spec.do_sample else contextlib.nullcontext():
        theirs, scores = search()
    return [compare_sentence(i, spec, ours, theirs, scores, detail) for i in range(SENTENCES)]


@torch.no_grad()
def torch_generate(
    theirs: torch.nn.Module, spec: GenerationSpec, fields: dict[str, Any], given: dict[str, torch.Tensor]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Tokens `[N, T]` and, with beams, scores `[N]` of `transformers.generate` with these settings."""
    theirs.generation_config = GenerationConfig()
    config = GenerationConfig(**fields, return_dict_in_generate=True, output_scores=True)
    out = GenerationMixin.generate(theirs, **given, generation_config=config)
    return out.sequences.numpy(), out.sequences_scores.numpy() if spec.num_beams > 1 else None


def their_fields(spec: GenerationSpec) -> dict[str, Any]:
    """The settings that have an effect, as fields of transformers."""
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(spec).items()}
    without_effect = () if spec.do_sample else ("do_sample", "temperature", "top_k", "top_p")
    if spec.num_beams == 1:
        without_effect += ("length_penalty", "early_stopping")
    return {name: value for name, value in fields.items() if name not in without_effect and value not in (None, [])}


def compare_sentence(sentence: int, spec: GenerationSpec, ours, theirs, their_scores, detail: str) -> Verdict:
    """All returned hypotheses of one sentence; what torch fills up with behind the end (pad or eos) does not count."""
    same, tie = True, True
    for row in range(sentence * spec.num_return_sequences, (sentence + 1) * spec.num_return_sequences):
        length = int(ours.lengths[row])
        mine, other = np.asarray(ours.sequences[row])[:length], theirs[row]
        filling = {spec.pad_token_id, spec.eos_token_id[0]}
        if len(other) < length or (other[:length] != mine).any() or not filling.issuperset(other[length:].tolist()):
            same = False
            detail += f"\n  ours {mine.tolist()}\n  torch {other.tolist()}"
            close = their_scores is not None and abs(float(ours.scores[row]) - float(their_scores[row])) < TIE
            tie &= close
    return Verdict(same, tie and not same, detail)
