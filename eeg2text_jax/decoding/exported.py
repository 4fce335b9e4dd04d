"""Load an export of `eeg2text export` and decode raw features to the text that the run itself would produce."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.data.text import decode_tokens, load_tokenizer
from eeg2text_jax.decoding.cells import sentence_keys
from eeg2text_jax.decoding.sharded import Slice, generate_arms, plan_slices, rounded_arms
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Rounded, Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.parallel.arms import joined
from eeg2text_jax.parallel.mesh import make_mesh
from eeg2text_jax.pretrained.export_files import Feeding, read_feeding
from eeg2text_jax.pretrained.folder import checkpoint_folder
from eeg2text_jax.pretrained.load import load_pretrained
from eeg2text_jax.search.settings import GenerationSpec


@dataclasses.dataclass(frozen=True, eq=False)
class Exported:
    """A trained model, its tokenizer, standardization and generation settings; `decode` turns features into text."""

    model: Seq2SeqModel
    params: Params
    tokenizer: PreTrainedTokenizerBase
    generation: GenerationSpec
    feeding: Feeding  # how recordings are standardized, and the batch shapes of the run

    def decode(
        self,
        features: Sequence[np.ndarray] | np.ndarray,
        mask: np.ndarray | None = None,
        *,
        sample_ids: Sequence[int] | None = None,
    ) -> list[str]:
        """Return the free-running text of each recording; no target is involved.

        The test samples of a run, in their order, give exactly the run's free-running predictions.

        Args:
          features: one array `[W, F]` of raw features for each recording, as in the data file; or `[N, W, F]`, with
            `mask`. Recordings longer than the run's `data.max_words` are cut, with a warning.
          mask: `[N, W]` bool, True at real words, which come first.
          sample_ids: sample numbers in the data file, from which PRNG keys are made if `generation.do_sample`;
            default: 0, 1, ...

        Raises:
          UserError: features have another width, dtype or shape, or are not finite; or the mask is missing or wrong.
        """
        recordings = _recordings(features, mask, len(self.feeding.mean))
        lengths = np.array([len(words) for words in recordings], int)
        if cut := int((lengths > self.feeding.max_words).sum()):
            message = f"{cut} of {len(recordings)} recordings are cut to {self.feeding.max_words} words, as in the run."
            warnings.warn(message, stacklevel=2)
        ids = np.arange(len(recordings)) if sample_ids is None else np.asarray(sample_ids)
        if ids.shape != lengths.shape:
            raise UserError(
                f"sample_ids has shape {list(ids.shape)}; expected [{len(recordings)}], one number for each recording."
            )
        lengths = np.minimum(lengths, self.feeding.max_words)
        longer = [self.feeding.max_words] if (lengths > max(self.feeding.buckets)).any() else []
        params = jax.tree.map(lambda leaf: leaf[None], joined(self.params))
        params = rounded_arms(self.model, params, self.generation)
        texts = [""] * len(recordings)
        for part in plan_slices(lengths, [*self.feeding.buckets, *longer], self.feeding.batch_size):
            decoded = self._decode_batch(params, [recordings[i] for i in part.samples], part, ids)
            for i, text in zip(part.samples[: part.real], decoded, strict=True):
                texts[i] = text
        return texts

    def prompts(self, features: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the decoder's input for recordings `[W, F]`: float32 `[N, S, D]` and its mask `[N, S]`.

        For a decoder-only model, this is the prompt with the recording in it, padded on the left (`inputs_embeds` of
        transformers); for an encoder-decoder, the output of the encoder (`encoder_outputs` of transformers).
        """
        features, mask = self._padded(_recordings(features, None, len(self.feeding.mean)))
        hidden, real = self.model.encode(self.params, {"features": features, "mask": mask})
        return np.asarray(hidden, np.float32), np.asarray(real)

    def _padded(self, recordings: Sequence[np.ndarray], width: int = 0) -> tuple[jax.Array, jax.Array]:
        """Standardize recordings; return them padded to `width` words (0: the longest), `[N, W, F]`, and their mask."""
        words = [self.feeding.standardize(recording) for recording in recordings]
        features = np.zeros((len(words), width or max(map(len, words)), len(self.feeding.mean)), np.float32)
        for row, own in zip(features, words, strict=True):
            row[: len(own)] = own
        mask = np.arange(features.shape[1]) < np.array([[len(own)] for own in words])
        return jnp.asarray(features), jnp.asarray(mask)

    def _decode_batch(
        self, params: Params | Rounded, recordings: Sequence[np.ndarray], part: Slice, ids: np.ndarray
    ) -> list[str]:
        """Return the texts of a slice's real samples, decoded with the same program as in a run."""
        features, mask = self._padded(recordings, part.words)
        draws = self.generation.do_sample
        found = generate_arms(
            self.model,
            params,
            {"features": features[None]},
            {"mask": mask},
            self.generation,
            make_mesh(1, 1, jax.devices()[:1]),
            keys=sentence_keys(self.feeding.seed, jnp.asarray(ids[part.samples], jnp.int32)) if draws else None,
            compactions=self.feeding.compactions,
        )
        best = slice(0, part.real * self.generation.num_return_sequences, self.generation.num_return_sequences)
        sequences, lengths = np.asarray(found.sequences[0])[best], np.asarray(found.lengths[0])[best]
        special = {*self.tokenizer.all_special_ids, self.model.start_token, self.model.pad_token}
        tokens = [[t for t in row[:n] if t not in special] for row, n in zip(sequences, lengths, strict=True)]
        return decode_tokens(self.tokenizer, tokens)


def load_export(name: str | Path) -> Exported:
    """Load an export of `eeg2text export`: model, parameters, tokenizer, standardization and settings.

    Args:
      name: the folder, or its name on the Hugging Face Hub.

    Raises:
      UserError: the folder is not an export, a file is missing, or a file differs from its checksum.

    Examples:
      >>> import numpy as np
      >>> from eeg2text_jax import load, load_export
      >>> model = load_export(load("run").export("export"))
      >>> texts = model.decode([np.zeros((4, 6)), np.ones((3, 6))])
      >>> len(texts)
      2
    """
    folder = checkpoint_folder(name)
    feeding = read_feeding(folder)
    model, params = load_pretrained(folder, dtype=feeding.dtype)
    if model.eeg is None or model.eeg.features != len(feeding.mean):
        raise UserError(f"{folder}: its EEG encoder is missing or of another run; export the run again.")
    generation = GenerationSpec.from_checkpoint(folder, model)
    return Exported(model, params, load_tokenizer(folder), generation, feeding)


def _recordings(features: Any, mask: Any, width: int) -> list[np.ndarray]:
    """Validate the input and return one array `[W, F]` per recording."""
    whole = features if hasattr(features, "ndim") else None
    if whole is not None and whole.ndim == 3:
        return _unpadded(np.asarray(whole), mask, width)
    if mask is not None:
        raise UserError("mask goes with one array features [N, W, F]; recordings in a list have their own lengths.")
    if whole is not None:
        raise UserError(f"features has shape {list(whole.shape)}; expected a list of arrays [words, {width}].")
    return [_checked(np.asarray(words), f"features[{i}]", width) for i, words in enumerate(features)]


def _unpadded(features: np.ndarray, mask: Any, width: int) -> list[np.ndarray]:
    if mask is None:
        raise UserError(
            "features [N, W, F] need mask [N, W], True at real words; or give a list with an array for each recording."
        )
    mask = np.asarray(mask)
    if mask.shape != features.shape[:2] or mask.dtype != bool:
        raise UserError(
            f"mask is {mask.dtype} {list(mask.shape)}; expected bool {list(features.shape[:2])}, True at real words."
        )
    lengths = mask.sum(axis=1)
    if not (mask == (np.arange(mask.shape[1]) < lengths[:, None])).all():
        raise UserError("mask has a real word after a padded one; put the real words of each recording first.")
    return [
        _checked(row[:n], f"features[{i}]", width) for i, (row, n) in enumerate(zip(features, lengths, strict=True))
    ]


def _checked(words: np.ndarray, name: str, width: int) -> np.ndarray:
    if words.ndim != 2 or words.shape[1] != width or not len(words):
        raise UserError(f"{name} has shape {list(words.shape)}; expected [words, {width}] with at least one word.")
    if not np.issubdtype(words.dtype, np.floating) and not np.issubdtype(words.dtype, np.integer):
        raise UserError(f"{name} is of type {words.dtype}; expected numbers.")
    with np.errstate(over="ignore"):
        words = words.astype(np.float32)
    if not np.isfinite(words).all():
        raise UserError(f"{name} has values that are not finite as float32; leave those words out.")
    return words
