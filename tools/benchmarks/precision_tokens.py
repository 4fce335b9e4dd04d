"""What caches in bfloat16 and weights in int8 change in the tokens of a small trained model.

    python tools/benchmarks/precision_tokens.py [--sentences=2000] [--steps=400]

A small BART learns to read sentences of a Markov chain from noisy features, one feature vector a token, and decodes new
sentences by beam search in each precision. Printed: the share of sentences with the tokens of float32, BLEU against the
tokens of float32, BLEU against the true sentences, and sentences per second.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import sacrebleu
from transformers import BartConfig

from eeg2text_jax import GenerationSpec, Seq2SeqModel, generate
from eeg2text_jax.models.backbones import bart

WORDS, FIRST, LENGTH, WIDTH, NOISE = 200, 4, 12, 128, 2.2
PRECISIONS = {
    "float32": {},
    "caches bfloat16": {"cache_dtype": "bfloat16"},
    "weights int8": {"weights_dtype": "int8"},
    "both": {"cache_dtype": "bfloat16", "weights_dtype": "int8"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    data = Sentences(np.random.default_rng(0))
    model = make_model()
    params = train(model, data, args.steps)
    inputs, labels = data.draw(args.sentences)
    truth = [text_of(row) for row in labels]
    exact: list[str] = []
    for name, fields in PRECISIONS.items():
        spec = GenerationSpec.from_fields({"num_beams": 5, "max_length": LENGTH + 2, **fields}, model)
        found, rate = decode(model, params, inputs, spec)
        exact = exact or found
        same = np.mean([one == other for one, other in zip(found, exact, strict=True)])
        print(
            f"{name:<16} {same:7.2%} of {len(found)} sentences as in float32, BLEU {bleu(found, exact):6.2f} against"
            f" it, {bleu(found, truth):5.2f} against the truth, {rate:6.1f} sentences/s"
        )


class Sentences:
    """A Markov chain of words, and noisy features of them."""

    def __init__(self, rng: np.random.Generator):
        self._rng = rng
        self._next = rng.integers(FIRST, WORDS, size=(WORDS, 4))  # each word has four successors
        self._features = rng.normal(size=(WORDS, WIDTH))

    def draw(self, count: int) -> tuple[dict[str, jax.Array], np.ndarray]:
        """Return the model's inputs and the labels `[count, LENGTH + 1]`, with the end token."""
        words = np.empty((count, LENGTH), int)
        words[:, 0] = self._rng.integers(FIRST, WORDS, count)
        for place in range(1, LENGTH):
            words[:, place] = self._next[words[:, place - 1], self._rng.integers(0, 4, count)]
        features = self._features[words] + NOISE * self._rng.normal(size=(count, LENGTH, WIDTH))
        inputs = {"inputs_embeds": jnp.asarray(features, jnp.float32), "mask": jnp.ones((count, LENGTH), bool)}
        return inputs, np.concatenate([words, np.full((count, 1), 2)], axis=1)


def make_model() -> Seq2SeqModel:
    names = {"layers": 2, "attention_heads": 4, "ffn_dim": 256}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in names.items()}
    config = BartConfig(d_model=WIDTH, vocab_size=WORDS, max_position_embeddings=64, init_std=0.08, **sides)
    return Seq2SeqModel(bart.spec_from_config(config))


def train(model: Seq2SeqModel, data: Sentences, steps: int) -> dict:
    params = model.init(jax.random.key(0))
    optimizer = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 2e-3, 50, steps))
    state = optimizer.init(params)

    @jax.jit
    def step(params: dict, state: optax.OptState, inputs: dict, labels: jax.Array) -> tuple:
        def loss(params: dict) -> jax.Array:
            logits = model.forward(params, inputs, model.shift_right(labels))
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    for _ in range(steps):
        inputs, labels = data.draw(64)
        params, state, value = step(params, state, inputs, jnp.asarray(labels, jnp.int32))
    print(f"trained {steps} steps, loss {float(value):.3f}")
    return params


def decode(model: Seq2SeqModel, params: dict, inputs: dict, spec: GenerationSpec, size: int = 250) -> tuple:
    """Return the texts of all sentences, and sentences per second after the compilation."""
    count, params = len(inputs["mask"]), model.prepared(params, spec.weights_dtype)
    batches = [{name: x[at : at + size] for name, x in inputs.items()} for at in range(0, count, size)]
    jax.block_until_ready(generate(model, params, batches[0], spec).sequences)
    begun = time.perf_counter()
    found = [np.asarray(generate(model, params, batch, spec).sequences) for batch in batches]
    rate = count / (time.perf_counter() - begun)
    return [text_of(row[1:]) for row in np.concatenate(found)], rate


def text_of(tokens: np.ndarray) -> str:
    return " ".join(f"w{token}" for token in tokens if token >= FIRST)


def bleu(found: list[str], references: list[str]) -> float:
    return sacrebleu.corpus_bleu(found, [references], tokenize="none").score


if __name__ == "__main__":
    main()
