"""Other decoders of the same BART with the same weights. They are not dependencies: what is missing is said."""

import dataclasses
import importlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from eeg2text_jax.decoding.spec import GenerationSpec
from eeg2text_jax.errors import UserError

Decoder = Callable[[int], np.ndarray | None]  # batch size -> tokens [B, T], or None where inputs are not ours


def torch_bart(config: Any, tensors: dict[str, np.ndarray]) -> Any:
    """A PyTorch BART with the given weights, by PyTorch's names."""
    torch, transformers = _imported("torch"), _imported("transformers")
    model = transformers.BartForConditionalGeneration(config).eval()
    missing, unknown = model.load_state_dict(
        {name: torch.tensor(np.asarray(value)) for name, value in tensors.items()}, strict=False
    )
    shared, state = model.model.shared.weight.data_ptr(), model.state_dict()
    missing = [name for name in missing if state[name].data_ptr() != shared]
    if missing or unknown:
        raise AssertionError(f"weights do not fit: {missing} are missing, {unknown} left over")
    model.generation_config = transformers.GenerationConfig()
    return model


def transformers_decoder(model: Any, hidden: np.ndarray, mask: np.ndarray, spec: GenerationSpec) -> Decoder:
    """`transformers.generate`, given our encoder's output `[B, S, D]`: it decodes the same and encodes nothing."""
    torch, transformers = _imported("torch"), _imported("transformers")
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(spec).items() if value}
    config = transformers.GenerationConfig(
        **{k: v for k, v in fields.items() if k not in ("top_k", "top_p", "temperature")}
    )

    @torch.no_grad()
    def decode(size: int) -> np.ndarray:
        states = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=torch.tensor(hidden[:size]))
        known = torch.tensor(mask[:size]).long()
        return model.generate(encoder_outputs=states, attention_mask=known, generation_config=config).numpy()

    return decode


@dataclasses.dataclass(frozen=True)
class _Vocabulary:
    """As much of a tokenizer as CTranslate2's converter asks for."""

    size: int
    bos_token: str = "<s>"
    eos_token: str = "</s>"
    unk_token: str = "<unk>"

    def get_vocab(self) -> dict[str, int]:
        special = ("<s>", "<pad>", "</s>", "<unk>")
        return {special[i] if i < len(special) else f"t{i}": i for i in range(self.size)}

    def convert_ids_to_tokens(self, token: int) -> str:
        return list(self.get_vocab())[token]


def ctranslate2_decoder(model: Any, mask: np.ndarray, spec: GenerationSpec, threads: int) -> Decoder:
    """CTranslate2 in float32 on random text as long as our inputs: it runs its own text encoder.

    Its tokens are not compared, only its pace; the number of steps is forced on both sides.
    """
    ctranslate2, converters = _imported("ctranslate2"), _imported("ctranslate2.converters.transformers")
    model.config.normalize_before, model.config.normalize_embedding = False, True
    converted = converters._MODEL_LOADERS["BartConfig"](model, _Vocabulary(model.config.vocab_size))
    folder = tempfile.mkdtemp(prefix="bench-ctranslate2-")
    converted.validate()
    converted.save(folder)
    translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", intra_threads=threads)
    rng = np.random.default_rng(0)
    texts = [[f"t{t}" for t in rng.integers(4, model.config.vocab_size, size=n)] for n in mask.sum(axis=1)]

    def decode(size: int) -> None:
        out = translator.translate_batch(
            texts[:size],
            max_batch_size=size,
            beam_size=spec.num_beams,
            repetition_penalty=spec.repetition_penalty,
            no_repeat_ngram_size=spec.no_repeat_ngram_size,
            min_decoding_length=spec.max_length - 1,
            max_decoding_length=spec.max_length - 1,
        )
        if len(out) != size:
            raise AssertionError(f"CTranslate2 returned {len(out)} sentences for {size}")

    return decode


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"--peer: {name.split('.')[0]} is not installed; pip install it or leave it out.") from error
