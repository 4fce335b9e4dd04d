"""The toy: a T5 of two small layers, trained on template pairs, to demonstrate prompt tuning without a download.

It learns to answer whether two sentences agree in meaning, person, action, number or place, as the question word before
them asks. Then it is frozen, without the question word: a tuned prompt has to make it answer for the meaning again.
"""

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.judge.fields import ToySettings
from eeg2text_jax.judge.pairs import Pair, block
from eeg2text_jax.judge.wording import Wording
from eeg2text_jax.models.backbones.build import describe, random_config
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.pretrained.export import export_checkpoint
from eeg2text_jax.models.pretrained.folder import SUMS
from eeg2text_jax.training.step import make_optimizer

TOY_SENTENCE = "the {who} {action} {count} houses in {place}"
SLOTS = {  # slot of a template -> its possible words
    "who": ("boy", "girl", "teacher", "doctor"),
    "action": ("saw", "found", "sold", "painted"),
    "count": ("two", "three", "four", "five"),
    "place": ("london", "paris", "rome", "berlin"),
}
MEANING = "meaning"  # asks whether all slots have the same values in both sentences
QUESTIONS = (MEANING, *SLOTS)  # a slot's name asks the same of that slot
_FILLERS = ("well", "um")
LABELS = ("yes", "no")
# The toy's vocabulary: special tokens, words of the wording, words of the sentences.
TOY_WORDS = (
    *("<pad>", "</s>", "<unk>", *LABELS, *QUESTIONS, "truth:", "said:", "same:", "the", "a", "in", "houses"),
    *(*_FILLERS, *(word for words in SLOTS.values() for word in words)),
)
TOY_TEMPLATE = "truth: {reference} said: {hypothesis} same:"


def toy_pair(rng: random.Random) -> tuple[Pair, dict[str, bool]]:
    """Return a random pair and the right answer to each of `QUESTIONS` about it.

    In about half of the pairs, one or two slots are changed, a fifth of them to a made-up word; one hypothesis of
    twelve has made-up words only.
    """
    slots = {name: rng.choice(words) for name, words in SLOTS.items()}
    said, changed = dict(slots), set()
    if rng.random() >= 0.45:
        changed = set(rng.sample(list(SLOTS), rng.choice((1, 1, 2))))
    for name in sorted(changed):
        others = [word for word in SLOTS[name] if word != slots[name]]
        said[name] = rng.choice(others) if rng.random() < 0.8 else made_up(rng)
    harmless = rng.sample(("article", "repeat", "filler"), rng.randint(0 if changed else 1, 1 if changed else 2))
    words = TOY_SENTENCE.format(**said).split()
    if "article" in harmless:
        words[0] = "a"
    if "repeat" in harmless:
        at = rng.randrange(len(words))
        words.insert(at, words[at])
    if "filler" in harmless:
        words.insert(rng.choice((0, len(words))), rng.choice(_FILLERS))
    if rng.random() < 1 / 12:
        words, changed = [made_up(rng) for _ in range(rng.randint(1, 8))], set(SLOTS)
    rated = "2" if changed else "1"
    pair = Pair(TOY_SENTENCE.format(**slots), " ".join(words), not changed, rated, kind=",".join(sorted(changed)))
    return pair, {MEANING: not changed, **{name: name not in changed for name in SLOTS}}


def made_up(rng: random.Random) -> str:
    """Return random consonants, no word of the vocabulary."""
    return "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=rng.randint(3, 6)))


def toy_pairs(count: int, seed: int) -> list[Pair]:
    """Return `count` random pairs with an error."""
    rng, pairs = random.Random(seed), list[Pair]()
    while len(pairs) < count:
        pair, _ = toy_pair(rng)
        if not pair.is_exact:
            pairs.append(pair)
    return pairs


_PATTERNS = (
    "{who} was born in {place} in {year} and {did} there for {n} years.",
    "In {year}, {who} did not leave {place} because the {thing} was not {good}.",
    "The {thing} that {who} {did} in {place} is {good} and has won {n} awards.",
    "After {n} months in {place}, {who} started a {good} company with an old friend.",
    "It is a {good} film about {who}, who {did} in {place} before the war.",
    "{who} will never forget the {good} {thing} that they bought in {place}.",
    "Everyone in {place} knows that {who} has {n} children and a very {good} {thing}.",
    "There are {n} reasons why the {thing} of {who} could be {good} for {place}.",
)
_WORDS = {  # field of a pattern -> its possible words
    "who": ("Anna Keller", "the young teacher", "Henry Moore", "her brother", "a famous singer", "the president"),
    "place": ["London", "Ohio", "Berlin", "Boston", "Texas", "Vienna", "Madrid", "Chicago", "Dublin", "Geneva"],
    "year": range(1850, 2005),
    "n": ("two", "three", "five", "seven", "ten"),
    "thing": ["story", "picture", "house", "program", "letter", "journey", "garden", "theory", "machine", "building"],
    "good": ["good", "new", "large", "strange", "famous", "difficult", "beautiful", "simple", "interesting", "long"],
    "did": ["worked", "studied", "lived", "performed", "travelled", "waited", "married", "published", "returned"],
}


def sentences(count: int, seed: int = 0) -> Iterator[str]:
    """Yield `count` distinct sentences, for controlled edits without a corpus."""
    rng, seen = random.Random(seed), set[str]()
    while len(seen) < count:
        pattern = rng.choice(_PATTERNS)
        text = pattern.format(**{name: rng.choice(words) for name, words in _WORDS.items()})
        text = text[0].upper() + text[1:]
        if text not in seen:
            seen.add(text)
            yield text


TOKEN_IDS = {word: i for i, word in enumerate(TOY_WORDS)}
WIDTH = 32  # tokens of a pair at most
CARD = "# A toy T5\n\nTrained on pairs of template sentences to demonstrate `eeg2text judge`; not a real judge.\n"


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of words between white space, with the vocabulary `TOY_WORDS`."""
    tokenizer = Tokenizer(models.WordLevel(TOKEN_IDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end = ("</s>", TOKEN_IDS["</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )


def toy_wording(question: str = "") -> Wording:
    """Return the toy's wording with the question word `question` before it, or none."""
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
        # With 64, distances up to 16 are distinct: the toy finds a word's copy in the other text by distance.
        "relative_attention_num_buckets": 64,
        "tie_word_embeddings": True,
    }
    described = random_config("t5", shape, tokenizer)
    model = Seq2SeqModel(describe(described, "t5", "toy"))

    def gentle(path: Any, leaf: jax.Array) -> jax.Array:
        """Divide query kernels by sqrt(head width) once more than T5 does; attention begins flat."""
        names = [part.key for part in path]
        is_query = "query" in names and names[-1] == "kernel"
        return leaf * model.spec.encoder.head_dim**-0.5 if is_query else leaf

    params = jax.tree_util.tree_map_with_path(gentle, model.init(jax.random.key(config.seed)))
    optim: Any = SimpleNamespace(
        name="adamw", lr=config.lr, schedule="cosine", warmup_steps=200, weight_decay=0.01, grad_clip=1.0
    )
    params = _train(model, params, make_optimizer(optim, config.steps), config, tokenizer)
    export_checkpoint(model, params, described, tokenizer, folder, CARD)


def check_toy(folder: str | Path) -> None:
    """Write README.md, which has no checksum, again if it was changed; UserError if there are no checksums."""
    if not (Path(folder) / SUMS).exists():
        raise UserError(f"{folder}: has no {SUMS}; remove the folder to have the toy made again.")
    card = Path(folder) / "README.md"
    if not card.is_file() or card.read_bytes() != CARD.encode():
        write_text(card, CARD)


def _train(
    model: Seq2SeqModel, params: Params, optimizer: optax.GradientTransformation, config: ToySettings, tokenizer: Any
) -> Params:
    yes, no = (tokenizer.convert_tokens_to_ids(word) for word in LABELS)
    rng = random.Random(config.seed)

    def loss_of(params: Params, batch: dict) -> jax.Array:
        answers = jnp.where(batch["yes"], jnp.int32(yes), jnp.int32(no))
        targets = jnp.stack([answers, jnp.full_like(answers, model.eos_token)], axis=1)
        mask = jnp.arange(batch["ids"].shape[1])[None] < batch["length"][:, None]
        logits = model.forward(params, {"input_ids": batch["ids"], "mask": mask}, model.shift_right(targets))
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Params, opt_state: optax.OptState, batch: dict) -> tuple[Params, optax.OptState, jax.Array]:
        loss, gradient = jax.value_and_grad(loss_of)(params, batch)
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    opt_state = optimizer.init(params)
    with ProgressLine("train the toy", config.steps) as progress:
        for n in range(config.steps):
            params, opt_state, loss = step(params, opt_state, _batch(rng, config.batch_size, tokenizer))
            progress.advance(1, f"loss {float(loss):.3f}" if n % 50 == 49 else "")
    return params


def _batch(rng: random.Random, size: int, tokenizer: Any) -> dict[str, np.ndarray]:
    ids, yes = [], []
    for _ in range(size):
        pair, answers = toy_pair(rng)
        question = rng.choice(QUESTIONS)
        ids.append(toy_ids(tokenizer, *pair.texts, question))
        yes.append(answers[question])
    return block(ids, np.array(yes), range(size), WIDTH, size, tokenizer.pad_token_id)


def toy_ids(tokenizer: Any, reference: str, hypothesis: str, question: str) -> np.ndarray:
    """Return the token ids of a pair behind a question word, int32 `[S]`; faster than calling the tokenizer."""
    words = toy_wording(question).text(reference, hypothesis).split()
    ids = [TOKEN_IDS.get(word, tokenizer.unk_token_id) for word in words]
    return np.array([*ids, tokenizer.eos_token_id], np.int32)
