"""Optional peers: other decoders of the same BART, and the same training in PyTorch, on the device that JAX uses.

A peer that is not installed is reported and skipped. PyTorch trains from our weights on the same batches with AdamW and
the same settings, in bfloat16 by autocast, eagerly or compiled. Its EEG encoder is `nn.TransformerEncoder` (post-norm,
ReLU) and `relu(nn.Linear)` as in the paper's code; its language model is transformers' BART, fed by `inputs_embeds`.
"""

import copy
import dataclasses
import importlib
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from eeg2text_jax.backbones import bart
from eeg2text_jax.backbones.mapping import export, flatten
from eeg2text_jax.data.batches import Batch
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.search.settings import GenerationSpec
from eeg2text_jax.study.sections import OptimSettings

OURS = "eeg2text_jax"
One = TypeVar("One")
Decoder = Callable[[int], np.ndarray | None]  # batch size -> tokens [B, T], or None if its inputs differ from ours


class Place(NamedTuple):
    """The device and the precision of a peer."""

    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"


def check_peers(names: Iterable[str], known: Sequence[str]) -> None:
    """Raise a UserError if a name is none of the known peers."""
    for name in names:
        if name not in known:
            raise UserError(f"--peer: there is no peer {name!r}; expected some of {','.join(known)}.")


def warm_up(peers: dict[str, Callable[[One], Any]], inputs: Collection[One]) -> dict[str, str]:
    """Run every peer once on every input; remove peers that fail, and return their errors."""
    failed = {}
    for name, run in list(peers.items()):
        try:
            for one in inputs:
                run(one)
        except Exception as error:  # whatever a peer raises, the others are measured
            failed[name] = first_line(error)
            print(f"{name} failed: {failed[name]}")
            del peers[name]
    return failed


def peer_place(dtype: str) -> Place:
    """Return the peers' place: the kind of device that JAX uses.

    Raises:
      UserError: JAX uses a GPU, and PyTorch has none; a peer on the host's CPU would give a false ratio.
    """
    if jax.default_backend() != "gpu":
        return Place("cpu", dtype)
    torch = imported("torch")
    if not torch.cuda.is_available():
        raise UserError(
            f"--peer: JAX runs on a GPU, but torch {torch.__version__} finds none; install PyTorch's CUDA build, or "
            "set JAX_PLATFORMS=cpu to compare both on the CPU."
        )
    return Place("cuda", dtype)


def set_torch_precision(*, exact: bool) -> None:
    """Let PyTorch use TF32 in float32 products on a GPU, as XLA does by default; `exact`: do not, for agreement."""
    if jax.default_backend() == "gpu":
        imported("torch").set_float32_matmul_precision("highest" if exact else "high")


def torch_bart(config: Any, tensors: dict[str, np.ndarray]) -> Any:
    """Make a PyTorch BART with the given weights (PyTorch's names)."""
    torch, transformers = imported("torch"), imported("transformers")
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


def transformers_decoder(
    model: Any, hidden: np.ndarray, mask: np.ndarray, spec: GenerationSpec, place: Place, *, static: bool = False
) -> Decoder:
    """Wrap `transformers.generate` on our encoder's output `[B, S, D]`; encoding is not timed.

    `static`: with its cache of fixed size, which it compiles on a GPU.
    """
    torch, transformers = imported("torch"), imported("transformers")
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(spec).items() if value}
    config = transformers.GenerationConfig(
        **{k: v for k, v in fields.items() if k not in ("top_k", "top_p", "temperature")},
        **({"cache_implementation": "static"} if static else {}),
    )
    dtype = getattr(torch, place.dtype)
    model = copy.deepcopy(model).to(place.device, dtype)  # other peers keep theirs

    @torch.no_grad()
    def decode(size: int) -> np.ndarray:
        given = torch.tensor(hidden[:size]).to(place.device, dtype)
        states = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=given)
        known = torch.tensor(mask[:size]).long().to(place.device)
        return model.generate(encoder_outputs=states, attention_mask=known, generation_config=config).cpu().numpy()

    return decode


@dataclasses.dataclass(frozen=True)
class _Vocabulary:
    """The part of a tokenizer that CTranslate2's converter needs."""

    size: int
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
    """Wrap CTranslate2 with a compute type ("float32", "float16", "int8") on random text as long as our inputs.

    It runs its own text encoder, so only its speed is compared; the number of steps is forced on both sides.
    """
    ctranslate2, converters = imported("ctranslate2"), imported("ctranslate2.converters.transformers")
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


def imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"--peer: {name.split('.')[0]} is not installed; install it with pip, or leave the peer out."
        ) from error


class TorchTraining:
    """A PyTorch model with our parameters of one arm (NumPy arrays), and its optimizer.

    `place.dtype` is the precision of the products, by autocast; `compiled`: loss and gradient by `torch.compile`.
    """

    def __init__(
        self,
        config: Any,
        model: Seq2SeqModel,
        params: dict[str, Any],
        optimizer: OptimSettings,
        place: Place,
        *,
        compiled: bool = False,
    ):
        backbone = flatten({"backbone": params["backbone"]})
        self._bart = torch_bart(config, export(bart.table(model.spec), backbone))
        self._torch = torch = imported("torch")
        self._pad, self._clip = model.pad_token, optimizer.grad_clip
        self._encoder, self._bridge = _eeg_encoder(torch, model, params["eeg"])
        modules = torch.nn.ModuleList([self._bart, self._encoder, self._bridge]).to(place.device)
        self._parameters = [p for p in modules.parameters() if p.requires_grad]
        self._modules, self._place = modules, place
        self._timed_loss = torch.compile(self._loss, dynamic=False) if compiled else self._loss
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=optimizer.lr, weight_decay=optimizer.weight_decay, fused=True
        )

    def first_loss(self, batch: Batch) -> float:
        """Return the loss in nats per token without dropout, in float32 without TF32."""
        self._modules.eval()
        set_torch_precision(exact=True)
        with self._torch.no_grad():
            return float(self._loss(self._tensors(batch)))

    def step(self, batch: Batch) -> float:
        """Do one update with dropout; return the loss."""
        self._modules.train()
        set_torch_precision(exact=False)
        self._optimizer.zero_grad(set_to_none=True)
        low = self._place.dtype == "bfloat16"
        with self._torch.autocast(self._place.device, dtype=self._torch.bfloat16, enabled=low):
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
    """Make PyTorch's encoder and bridge with our weights."""
    eeg, width = model.eeg, model.eeg.features
    layer = torch.nn.TransformerEncoderLayer(width, eeg.heads, eeg.ffn, eeg.dropout, "relu", batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, eeg.layers, enable_nested_tensor=False)
    bridge = torch.nn.Linear(width, model.spec.d_model)
    stacked = params["encoder"]["layers"]
    with torch.no_grad():
        for number, theirs in enumerate(encoder.layers):
            for name, array in _layer_tensors(stacked, number).items():
                theirs.get_parameter(name).copy_(torch.tensor(array))
        bridge.weight.copy_(torch.tensor(np.asarray(params["bridge"]["kernel"]).T))
        bridge.bias.copy_(torch.tensor(np.asarray(params["bridge"]["bias"])))
    return encoder, bridge


def _layer_tensors(stacked: dict[str, Any], number: int) -> dict[str, np.ndarray]:
    """Return one layer's tensors under PyTorch's names: transposed, with queries, keys and values in one tensor."""
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
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}
