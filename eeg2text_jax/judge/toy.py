"""The toy: a T5 of two small layers that is trained on template pairs, to prove the machinery without a network.

It learns to answer questions about a pair, each named by a word before it: whether the meaning is the same, or who,
what action, what number, what place. Then it is frozen and the word left out: a prompt that is tuned on labelled pairs
has to bring it to answer the first question again.
"""

import functools
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from eeg2text_jax.backbones.build import describe, random_config
from eeg2text_jax.judge.fields import ToySettings
from eeg2text_jax.judge.pair_batches import block
from eeg2text_jax.judge.templates import LABELS, MEANING, QUESTIONS, TOY_TEMPLATE, TOY_WORDS, toy_pair
from eeg2text_jax.judge.wording import Wording
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.pretrained.export import export_checkpoint
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.training.state import make_optimizer

WIDTH = 32  # tokens of a pair, at most
CARD = (
    "# A toy T5\n\nTrained on pairs of template sentences to prove the machinery of `eeg2text judge`; no real judge.\n"
)


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Whole words between white space; the toy's sentences have no punctuation of their own."""
    words = {word: i for i, word in enumerate(TOY_WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", words["</s>"])])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def toy_wording(question: str = "") -> Wording:
    """The toy's wording, with a question word or, for the frozen toy, without."""
    return Wording("toy", TOY_TEMPLATE, f"{question} " if question else "")


def make_toy(config: ToySettings, folder: str | Path) -> None:
    """Trains the toy and writes it as a checkpoint folder, which is there whole or not at all.

    Args:
      config: the section `toy` of the configuration.
    """
    tokenizer = toy_tokenizer()
    shape = {
        "d_model": config.width,
        "d_kv": config.width // 4,
        "d_ff": 2 * config.width,
        "num_layers": config.layers,
        "num_heads": 4,
        "dropout_rate": 0.0,
        # Distances up to 16 are told apart: a word and its copy in the other text are found by them first.
        "relative_attention_num_buckets": 64,
        "tie_word_embeddings": True,
    }
    described = random_config("t5", shape, tokenizer)
    model = Seq2SeqModel(describe(described, "t5", "toy"))
    params = _gentle(model.init(jax.random.key(config.seed)), model)
    rates = {"name": "adamw", "lr": config.lr, "schedule": "cosine", "warmup_steps": 200}
    optim = SimpleNamespace(**rates, weight_decay=0.01, grad_clip=1.0)
    params = _train(model, params, make_optimizer(cast(Any, optim), config.steps), config, tokenizer)
    export_checkpoint(model, params, described, tokenizer, folder, CARD)


def _gentle(params: Params, model: Seq2SeqModel) -> Params:
    """Queries smaller by the root of the heads' width: T5 leaves that to its initialization of the queries."""
    shrink = model.spec.encoder.head_dim**-0.5

    def scale(path: Any, leaf: jax.Array) -> jax.Array:
        names = [part.key for part in path]
        return leaf * shrink if "query" in names and names[-1] == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(scale, params)


def _train(
    model: Seq2SeqModel, params: Params, optimizer: optax.GradientTransformation, config: ToySettings, tokenizer: Any
) -> Params:
    labels = jnp.asarray([tokenizer.convert_tokens_to_ids(word) for word in LABELS], jnp.int32)
    rng = random.Random(config.seed)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Params, opt_state: optax.OptState, batch: dict) -> tuple[Params, optax.OptState, jax.Array]:
        loss, gradient = jax.value_and_grad(functools.partial(_loss, model, labels))(params, batch)
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    opt_state = optimizer.init(params)
    with ProgressLine("train the toy", config.steps) as progress:
        for n in range(config.steps):
            params, opt_state, loss = step(params, opt_state, _batch(rng, config.batch_size, tokenizer))
            progress.advance(1, f"loss {float(loss):.3f}" if n % 50 == 49 else "")
    return params


def _loss(model: Seq2SeqModel, labels: jax.Array, params: Params, batch: dict) -> jax.Array:
    """Negative log-likelihood of the right answer, then the end, nats per token."""
    answers = jnp.where(batch["yes"], labels[0], labels[1])
    targets = jnp.stack([answers, jnp.full_like(answers, model.eos_token)], axis=1)
    mask = jnp.arange(batch["ids"].shape[1])[None] < batch["length"][:, None]
    logits = model.forward(params, {"input_ids": batch["ids"], "mask": mask}, model.shift_right(targets))
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def _batch(rng: random.Random, size: int, tokenizer: Any) -> dict[str, np.ndarray]:
    ids, yes = [], []
    for _ in range(size):
        pair, answers = toy_pair(rng)
        question = rng.choice(QUESTIONS)
        ids.append(toy_ids(tokenizer, [(pair.reference, pair.hypothesis)], question)[0])
        yes.append(answers[question])
    return block(ids, np.array(yes), range(size), WIDTH, size, tokenizer.pad_token_id)


def toy_ids(tokenizer: Any, pairs: Sequence[tuple[str, str]], question: str = MEANING) -> list[np.ndarray]:
    """Token ids of pairs with a question word before them."""
    wording, known = toy_wording(question), {word: i for i, word in enumerate(TOY_WORDS)}
    texts = (wording.text(*pair) for pair in pairs)
    return [
        np.array([known.get(word, known["<unk>"]) for word in text.split()] + [known["</s>"]], np.int32)
        for text in texts
    ]
