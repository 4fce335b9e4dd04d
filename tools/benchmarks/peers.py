"""Other libraries (peers) of the benchmarks: decoders of the same BART, and the same training in PyTorch.

Peers run on JAX's device. PyTorch starts from our weights and trains on the same batches with the same AdamW settings.
Its EEG encoder is `nn.TransformerEncoder` (post-norm, ReLU) and `relu(nn.Linear)` as in the paper's code; its language
model is transformers' BART, fed by `inputs_embeds`.
"""

import copy
import dataclasses
import importlib
import tempfile
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from bench_decode import Decoder

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.data.batches import Batch
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.backbones import bart
from eeg2text_jax.models.backbones.mapping import export
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.training.sections import OptimSettings

Input = TypeVar("Input")


class Place(NamedTuple):
    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"


def peer_names(text: str, names: Sequence[str]) -> list[str]:
    """Return the comma-separated names of `--peer`; raise a UserError if one is not in `names`."""
    wanted = [name for name in text.split(",") if name]
    for name in wanted:
        if name not in names:
            raise UserError(f"--peer: there is no peer {name!r}; expected some of {','.join(names)}.")
    return wanted


def warm_up(peers: dict[str, Callable[[Input], Any]], inputs: Collection[Input]) -> dict[str, str]:
    """Run every peer once on every input; remove failing peers from `peers`, and return peer -> error message."""
    failed = {}
    for name, run in list(peers.items()):
        try:
            for value in inputs:
                run(value)
        except Exception as error:  # the other peers are measured after any error
            failed[name] = first_line(error)
            print(f"{name} failed: {failed[name]}")
            del peers[name]
    return failed


def peer_place(dtype: str) -> Place:
    """Return the device and precision of the peers: the kind of device that JAX uses.

    Raises UserError if JAX uses a GPU and PyTorch finds none, because a peer on the CPU would give a misleading ratio.
    """
    if jax.default_backend() != "gpu":
        return Place("cpu", dtype)
    torch = import_peer("torch")
    if not torch.cuda.is_available():
        raise UserError(
            f"--peer: JAX runs on a GPU, but torch {torch.__version__} finds none; install PyTorch's CUDA build, or "
            "set JAX_PLATFORMS=cpu to compare both on the CPU."
        )
    return Place("cuda", dtype)


def set_torch_precision(*, exact: bool) -> None:
    """Let PyTorch use TF32 in float32 products on a GPU, as XLA does by default; `exact` forbids TF32."""
    if jax.default_backend() == "gpu":
        import_peer("torch").set_float32_matmul_precision("highest" if exact else "high")


def torch_bart(config: Any, model: Seq2SeqModel, params: dict[str, Any]) -> Any:
    torch, transformers = import_peer("torch"), import_peer("transformers")
    tensors = {name: torch.tensor(array) for name, array in export(bart.table(model.spec), params).items()}
    made = transformers.BartForConditionalGeneration(config).eval()
    missing, unknown = made.load_state_dict(tensors, strict=False)
    shared, state = made.model.shared.weight.data_ptr(), made.state_dict()
    missing = [name for name in missing if state[name].data_ptr() != shared]
    if missing or unknown:
        raise AssertionError(f"weights do not fit: {missing} are missing, {unknown} left over")
    made.generation_config = transformers.GenerationConfig()
    return made


def transformers_decoder(
    model: Any, hidden: np.ndarray, mask: np.ndarray, spec: GenerationSpec, place: Place, *, static: bool = False
) -> Decoder:
    """Make a decoder by transformers from our encoder's output `hidden [B, S, D]`; `static`: cache of fixed size."""
    torch, transformers = import_peer("torch"), import_peer("transformers")
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(spec).items() if value}
    config = transformers.GenerationConfig(
        **{k: v for k, v in fields.items() if k not in ("top_k", "top_p", "temperature")},
        **({"cache_implementation": "static"} if static else {}),
    )
    dtype = getattr(torch, place.dtype)
    model = copy.deepcopy(model).to(place.device, dtype)  # the other peers share the original

    @torch.no_grad()
    def decode(size: int) -> np.ndarray:
        encoded = torch.tensor(hidden[:size]).to(place.device, dtype)
        states = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=encoded)
        valid = torch.tensor(mask[:size]).long().to(place.device)
        return model.generate(encoder_outputs=states, attention_mask=valid, generation_config=config).cpu().numpy()

    return decode


@dataclasses.dataclass(frozen=True)
class _Vocabulary:
    """A stand-in tokenizer with the attributes that CTranslate2's converter reads."""

    size: int  # number of tokens
    bos_token: str = "<s>"
    eos_token: str = "</s>"
    unk_token: str = "<unk>"

    def get_vocab(self) -> dict[str, int]:
        special = ("<s>", "<pad>", "</s>", "<unk>")
        return {special[i] if i < len(special) else f"t{i}": i for i in range(self.size)}

    def convert_ids_to_tokens(self, token: int) -> str:
        return list(self.get_vocab())[token]


def ctranslate2_decoder(
    model: Any, mask: np.ndarray, spec: GenerationSpec, threads: int, compute_type: str, place: Place
) -> Decoder:
    """Make a decoder by CTranslate2 that reads random text as long as the rows of `mask`, by its own text encoder.

    Only its speed is compared. `compute_type`: such as float32, float16 or int8.
    """
    ctranslate2, converters = import_peer("ctranslate2"), import_peer("ctranslate2.converters.transformers")
    model.config.normalize_before, model.config.normalize_embedding = False, True
    converted = converters._MODEL_LOADERS["BartConfig"](model, _Vocabulary(model.config.vocab_size))
    folder = tempfile.mkdtemp(prefix="bench-ctranslate2-")
    converted.validate()
    converted.save(folder)
    translator = ctranslate2.Translator(folder, device=place.device, compute_type=compute_type, intra_threads=threads)
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


def import_peer(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise UserError(f"--peer: {package} is not installed; install it with pip, or leave the peer out.") from error


class TorchTraining:
    """A PyTorch model with our parameters of one arm; matrix products in `place.dtype` by autocast."""

    def __init__(
        self,
        config: Any,
        model: Seq2SeqModel,
        params: dict[str, Any],
        settings: OptimSettings,
        place: Place,
        *,
        compiled: bool = False,
    ):
        self._bart = torch_bart(config, model, params)
        self._torch = torch = import_peer("torch")
        self._pad, self._clip, self._place = model.pad_token, settings.grad_clip, place
        self._encoder, self._bridge = _eeg_encoder(torch, model, params["eeg"])
        self._modules = torch.nn.ModuleList([self._bart, self._encoder, self._bridge]).to(place.device)
        self._timed_loss = torch.compile(self._loss, dynamic=False) if compiled else self._loss
        self._parameters = [p for p in self._modules.parameters() if p.requires_grad]
        rates = {"lr": settings.lr, "weight_decay": settings.weight_decay}
        self._optimizer = torch.optim.AdamW(self._parameters, **rates, fused=True)

    def first_loss(self, batch: Batch) -> float:
        """Return the loss of a batch in nats per token, without dropout and in float32 without TF32."""
        self._modules.eval()
        set_torch_precision(exact=True)
        with self._torch.no_grad():
            return float(self._loss(self._tensors(batch)))

    def step(self, batch: Batch) -> float:
        self._modules.train()
        set_torch_precision(exact=False)
        self._optimizer.zero_grad(set_to_none=True)
        autocast = self._place.dtype == "bfloat16"
        with self._torch.autocast(self._place.device, dtype=self._torch.bfloat16, enabled=autocast):
            loss = self._timed_loss(self._tensors(batch))
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self._optimizer.step()
        return float(loss.detach())

    def _tensors(self, batch: Batch) -> dict[str, Any]:
        arrays = {"features": batch["features"], "mask": batch["mask"], "labels": batch["labels"]}
        return {name: self._torch.from_numpy(array).to(self._place.device) for name, array in arrays.items()}

    def _loss(self, batch: dict[str, Any]) -> Any:
        hidden = self._encoder(batch["features"], src_key_padding_mask=~batch["mask"])
        embeddings = self._torch.relu(self._bridge(hidden))
        labels = batch["labels"].long().masked_fill(batch["labels"] == self._pad, -100)
        out = self._bart(inputs_embeds=embeddings, attention_mask=batch["mask"].long(), labels=labels, use_cache=False)
        return out.loss


def _eeg_encoder(torch: Any, model: Seq2SeqModel, params: dict[str, Any]) -> tuple[Any, Any]:
    eeg, width = model.eeg, model.eeg.features
    layer = torch.nn.TransformerEncoderLayer(width, eeg.heads, eeg.ffn, eeg.dropout, "relu", batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, eeg.layers, enable_nested_tensor=False)
    bridge = torch.nn.Linear(width, model.spec.d_model)
    for number, theirs in enumerate(encoder.layers):
        tensors = _layer_tensors(params["encoder"]["layers"], number)
        theirs.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()})
    weights = {"weight": params["bridge"]["kernel"].T, "bias": params["bridge"]["bias"]}
    bridge.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    return encoder, bridge


def _layer_tensors(stacked: dict[str, Any], number: int) -> dict[str, np.ndarray]:
    """Return PyTorch's name -> tensor in PyTorch's layout for encoder layer `number`, from our stacked layers."""
    attention, ffn = stacked["self_attention"], stacked["ffn"]
    parts = [attention[part] for part in ("query", "key", "value")]
    tensors = {
        "self_attn.in_proj_weight": np.concatenate([part["kernel"][number].T for part in parts]),
        "self_attn.in_proj_bias": np.concatenate([part["bias"][number] for part in parts]),
    }
    dense = {"self_attn.out_proj": attention["out"], "linear1": ffn["inner"], "linear2": ffn["outer"]}
    for name, ours in dense.items():
        tensors |= {f"{name}.weight": ours["kernel"][number].T, f"{name}.bias": ours["bias"][number]}
    for name, ours in {"norm1": stacked["self_norm"], "norm2": stacked["ffn_norm"]}.items():
        tensors |= {f"{name}.weight": ours["scale"][number], f"{name}.bias": ours["bias"][number]}
    return tensors
