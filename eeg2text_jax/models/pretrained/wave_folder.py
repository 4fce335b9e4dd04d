"""Encoders of waves (`models.waves`) in folders of braindecode, or a Whisper of transformers.

A folder of braindecode has `config.json`, the arguments of the model's class, and its state dict. `wave_spec` describes
the encoder of a folder, or one with random weights, `wave_sources` finds its weights, and `write_wave_encoder` writes a
folder that braindecode's `from_pretrained` loads.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig

from eeg2text_jax.base.errors import UserError, first_line, shortlist
from eeg2text_jax.base.files import parse_json
from eeg2text_jax.models.backbones import LORA_TARGETS, ModelSettings, whisper
from eeg2text_jax.models.backbones.mapping import Rule, Source, Table, dense, export, flatten, layers_of, match, norm
from eeg2text_jax.models.pretrained.folder import checkpoint_folder, read_tensors, write_safetensors
from eeg2text_jax.models.spec import Channels, EEGSpec, LoraSpec, PatchConvolution, StackSpec, WaveSpec
from eeg2text_jax.models.waves import LABRAM_CHANNELS, count_patches, stem_length

RATE = 200.0  # samples a second that the pretrained encoders read, unless their folder says otherwise
TIMES = 512  # rows of the table of times of a LaBraM with random weights
CLASSES = {"labram": "Labram", "cbramod": "CBraMod", "reve": "REVE"}  # kind -> braindecode's class
_WIDTH = {"labram": 200, "cbramod": 200, "reve": 512}  # where model.encoder_width is 0
# Numbers in a folder's config.json -> our names of these sizes.
_SIZES = {
    "labram": {"patch_size": "patch", "num_layers": "layers", "num_heads": "heads", "conv_out_channels": "filters"},
    "cbramod": {"patch_size": "patch", "n_layer": "layers", "nhead": "heads", "dim_feedforward": "ffn",
                "emb_dim": "outputs"},
    "reve": {"patch_size": "patch", "patch_overlap": "overlap", "depth": "layers", "heads": "heads",
             "head_dim": "head_dim", "embed_dim": "width"},
}  # fmt: skip
# Fields of a folder's config.json with the only value that is implemented.
_ONLY: dict[str, Any] = {
    "learned_patcher": False, "neural_tokenizer": True, "activation": "torch.nn.modules.activation.GELU",
    "norm_layer": "torch.nn.modules.normalization.LayerNorm",
}  # fmt: skip
Fields = Mapping[str, Any]


def wave_spec(config: ModelSettings, features: int, channels: Channels, d_model: int) -> WaveSpec:
    """Return the description of the section's encoder of waves.

    Raises UserError if a field is not usable, the folder of `encoder_checkpoint` is of another encoder, or the channels
    or the rate of the data do not fit.
    """
    kind, name = config.encoder, config.encoder_checkpoint
    sizes = {"layers": config.encoder_layers, "heads": config.encoder_heads, "ffn": config.encoder_ffn,
             "width": config.encoder_width or _WIDTH.get(kind, d_model), "patch": config.waves.patch,
             "overlap": config.waves.overlap}  # fmt: skip
    if kind in ("conv", "whisper"):
        waves = _conv(config, sizes, d_model) if kind == "conv" else _of_whisper(config)
        return dataclasses.replace(waves, stack=_trained(config, waves.stack))
    fields = read_fields(name, kind) if name else {}
    expected = float(fields.get("sfreq") or RATE)
    if name and channels.rate and abs(channels.rate - expected) > 1e-3 * expected:
        raise UserError(
            f"{name}: reads {expected:g} samples a second, and the data has {channels.rate:g}; prepare the data with "
            f"data.raw.resample={expected:g}."
        )
    sizes |= {ours: fields[theirs] for theirs, ours in _SIZES[kind].items() if fields}
    waves = {"labram": _labram, "cbramod": _cbramod, "reve": _reve}[kind](config, fields, sizes)
    used = used_channels(kind, channels, features, config.waves.positions)
    rows, places = (tuple(used.values()) if there else () for there in (waves.rows, kind == "reve"))
    stack, pool = _trained(config, waves.stack), config.waves.pool
    return dataclasses.replace(waves, stack=stack, used=tuple(used), rows=rows, places=places, pooled=pool)


def _trained(config: ModelSettings, stack: StackSpec) -> StackSpec:
    """Return the transformer with the section's dropout, and adapters if only these are trained."""
    lora, names = config.lora, ("embedding_dropout", "dropout", "attention_dropout", "activation_dropout")
    changes: dict[str, Any] = dict.fromkeys(names, config.dropout)
    if config.encoder_train == "adapters":
        targets = tuple(LORA_TARGETS[name] for name in lora.targets)
        changes["lora"] = LoraSpec(lora.rank, lora.alpha, lora.dropout, targets)
    return dataclasses.replace(stack, **changes)


def read_fields(name: str, kind: str) -> dict[str, Any]:
    """Return the fields of an encoder's `config.json`, checked for what is implemented."""
    path = checkpoint_folder(name) / "config.json"
    try:
        fields = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({first_line(error)}); copy the encoder's folder again.") from error
    wrong = [size for size in _SIZES[kind] if not isinstance(fields, dict) or not isinstance(fields.get(size), int)]
    if wrong:
        raise UserError(
            f"{path}: has no number {', '.join(wrong)}; expected braindecode's {CLASSES[kind]}, as model.encoder is "
            f"{kind!r}."
        )
    for field, value in _ONLY.items():
        if field in fields and fields[field] != value:
            raise UserError(f"{path}: {field} is {fields[field]!r}; only {value!r} is implemented; take another one.")
    return fields


def used_channels(kind: str, channels: Channels, features: int, path: str) -> dict[int, Any]:
    """Return LaBraM's row, REVE's place, or None for each channel that an encoder reads, by number.

    `path` is a JSON file of places by name; "": those of the data. Raises UserError if the encoder knows no channel.
    """
    if kind == "cbramod":
        return dict.fromkeys(range(features))
    if kind == "labram" and not channels.names:
        raise UserError(
            "model.encoder is 'labram', which finds channels by name, but the data states no names of its "
            f"{features} channels; prepare it from raw recordings with data.raw.features=waves."
        )
    if kind == "reve" and not path:
        if channels.places:
            return dict(enumerate(channels.places))
        raise UserError(
            "model.encoder is 'reve', which needs the places of channels, but the data has none; set "
            "data.raw.montage, or model.waves.positions to a JSON file of name to [x, y, z]."
        )
    known: dict[str, Any] = {name: row for row, name in enumerate(LABRAM_CHANNELS, 1)}
    if kind == "reve":
        try:
            places = parse_json(Path(path).read_bytes())
            known = {name.upper(): (float(x), float(y), float(z)) for name, (x, y, z) in places.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            reason = first_line(error)
            raise UserError(f"{path}: expected a JSON object of channel name to [x, y, z] ({reason}).") from error
    used = {n: known[name.upper()] for n, name in enumerate(channels.names) if name.upper() in known}
    if not used:
        names = f"those of {path}" if kind == "reve" else "names of the 10-20 system"
        raise UserError(
            f"model.encoder is {kind!r}, which knows none of the channels {shortlist(channels.names, 12)}; expected "
            f"{names}, such as {', '.join([*known][:3])}."
        )
    return used


def unused_note(eeg: EEGSpec | None, channels: Channels) -> str:
    """Return a line about the channels that the encoder leaves out; "" if it reads all."""
    if eeg is None or eeg.waves is None or not eeg.waves.used or len(eeg.waves.used) == eeg.features:
        return ""
    left = [channels.names[n] for n in range(eeg.features) if n not in eeg.waves.used]
    return f"{eeg.kind}: reads {len(eeg.waves.used)} of {eeg.features} channels; unknown to it: {shortlist(left, 12)}."


# The description of each encoder, from the fields of its folder, if there is one, and our sizes.


def _stack(config: ModelSettings, sizes: Mapping[str, int], **others: Any) -> StackSpec:
    width, heads, own = sizes["width"], sizes["heads"], sizes.get("head_dim")
    if not own and (heads < 1 or width % heads):
        raise UserError(
            f"config.model.encoder_heads is {heads}, which does not divide the width {width} of {config.encoder}; "
            "change one of them."
        )
    return StackSpec(**{
        "layers": sizes["layers"], "width": width, "heads": heads, "head_dim": own or width // heads,
        "ffn": sizes["ffn"], "activation": "gelu", "pre_norm": True, "init_std": None, **others,
    })  # fmt: skip


def _conv(config: ModelSettings, sizes: dict[str, int], d_model: int) -> WaveSpec:
    if not config.encoder_layers:
        sizes["width"] = d_model  # the stem alone, which the language model reads
    stack = _stack(config, sizes, positions="sinusoidal", final_norm=True)
    return WaveSpec(stack, tuple(config.waves.strides))


def _of_whisper(config: ModelSettings) -> WaveSpec:
    if not config.encoder_checkpoint:
        raise UserError(
            "model.encoder is 'whisper' and model.encoder_checkpoint is empty; expected a Whisper, or model.encoder="
            "conv, the same with random weights."
        )
    folder = checkpoint_folder(config.encoder_checkpoint)
    theirs = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    if theirs.model_type != whisper.MODEL_TYPE:
        raise UserError(f"{folder / 'config.json'}: model_type is {theirs.model_type!r}; expected 'whisper'.")
    return WaveSpec(whisper.spec_from_config(theirs).encoder, (*config.waves.strides, 2))


def _patch_width(config: ModelSettings, waves: WaveSpec) -> WaveSpec:
    """Return `waves` if its convolutions make as many values of a patch as the transformer is wide."""
    length, last = stem_length(waves.patch, waves.convolutions), waves.convolutions[-1]
    if length * last.filters != waves.stack.width or any(each.filters % each.groups for each in waves.convolutions):
        raise UserError(
            f"config.model.encoder_width is {waves.stack.width} with model.waves.patch={waves.patch}; expected a "
            f"multiple of {length * last.groups} for {config.encoder}, whose convolutions make {length} values of a "
            "patch with each of their filters."
        )
    return waves


def _labram(config: ModelSettings, fields: Fields, sizes: dict[str, int]) -> WaveSpec:
    length = (sizes["patch"] - 1) // 8 + 1  # of a patch after the first convolution
    filters, times = sizes.get("filters") or max(1, sizes["width"] // length), TIMES
    if fields:
        width = filters * length
        sizes |= {"width": width, "ffn": int(width * fields.get("mlp_ratio", 4.0)),
                  "head_dim": int(fields.get("attn_head_dim") or 0)}  # fmt: skip
        times = read_tensors(checkpoint_folder(config.encoder_checkpoint))["temporal_embedding"].shape[1]
    stack = _stack(
        config, sizes, query_scale=fields.get("qk_scale") or 0.0, norm_eps=1e-6, final_norm=True, bias=False,
        biases=("out", "inner", "outer", *(("query", "value") if fields.get("qkv_bias") else ())),
        head_norm=fields.get("qk_norm", True) is not None, layer_scale=fields.get("init_values", 0.1) or 0.0,
    )  # fmt: skip
    convolutions = (PatchConvolution(filters, 15, 8, 7, 4), *[PatchConvolution(filters, 3, 1, 1, 4)] * 2)
    pooling, rows = bool(fields.get("use_mean_pooling", False)), (0,) if fields.get("use_abs_pos_emb", True) else ()
    return _patch_width(
        config, WaveSpec(stack, (), sizes["patch"], 0, convolutions, times=times, mean_pooling=pooling, rows=rows)
    )


def _cbramod(config: ModelSettings, fields: Fields, sizes: dict[str, int]) -> WaveSpec:
    # A patch of 8 s samples becomes 8 values of each filter, as in the published model, whose s is 25.
    patch, filters, stride = sizes["patch"], sizes["width"] // 8, max(1, sizes["patch"] // 8)
    first = PatchConvolution(filters, 2 * stride - 1, stride, stride - 1, 5)
    convolutions = (first, *[PatchConvolution(filters, 3, 1, 1, 5)] * 2)
    if stated := fields.get("channels_kernel_stride_padding_norm"):
        convolutions = tuple(PatchConvolution(*map(int, [*each[:4], each[4][0]])) for each in stated)
        sizes["width"] = stem_length(patch, convolutions) * convolutions[-1].filters
    stack = _stack(config, sizes)
    if stack.heads % 2 or stack.width % 2:
        raise UserError(
            f"config.model.encoder_heads is {stack.heads}, the width {stack.width}; expected even numbers for cbramod, "
            "whose halves attend to channels and to times."
        )
    outputs = sizes.get("outputs", stack.width)
    return _patch_width(config, WaveSpec(stack, (), patch, 0, convolutions, outputs=outputs))


def _reve(config: ModelSettings, fields: Fields, sizes: dict[str, int]) -> WaveSpec:
    patch, overlap, width, frequencies = sizes["patch"], sizes["overlap"], sizes["width"], int(fields.get("freqs", 4))
    if overlap >= patch:
        raise UserError(f"config.model.waves.overlap is {overlap}; expected less than model.waves.patch ({patch}).")
    most = 2 * frequencies**4
    if width % 2 or width > most:
        raise UserError(f"config.model.encoder_width is {width}; expected an even number up to {most} for reve.")
    sizes["ffn"] = int(width * fields["mlp_dim_ratio"]) if fields else sizes["ffn"]
    gated = bool(fields.get("use_geglu", True))
    stack = _stack(config, sizes, norm="rms", norm_eps=1e-6, bias=False, gated=gated)
    return WaveSpec(stack, (), patch, overlap, frequencies=frequencies)


# Names of tensors.

_ATTENTION = ("query", "key", "value")
_HEAD = (r"final_layer\..*", r"cls_query_token", r"patch_embedding\.mask_encoding")


def _fused(target: str, names: Sequence[str], source: str, layers: int, **options: Any) -> list[Rule]:
    """Return the rules of dense layers that are stored as one; `options` as for `dense`."""
    each = (dense(f"{target}/{n}", source, layers, part=(i, len(names)), **options) for i, n in enumerate(names))
    return [*itertools.chain(*each)]


def wave_table(eeg: EEGSpec) -> Table:
    """Return the table that maps the encoder's parameters to the tensor names of its own format."""
    rules = {"whisper": _whisper_rules, "labram": _labram_rules, "cbramod": _cbramod_rules, "reve": _reve_rules}
    ignored = (r"model\.encoder\.conv1\..*", r"(model\.decoder|proj_out)\..*") if eeg.kind == "whisper" else _HEAD
    return Table(CLASSES.get(eeg.kind, "Whisper"), tuple(rules[eeg.kind](eeg.waves)), ignored=ignored)


def _whisper_rules(waves: WaveSpec) -> list[Rule]:
    rules = dense(f"backbone/conv_{len(waves.strides) - 1}/convolution", "model.encoder.conv2")
    rules += whisper.side_rules("encoder", waves.stack)
    return [dataclasses.replace(rule, target=rule.target.replace("backbone/", "eeg/", 1)) for rule in rules]


def _stem_rules(waves: WaveSpec, convolution: Callable[[int], str], group: Callable[[int], str]) -> list[Rule]:
    rules: list[Rule] = []
    for n in range(len(waves.convolutions)):
        rules += [*dense(f"eeg/stem/conv_{n}", convolution(n)), *norm(f"eeg/stem/norm_{n}", group(n))]
    return rules


def _labram_rules(waves: WaveSpec) -> list[Rule]:
    layers, target, block = waves.stack.layers, "eeg/encoder/layers", "blocks.{layer}"
    stem, names = "patch_embed.temporal_conv", {"self_attention/out": "attn.proj", "self_norm": "norm1"}
    names |= {"ffn_norm": "norm2", "ffn/inner": "mlp.0", "ffn/outer": "mlp.2"}
    rules = [
        *_stem_rules(waves, lambda n: f"{stem}.conv{n + 1}", lambda n: f"{stem}.norm{n + 1}"),
        Rule("eeg/first", "cls_token", squeeze=True),
        Rule("eeg/times", "temporal_embedding", squeeze=True),
        *norm("eeg/encoder/final_norm", "fc_norm" if waves.mean_pooling else "norm"),
        *_fused(f"{target}/self_attention", _ATTENTION, f"{block}.attn.qkv", layers, bias=False),
        *layers_of(target, block, names, layers),
    ]
    if waves.rows:
        rules.append(Rule("eeg/places", "position_embedding", squeeze=True))
    if "query" in waves.stack.biases:
        for name in ("query", "value"):
            rules.append(Rule(f"{target}/self_attention/{name}/bias", f"{block}.attn.{name[0]}_bias", layers))
    if waves.stack.head_norm:
        norms = {f"self_attention/{name}_norm": f"attn.{name[0]}_norm" for name in ("query", "key")}
        rules += layers_of(target, block, norms, layers)
    if waves.stack.layer_scale:
        for number, name in enumerate(("self_scale", "ffn_scale"), 1):
            rules.append(Rule(f"{target}/{name}", f"{block}.gamma_{number}", layers))
    return rules


def _cbramod_rules(waves: WaveSpec) -> list[Rule]:
    layers, source, stem = waves.stack.layers, "encoder.layers.{layer}", "patch_embedding"
    rules = [
        *_stem_rules(waves, lambda n: f"{stem}.proj_in.{3 * n}", lambda n: f"{stem}.proj_in.{3 * n + 1}"),
        *dense("eeg/spectrum", f"{stem}.spectral_proj.0"),
        *dense("eeg/positions", f"{stem}.positional_encoding.0"),
        *dense("eeg/output", "proj_out.0"),
    ]
    for ours, theirs in (("channels", "self_attn_s"), ("times", "self_attn_t")):
        rules += _fused(f"eeg/layers/{ours}", _ATTENTION, f"{source}.{theirs}", layers, fused=".in_proj_")
        rules += dense(f"eeg/layers/{ours}/out", f"{source}.{theirs}.out_proj", layers)
    names = {"ffn/inner": "linear1", "ffn/outer": "linear2", "self_norm": "norm1", "ffn_norm": "norm2"}
    return rules + layers_of("eeg/layers", source, names, layers)


def _reve_rules(waves: WaveSpec) -> list[Rule]:
    layers, target, source = waves.stack.layers, "eeg/encoder/layers", "transformer.layers.{layer}"
    names = {"self_attention/out": "0.to_out", "ffn_norm": "1.net.0", "ffn/outer": "1.net.3"}
    rules = [
        *dense("eeg/patch", "to_patch_embedding.0"),
        *dense("eeg/place", "mlp4d.0", bias=False),
        *norm("eeg/place_norm", "mlp4d.2"),
        *norm("eeg/norm", "ln"),
        *norm(f"{target}/self_norm", f"{source}.0.norm", layers, bias=False),
        *_fused(f"{target}/self_attention", _ATTENTION, f"{source}.0.to_qkv", layers, bias=False),
        *layers_of(target, source, names, layers, bias=False),
    ]
    inner = ("inner", "gate") if waves.stack.gated else ("inner",)
    return rules + _fused(f"{target}/ffn", inner, f"{source}.1.net.1", layers, bias=False)


def wave_sources(eeg: EEGSpec, name: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Source]:
    """Return where the folder `name` has the encoder's parameters, see `match`."""
    folder = checkpoint_folder(name)
    return match(wave_table(eeg), read_tensors(folder), shapes, str(folder))


def write_wave_encoder(folder: Path, eeg: EEGSpec, params: Mapping[str, Any], samples: int, rate: float = 0.0) -> None:
    """Write the encoder into a new folder in braindecode's format, with adapters added to their kernels.

    `samples`, filled up to whole patches, is the length of recordings for braindecode's model, `rate` their samples a
    second, if known. There is no classifier: `from_pretrained(folder, strict=False)` makes one.
    """
    waves, lora = eeg.waves, eeg.waves.stack.lora
    flat = {path: np.array(leaf, np.float32) for path, leaf in flatten({"eeg": dict(params)}).items()}
    for path in [path for path in flat if path.endswith("/lora_a")]:
        base = path.removesuffix("/lora_a")
        flat[f"{base}/kernel"] += flat[path] @ flat[f"{base}/lora_b"] * (lora.alpha / lora.rank)
    tensors = export(wave_table(eeg), flat)
    if eeg.kind == "cbramod":
        tensors["patch_embedding.mask_encoding"] = np.zeros(waves.patch, np.float32)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    length = waves.patch + (count_patches(waves, samples) - 1) * (waves.patch - waves.overlap)
    fields = {"n_outputs": 1, "n_chans": len(waves.used), "n_times": length, "sfreq": rate or RATE}
    fields |= _fields(eeg.kind, waves)
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf8")


def _fields(kind: str, waves: WaveSpec) -> dict[str, Any]:
    """Return the arguments of braindecode's class, which rounds products of ratios down."""
    stack, convolutions, ratio = waves.stack, waves.convolutions, (waves.stack.ffn + 0.5) / waves.stack.width
    sizes = {**dataclasses.asdict(stack), "patch": waves.patch, "overlap": waves.overlap, "outputs": waves.outputs,
             "filters": convolutions[0].filters if convolutions else 0}  # fmt: skip
    fields = {theirs: sizes[ours] for theirs, ours in _SIZES[kind].items()}
    if kind == "labram":
        return fields | {
            "n_times": (waves.times - 1) * waves.patch, "mlp_ratio": ratio, "qkv_bias": "query" in stack.biases,
            "qk_norm": _ONLY["norm_layer"] if stack.head_norm else None, "qk_scale": stack.query_scale or None,
            "attn_head_dim": stack.head_dim, "init_values": stack.layer_scale or None,
            "use_abs_pos_emb": bool(waves.rows), "use_mean_pooling": waves.mean_pooling,
        }  # fmt: skip
    if kind == "cbramod":
        stated = [(*each[:4], (each.groups, each.filters)) for each in convolutions]
        return fields | {"channels_kernel_stride_padding_norm": stated, "return_encoder_output": True}
    return fields | {"mlp_dim_ratio": ratio, "use_geglu": stack.gated, "freqs": waves.frequencies}
