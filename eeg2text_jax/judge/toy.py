"""The toy: a T5 of two small layers, trained on template pairs, to demonstrate prompt tuning without a download.

It learns to answer five questions about a pair: whether the two sentences agree in meaning, or in the person, the
action, the number or the place. A question word before the pair names the question. Then the toy is frozen, and
the question word is left out: a tuned prompt has to make the toy answer the question on the meaning again.
"""

import functools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from eeg2text_jax.backbones.build import describe, random_config
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.judge.fields import ToySettings
from eeg2text_jax.judge.pair_batches import block
from eeg2text_jax.judge.templates import LABELS, QUESTIONS, TOY_TEMPLATE, TOY_WORDS, toy_pair
from eeg2text_jax.judge.wording import Wording
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.pretrained.export import export_checkpoint
from eeg2text_jax.pretrained.folder import SUMS
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.training.state import make_optimizer

TOKEN_IDS = {word: i for i, word in enumerate(TOY_WORDS)}
WIDTH = 32  # most tokens of a pair
CARD = "# A toy T5\n\nTrained on pairs of template sentences to demonstrate `eeg2text judge`; not a real judge.\n"


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the words between white space, with the vocabulary `TOY_WORDS`."""
    tokenizer = Tokenizer(models.WordLevel(TOKEN_IDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end = ("</s>", TOKEN_IDS["</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def toy_wording(question: str = "") -> Wording:
    """Return the wording that asks the toy about a pair; `question`: the question word before it, or "" for none."""
    return Wording("toy", TOY_TEMPLATE, f"{question} " if question else "")


def make_toy(config: ToySettings, folder: str | Path) -> None:
    """Train the toy and write it as a checkpoint folder, atomically."""
    tokenizer = toy_tokenizer()
    shape = {
        "d_model": config.width,
        "d_kv": config.width // 4,
        "d_ff": 2 * config.width,
        "num_layers": config.layers,
        "num_heads": 4,
        "dropout_rate": 0.0,
        # With 64 buckets, distances up to 16 are distinct: the toy finds a word's copy in the other text by distance.
        "relative_attention_num_buckets": 64,
        "tie_word_embeddings": True,
    }
    described = random_config("t5", shape, tokenizer)
    model = Seq2SeqModel(describe(described, "t5", "toy"))
    params = _gentle(model.init(jax.random.key(config.seed)), model)
    optim: Any = SimpleNamespace(
        name="adamw", lr=config.lr, schedule="cosine", warmup_steps=200, weight_decay=0.01, grad_clip=1.0
    )
    params = _train(model, params, make_optimizer(optim, config.steps), config, tokenizer)
    export_checkpoint(model, params, described, tokenizer, folder, CARD)


def check_toy(folder: str | Path) -> None:
    """Write the toy's README.md again if it is missing or changed; the folder's checksums do not cover this file.

    Raises UserError if the folder has no checksums, so a damaged toy would not be noticed.
    """
    if not (Path(folder) / SUMS).exists():
        raise UserError(f"{folder}: has no {SUMS}; remove the folder to have the toy made again.")
    card = Path(folder) / "README.md"
    if not card.is_file() or card.read_bytes() != CARD.encode():
        write_text(card, CARD)


def _gentle(params: Params, model: Seq2SeqModel) -> Params:
    """Divide the query kernels by sqrt(head width) once more than T5's initialization does; attention begins flat."""

    def scale(path: Any, leaf: jax.Array) -> jax.Array:
        names = [part.key for part in path]
        is_query = "query" in names and names[-1] == "kernel"
        return leaf * model.spec.encoder.head_dim**-0.5 if is_query else leaf

    return jax.tree_util.tree_map_with_path(scale, params)


def _train(
    model: Seq2SeqModel, params: Params, optimizer: optax.GradientTransformation, config: ToySettings, tokenizer: Any
) -> Params:
    """Train the toy for `config.steps` steps on random pairs and questions; return its parameters."""
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
    """Return the mean negative log-likelihood of the right answer and the end token, in nats per token."""
    answers = jnp.where(batch["yes"], labels[0], labels[1])
    targets = jnp.stack([answers, jnp.full_like(answers, model.eos_token)], axis=1)
    mask = jnp.arange(batch["ids"].shape[1])[None] < batch["length"][:, None]
    logits = model.forward(params, {"input_ids": batch["ids"], "mask": mask}, model.shift_right(targets))
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def _batch(rng: random.Random, size: int, tokenizer: Any) -> dict[str, np.ndarray]:
    """Return a batch of `size` random pairs, each with a random question; `yes` is the right answer."""
    ids, yes = [], []
    for _ in range(size):
        pair, answers = toy_pair(rng)
        question = rng.choice(QUESTIONS)
        ids.append(toy_ids(tokenizer, pair.reference, pair.hypothesis, question))
        yes.append(answers[question])
    return block(ids, np.array(yes), range(size), WIDTH, size, tokenizer.pad_token_id)


def toy_ids(tokenizer: Any, reference: str, hypothesis: str, question: str) -> np.ndarray:
    """Return the token ids of a pair with a question word before it, int32 `[S]`; faster than calling the tokenizer."""
    words = toy_wording(question).text(reference, hypothesis).split()
    ids = [TOKEN_IDS.get(word, tokenizer.unk_token_id) for word in words]
    return np.array([*ids, tokenizer.eos_token_id], np.int32)
