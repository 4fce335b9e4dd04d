"""Decode the test part in both modes, and rank sentences, for every arm and evaluation condition."""

import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from eeg2text_jax.base.devices import mesh as meshes
from eeg2text_jax.base.devices.arms import Divided, shard_map_arms
from eeg2text_jax.base.devices.hosts import to_host
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.data.batches import given_prompts, make_batch
from eeg2text_jax.data.clock import UNIT, known_time
from eeg2text_jax.data.prompt import pad_ids
from eeg2text_jax.data.text import decode_tokens, encode_targets
from eeg2text_jax.decoding.generate import (
    Generated,
    Inputs,
    generate_arms,
    prepared_arms,
    program_of_arms,
    teacher_forced_program,
)
from eeg2text_jax.decoding.teacher_forced import TeacherForced, cut_at_end
from eeg2text_jax.instrument.predictions.file import MODES, Prediction
from eeg2text_jax.instrument.predictions.rankings import Candidates, Ranking, rounded
from eeg2text_jax.models.functional import ContrastiveModel, Seq2SeqModel
from eeg2text_jax.training.conditions import COPIES, FED
from eeg2text_jax.training.conditions.condition import ConditionContext, condition_inputs, fed_mask, stream_key
from eeg2text_jax.training.study import Arm, Study, StudyArrays

Run = Callable[[Inputs, Inputs, Inputs], Any]  # see `slices_of`


class BothModes(NamedTuple):
    """Results of a batch, `[A, B, ...]`; free-running ones `[A, B, R, ...]` for R hypotheses."""

    free_running: Generated
    teacher_forced: TeacherForced


class Cell(NamedTuple):
    """An arm under one evaluation condition."""

    arm: Arm
    condition: str


def decode_grid(study: Study, params: Any, mesh: Mesh | None = None) -> Iterator[Prediction]:
    """Decode the test part under every evaluation condition, all arms at once.

    Yields for every condition and arm teacher-forced, then free-running rows, in the order of the split. `mesh`
    (default: one device) has each arm's `params [A, ...]` and changes no prediction.
    """
    mesh = mesh or meshes.make_mesh(1, 1, jax.devices()[:1])
    both_modes, rows = decoder_of(study, params, mesh), study.split.parts["test"]
    for condition in study.config.grid.eval_conditions:
        if condition in COPIES:
            yield from copied_predictions(study, condition, rows)
            continue
        both = over_slices(study, rows, condition, mesh, both_modes, f"decode under {condition}")
        for a, arm in enumerate(study.arms):
            arm_params = jax.tree.map(lambda leaf, a=a: leaf[a], both)
            yield from cell_predictions(study, Cell(arm, condition), rows, arm_params)


def decoder_of(study: Study, params: Any, mesh: Mesh) -> Run:
    """Return the `run` of `over_slices` that decodes in both modes with parameters `[A, ...]`."""
    params = place_params(study, params, mesh)
    decode, spec, model = study.config.decode, study.generation, study.model
    searching = prepared_arms(model, params, spec)
    options: dict[str, Any] = {"compactions": decode.compactions, "tensor_parallel": decode.tensor_parallel}

    def both_modes(fed: Inputs, shared: Inputs, batch: Inputs) -> BothModes:
        keys = sentence_keys(study.config.seed, batch["sample_id"]) if spec.do_sample else None
        free = generate_arms(model, searching, fed, shared, spec, mesh, keys=keys, **options)
        free = jax.tree.map(lambda x: x.reshape(x.shape[0], -1, spec.num_return_sequences, *x.shape[2:]), free)
        force = teacher_forced_program(model, mesh, decode.tensor_parallel)
        return BothModes(free, force(params, fed, (shared, batch["labels"])))

    return both_modes


# The loop over the test part. Only numbers of EEG positions choose a sample's batch, so that no reference text in the
# data file can change a prediction.


class Slice(NamedTuple):
    """Samples of one batch."""

    samples: np.ndarray  # int64 [size], places in the test part; from `real` on they repeat the first
    real: int  # number of samples before the repeats
    words: int  # EEG positions of the bucket, W


def plan_slices(n_words: np.ndarray, edges: Sequence[int], size: int) -> list[Slice]:
    """Cut samples of `n_words [N]` EEG positions into slices of `size`, shortest first, so that lengths are similar.

    `edges` are the widths of the buckets; a bucket's last slice is padded. UserError if no bucket is wide enough.
    """
    edges, slices = np.unique(np.asarray(edges, int)), []
    if len(n_words) and n_words.max() > edges[-1]:
        raise UserError(
            f"batch.buckets: the widest has {edges[-1]} words but a test sample has {n_words.max()}; add a wider one, "
            "or lower data.max_words."
        )
    bucket = np.searchsorted(edges, n_words)
    for b, width in enumerate(edges):
        inside = np.flatnonzero(bucket == b)
        inside = inside[np.argsort(n_words[inside], kind="stable")]
        for start in range(0, len(inside), size):
            real = inside[start : start + size]
            samples = np.concatenate([real, np.repeat(real[:1], size - len(real))])
            slices.append(Slice(samples, len(real), int(width)))
    return slices


def over_slices(
    study: Study, rows: np.ndarray, condition: str, mesh: Mesh, run: Run, title: str, texts: np.ndarray | None = None
) -> Any:
    """Call `run` on the batches of `slices_of`; return its results, `[A, N, ...]`."""
    slices, decode = slices_of(study, rows, condition, mesh, run, texts)
    return decode_dataset(slices, decode, title, len(study.arms))


def slices_of(
    study: Study, rows: np.ndarray, condition: str, mesh: Mesh, run: Run, texts: np.ndarray | None = None
) -> tuple[list[Slice], Callable[[Slice], Any]]:
    """Return batches of similar length, and the function that calls `run(fed, shared, batch)` on one of them.

    `rows` are N samples, fed under `condition`. `fed` has each arm's `features [A, B, W, F]` and, with `texts
    [A, N, T]` (token ids of its own texts), `labels [A, B, T]`; `shared` has the mask `[B, W]` and any prompts; `batch`
    is from `make_batch`.
    """
    arrays = meshes.put(study.arrays._replace(texts=None), meshes.replicated(mesh))
    size = -(-study.config.decode.batch_size // mesh.shape[meshes.DATA]) * mesh.shape[meshes.DATA]

    def decode(part: Slice) -> Any:
        shape = (part.words, study.config.text.max_tokens)
        made = make_batch(study.samples, rows[part.samples], shape, size, meshes.own_rows(mesh, size))
        batch = meshes.put_batch(made, mesh, size)
        fed = {"features": feed_arms(study.arms, arrays, condition, batch, mesh)}
        if texts is not None:
            fed["labels"] = meshes.put(texts[:, part.samples], meshes.fed_sharding(mesh))
        return run(fed, {"mask": fed_mask([condition], batch["mask"][None])[0], **given_prompts(batch)}, batch)

    buckets = [words for words, _ in study.config.batch.buckets]
    return plan_slices(study.samples.n_words[rows], buckets, size), decode


def decode_dataset(slices: Sequence[Slice], decode: Callable[[Slice], Any], title: str, arms: int = 1) -> Any:
    """Return the results of `decode` on all slices, NumPy arrays `[A, N, ...]` in the order of the samples.

    `decode` returns device arrays `[A, size, ...]` with equal other axes.
    """
    total, start = sum(part.real for part in slices), time.monotonic()
    parts, done = [], 0
    dispatched = ((part, decode(part)) for part in slices)
    with ProgressLine(title, total) as progress:
        pending = next(dispatched, None)
        while pending is not None:
            # The next slice is dispatched before this one is read, so that the device does not wait.
            (part, result), pending = pending, next(dispatched, None)
            parts.append(jax.tree.map(lambda leaf, n=part.real: leaf[:, :n], to_host(result)))
            done += part.real
            rate = done * arms / (time.monotonic() - start)
            progress.advance(part.real, f"{part.words} words, {rate:.1f} sentences/s")
    order = np.concatenate([part.samples[: part.real] for part in slices])
    if not np.array_equal(np.sort(order), np.arange(total)):
        raise AssertionError("every sample must be decoded exactly once")
    place = np.argsort(order)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, 1).take(place, 1), *parts)


def place_params(study: Study, params: Any, mesh: Mesh) -> Any:
    """Replicate parameters `[A, ...]` over each arm's devices, so that no search step gathers them.

    A shared frozen model is replicated over all devices, or divided for `decode.tensor_parallel`.
    """
    where: Any = meshes.arm_sharding(mesh)
    if isinstance(params, Divided):
        rules = meshes.FULLY_SHARDED if study.config.decode.tensor_parallel else meshes.REPLICATED
        where = Divided(where, meshes.frozen_shardings(params.frozen, mesh, rules))
    return jax.jit(lambda params: params, out_shardings=where)(params)


@jax.jit
def sentence_keys(seed: int, sample_id: jax.Array) -> jax.Array:
    """Return a key per sample, for sampling, whatever the batch."""
    return jax.vmap(functools.partial(jax.random.fold_in, stream_key(seed, "sampling")))(sample_id)


def feed_arms(
    arms: Sequence[Arm], arrays: StudyArrays, condition: str, batch: Mapping[str, Any], mesh: Mesh
) -> jax.Array:
    """Return each arm's encoder input under a condition, `[A, B, W, F]`; the arm's seed determines noise."""
    keep = ("features", "mask", "sample_id", *FED)
    program = _feed_program(tuple((condition, arm.seed) for arm in arms), mesh)
    return program({name: batch[name] for name in keep if name in batch}, arrays)


@functools.lru_cache(maxsize=64)
def _feed_program(pairs: tuple[tuple[str, int], ...], mesh: Mesh) -> Callable[[Any, StudyArrays], jax.Array]:
    def feed(batch: Any, arrays: StudyArrays) -> jax.Array:
        context = ConditionContext.of(batch, arrays, jnp.zeros((), jnp.int32))
        return condition_inputs(pairs, batch["features"], batch["mask"], context)

    return jax.jit(feed, out_shardings=meshes.fed_sharding(mesh))


def cell_predictions(study: Study, cell: Cell, rows: np.ndarray, decoded: BothModes) -> Iterator[Prediction]:
    """Yield the predictions of one arm under one condition, mode by mode, from `decoded [N, ...]`."""
    special, scores = special_tokens(study.tokenizer, study.model), decoded.teacher_forced
    forced = _forced_tokens(scores, study.config.decode.teacher_forced_cut, study.model.eos_token)
    tokens = {
        "teacher_forced": [_plain(sequence, special) for sequence in forced],
        "free_running": free_tokens(decoded.free_running, special),
    }
    targets = [_plain(study.samples.targets[i], special) for i in rows]
    for mode in MODES:
        texts = decode_tokens(study.tokenizer, tokens[mode])
        returned = len(texts) // len(rows)
        for n, text in enumerate(texts):
            k, hypothesis = divmod(n, returned)
            fields = row_fields(study, cell, int(rows[k]), mode)
            if mode == "teacher_forced":
                fields |= {"nll": float(scores.nll[k]), "n_tokens": int(scores.n_tokens[k])}
            if returned > 1:
                fields["hypothesis"] = hypothesis
            yield Prediction(**fields, prediction=text, prediction_tokens=tokens[mode][n], reference_tokens=targets[k])


def copied_predictions(study: Study, condition: str, rows: np.ndarray) -> Iterator[Prediction]:
    """Yield the predictions under a condition of `COPIES`, the same for all arms."""
    special = frozenset(study.tokenizer.all_special_ids)
    for arm in study.arms:
        for i in rows.tolist():
            near = int(study.samples.copies[condition][i])
            yield Prediction(
                **row_fields(study, Cell(arm, condition), i, "free_running"),
                prediction=str(study.data.sentence[near]),
                prediction_tokens=_plain(study.samples.targets[near], special),
                reference_tokens=_plain(study.samples.targets[i], special),
            )


def row_fields(study: Study, cell: Cell, i: int, mode: str) -> dict[str, Any]:
    """Return the fields of a row that identify sample `i`, arm, condition and mode."""
    data, donors = study.data, study.samples.donors

    def name(row: int) -> str:
        return f"{data.task[row]}:{data.sentence_index[row]}"

    return {
        "sample_id": study.split.names[i],
        "subject": str(data.subject[i]),
        "task": str(data.task[i]),
        "sentence_id": name(i),
        "n_words": int(data.n_words[i]),
        "train_condition": cell.arm.condition,
        "eval_condition": cell.condition,
        "seed": cell.arm.seed,
        "mode": mode,
        "reference": str(data.sentence[i]),
        **({} if data.clock is None else known_time(data.clock, i)),
        "story_time": (data.story_times[i] / UNIT).tolist() if data.is_windows else None,
        "donor": name(donors[i]) if cell.condition == "shuffled" and donors is not None else None,
    }


def special_tokens(tokenizer: Any, model: Seq2SeqModel) -> frozenset[int]:
    """Return the tokens that are no text: the tokenizer's, and the model's start and padding."""
    return frozenset({*tokenizer.all_special_ids, model.start_token, model.pad_token})


def free_tokens(free: Generated, special: Collection[int]) -> list[list[int]]:
    """Return the text tokens of every hypothesis, those of a sample adjacent."""
    sequences = free.sequences.reshape(-1, free.sequences.shape[-1])
    return [_plain(row[:n], special) for row, n in zip(sequences, free.lengths.reshape(-1), strict=True)]


def _forced_tokens(forced: TeacherForced, cut: str, end: int) -> list[Sequence[int]]:
    """Return each row's argmax tokens, cut to the reference's length if `cut` is "reference", then by `cut_at_end`."""
    lengths = forced.n_tokens if cut == "reference" else np.full_like(forced.n_tokens, forced.tokens.shape[1])
    return [cut_at_end(row[:length], [end]) for row, length in zip(forced.tokens, lengths, strict=True)]


def _plain(tokens: Iterable[int], special: Collection[int]) -> list[int]:
    return [token for token in map(int, tokens) if token not in special]


# Retrieval: a score of every candidate sentence for each recording. No text reaches the brain encoder; the contrastive
# model embeds candidates by the frozen text encoder.

COSINE = "cosine of the recording's and the sentence's embedding"


def retrieve_grid(study: Study, params: Any, mesh: Mesh, candidates: Candidates) -> Iterator[Ranking]:
    """Yield rankings of the candidates for the test part, by evaluation condition and arm.

    A score is the cosine of the embeddings of candidate and recording; under conditions of `COPIES`, of candidate and
    copied text.
    """
    params = place_params(study, params, mesh)
    rows = study.split.parts["test"]
    texts = _unit_vectors(study, candidates.references)  # --> [N, E]
    program = embed_program(study.model, mesh)

    def embed(fed: Inputs, shared: Inputs, _: Inputs) -> jax.Array:
        return program(params, fed, shared)

    for condition in study.config.grid.eval_conditions:
        if condition in COPIES:
            copied = study.data.sentence[study.samples.copies[condition][rows]].tolist()
            embedded = [_unit_vectors(study, copied)] * len(study.arms)
        else:
            embedded = over_slices(study, rows, condition, mesh, embed, f"retrieve under {condition}")
        for arm, vectors in zip(study.arms, embedded, strict=True):
            scores = rounded(vectors.astype(np.float64) @ texts.T)
            yield from cell_rankings(study, Cell(arm, condition), rows, scores, candidates, "contrastive")


def _unit_vectors(study: Study, texts: Sequence[str]) -> np.ndarray:
    vectors = study.targets.vectors[study.targets.rows(texts)].astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


@functools.lru_cache(maxsize=16)
def embed_program(model: ContrastiveModel, mesh: Mesh) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, shared) -> embeddings of recordings, [A, B, E]`."""
    return shard_map_arms(lambda params, fed, shared: model.embed(params, {**fed, **shared}), mesh)


def cell_rankings(
    study: Study, cell: Cell, rows: np.ndarray, scores: np.ndarray, candidates: Candidates, mode: str
) -> Iterator[Ranking]:
    """Yield one arm's rankings under one condition, from scores `[R, N]` of N candidates for `rows`."""
    for i, row_scores in zip(rows.tolist(), scores, strict=True):
        yield Ranking(
            **row_fields(study, cell, i, mode),
            prediction=candidates.references[int(np.argmax(row_scores))],
            scores=row_scores,
            candidates=candidates,
        )


PRIOR_ROWS = 64  # most dev recordings of a candidate's mean log-likelihood
EVIDENCE = f"log-likelihood less its mean over up to {PRIOR_ROWS} recordings of dev under the same condition, nats"


def rank_by_likelihood(study: Study, params: Any, mesh: Mesh, candidates: Candidates) -> Iterator[Ranking]:
    """Rank candidates by how much the recording raises their likelihood under a generative model.

    A score is the log-likelihood given the recording minus its mean given dev recordings under the same condition, an
    estimate of pointwise mutual information in nats; the plain likelihood would favour short sentences. No other test
    recording enters a score. Time grows with recordings times candidates.
    """
    params = place_params(study, params, mesh)
    dev, test = study.split.parts["dev"], study.split.parts["test"]
    prior = dev[np.unique(np.linspace(0, len(dev) - 1, min(PRIOR_ROWS, len(dev))).round().astype(int))]
    labels = padded_labels(study, candidates.references)
    program = likelihood_program(study.model, mesh, study.config.decode.tensor_parallel)

    def run(fed: Inputs, shared: Inputs, _: Inputs) -> jax.Array:
        # Rows come first, as arrays are sharded along `data` by their first axis.
        texts = jnp.broadcast_to(labels[None], (len(shared["mask"]), *labels.shape))
        return program(params, fed, (shared, texts))

    for condition in study.config.grid.eval_conditions:
        if condition in COPIES:  # its texts come from no model, so no likelihood is defined
            continue
        title = f"likelihoods under {condition}"
        usual = over_slices(study, prior, condition, mesh, run, f"{title}, dev")
        losses = over_slices(study, test, condition, mesh, run, title)
        evidence = usual.mean(axis=1, dtype=np.float64, keepdims=True) - losses  # --> [A, R, N]
        for arm, scores in zip(study.arms, evidence, strict=True):
            yield from cell_rankings(study, Cell(arm, condition), test, rounded(scores), candidates, "likelihood")


def padded_labels(study: Study, texts: Sequence[str]) -> np.ndarray:
    """Return padded token ids of texts, int32 `[N, T]`."""
    ids = encode_targets(study.tokenizer, texts, study.config.text.max_tokens, study.model.spec.bare_targets)
    return pad_ids(ids, max(map(len, ids)), study.model.pad_token)


@functools.lru_cache(maxsize=16)
def likelihood_program(model: Seq2SeqModel, mesh: Mesh, tensor_parallel: bool = False) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, (shared, labels [B, N, T])) -> summed NLL [A, B, N]`, nats, float32."""

    def score(params: Any, fed: Inputs, rest: tuple[Inputs, jax.Array]) -> jax.Array:
        shared, texts = rest
        hidden, mask = model.encode(params, {**fed, **shared})
        of_one = functools.partial(summed_nll, model, params, hidden, mask)
        return jax.lax.map(of_one, texts.swapaxes(0, 1)).swapaxes(0, 1)

    return program_of_arms(score, mesh, tensor_parallel)


def summed_nll(model: Seq2SeqModel, params: Any, hidden: jax.Array, mask: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the negative log-likelihood of texts `labels [B, T]` given encoded recordings, nats `[B]`."""
    logits = model.decode(params, model.shift_right(labels), hidden, mask).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, :, None], axis=2)[:, :, 0]
    losses = jax.nn.logsumexp(logits, axis=2) - picked
    return jnp.sum(jnp.where(labels != model.pad_token, losses, 0.0), axis=1)
