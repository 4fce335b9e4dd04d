"""Checkpoint folder or Hub name -> model and parameters on their devices."""

import importlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
from transformers import AutoConfig, PretrainedConfig

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.models.build import BACKBONES, backbone_module, backbone_of
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.pretrained import eeg_file
from eeg2text_jax.pretrained.hub import checkpoint_folder
from eeg2text_jax.pretrained.mapping import Rule, Source, Table, flatten, match, unflatten
from eeg2text_jax.pretrained.place import place
from eeg2text_jax.pretrained.read import read_tensors

# Parameters copied at the same time: copying and the first touch of new memory keep more than one core busy.
_AT_ONCE = 2

# Abstract parameters (a nested dict of jax.ShapeDtypeStruct) -> a sharding for each, in the same structure.
Shardings = Callable[[Params], Any]


def load_pretrained(
    name: str | Path, *, shardings: Shardings | None = None, dtype: str = "float32"
) -> tuple[Seq2SeqModel, Params]:
    """Loads a checkpoint of BART, PEGASUS, T5 or BERT2BERT, or what `eeg2text export` wrote, EEG encoder included.

    Parameters are float32 whatever the file holds; each goes to its devices shard by shard.

    Args:
      name: a folder with config.json and weights, or a name on the Hugging Face Hub.
      shardings: gives each parameter its sharding; None: all go whole to the default device.
      dtype: of the computation.

    Raises:
      UserError: there is no such checkpoint, it is of another architecture, or its tensors are not those that its
        configuration asks for (both sides are named).
    """
    folder = checkpoint_folder(name)
    spec = spec_of(read_config(folder), folder)
    beside = eeg_file.read_eeg(folder)
    model = Seq2SeqModel(spec, None if beside is None else beside[0], dtype)
    shapes = model.shapes
    sources = match(backbone_table(spec), read_tensors(folder), tensor_shapes(shapes), str(folder))
    if beside is not None:
        sources |= eeg_sources(beside[1], shapes, folder)
    return model, assemble(sources, shapes, shardings)


def read_config(folder: Path) -> PretrainedConfig:
    """The Hugging Face configuration of a checkpoint folder.

    Raises:
      UserError: there is none, or it cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: has no config.json; a checkpoint's folder holds one beside its weights.")
    try:
        return AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # transformers raises nearly anything here
        where = folder / "config.json"
        raise UserError(f"{where}: cannot be read as a model's configuration ({first_line(error)}).") from error


def spec_of(config: PretrainedConfig, where: Path) -> Seq2SeqSpec:
    """Description of the backbone of a checkpoint.

    Raises:
      UserError: the configuration is of no architecture that we have.
    """
    backbone = backbone_of(config)
    if backbone is None:
        kinds = ", ".join(backbone_module(name).MODEL_TYPE for name in BACKBONES)
        raise UserError(f"{where / 'config.json'}: model_type is {config.model_type!r}; expected one of {kinds}.")
    return backbone_module(backbone).spec_from_config(config)


def backbone_table(spec: Seq2SeqSpec) -> Table:
    """The table of names of a backbone."""
    return importlib.import_module(f"eeg2text_jax.pretrained.{spec.backbone}").table(spec)


def tensor_shapes(shapes: Params) -> dict[str, tuple[int, ...]]:
    """Shapes by path, as `match` wants them."""
    return {path: leaf.shape for path, leaf in flatten(shapes).items()}


def assemble(
    sources: Mapping[str, Source], shapes: Params, shardings: Shardings | None = None, arms: int | None = None
) -> Params:
    """Copies the sources to their devices, a few parameters at a time; every path of `sources` is in `shapes`.

    With `arms`, each gets a first axis `A` of equal entries, and `shardings` is asked about those shapes.
    """
    first = () if arms is None else (arms,)
    flat = {
        path: jax.ShapeDtypeStruct((*first, *leaf.shape), leaf.dtype)
        for path, leaf in flatten(shapes).items()
        if path in sources
    }
    where: Mapping[str, Any] = {} if shardings is None else flatten(shardings(unflatten(flat)))

    def put(path: str) -> jax.Array:
        source = sources[path]
        return place(source.pieces, where.get(path), stacked=source.stacked, arms=arms)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return unflatten(dict(zip(sources, pool.map(put, sources), strict=True)))


def eeg_sources(tensors: Mapping[str, Any], shapes: Params, folder: Path) -> dict[str, Source]:
    """The EEG encoder's parameters in the file beside an exported language model: named and shaped as ours are."""
    rules = tuple(Rule(path, path.removeprefix("eeg/").replace("/", ".")) for path in flatten({"eeg": shapes["eeg"]}))
    return match(Table("EEG encoder", rules), tensors, tensor_shapes(shapes), str(folder / eeg_file.NAME))
