"""A Llama of about 100 million parameters with adapters beside transformers and PEFT: training and decoding.

python tools/benchmarks/llm_speed.py [--batch 8] [--repeats 5]

Both sides have the same weights and the same recordings, in float32: 56 EEG positions, 64 tokens. Training: one step of
adapters of rank 16 (q_proj, v_proj), bridge and AdamW. Decoding: 55 new tokens, greedily and with five beams. The sides
take turns, so that other jobs slow down both; the fastest of the repeats counts. The table ends with the ratio.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/parity"))

import jax
import jax.numpy as jnp
import numpy as np
import torch
from adapter_cases import Adapted, from_torch
from peft import LoraConfig, get_peft_model
from torch_reference import Case, make_pair
from transformers import GenerationConfig

from eeg2text_jax.base.devices.arms import Divided
from eeg2text_jax.commands.bench import describe_machine
from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.backbones import LORA_TARGETS
from eeg2text_jax.models.functional import Seq2SeqModel, divide
from eeg2text_jax.models.spec import EEGSpec, LoraSpec
from eeg2text_jax.training.conditions.condition import condition_key
from eeg2text_jax.training.sections import OptimSettings
from eeg2text_jax.training.step import GridProgram, init_state, make_optimizer
from eeg2text_jax.training.study import Arm, StudyArrays

WORDS, TOKENS, FEATURES, BRIDGE = 56, 64, 840, 840
SHAPE = {
    "vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_key_value_heads": 4, "max_position_embeddings": 256, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True, "initializer_range": 0.02,
}  # fmt: skip
TARGETS = ("q_proj", "v_proj")
OPTIMIZER = OptimSettings(
    name="adamw", trainable="lora", lr=1e-4, schedule="constant", lr_end=0.0, decay_every=1, decay_epochs=0,
    decay_rate=1.0, warmup_steps=0, weight_decay=0.01, momentum=0.0, grad_clip=1.0,
)  # fmt: skip


def make_models() -> Adapted:
    pair = make_pair(Case("llama", SHAPE))
    lora = LoraSpec(16, 32.0, 0.0, tuple(LORA_TARGETS[name] for name in TARGETS))
    spec = dataclasses.replace(pair.model.spec, decoder=dataclasses.replace(pair.model.spec.decoder, lora=lora))
    eeg = EEGSpec(FEATURES, layers=0, width=BRIDGE, dropout=0.0)
    model = Seq2SeqModel(spec, eeg, shared_frozen=True)
    config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=list(TARGETS), bias="none")
    theirs = torch.nn.ModuleDict(
        {
            "lm": get_peft_model(pair.theirs, config),
            "project": torch.nn.Linear(FEATURES, BRIDGE),
            "bridge": torch.nn.Linear(BRIDGE, spec.d_model),
        }
    )
    own = from_torch(theirs, divide(model.shapes)[0], "value")
    return Adapted(pair, theirs.eval(), model, Divided(own, pair.params))


def our_training(models: Adapted, rows: dict[str, np.ndarray]) -> Callable[[], float]:
    model, (own, frozen) = models.model, models.params
    program = GridProgram(model, (Arm("eeg", 0),), make_optimizer(OPTIMIZER, 1000), 0.0, "vmap")
    batch = {name: value[None] for name, value in rows.items()}
    batch |= {"weight": np.ones((1, len(rows["mask"])), np.float32)}
    batch |= {"sample_id": np.arange(len(rows["mask"]), dtype=np.int32)[None]}
    study = StudyArrays(jax.random.split(jax.random.key(0), 1), condition_key(0), None, frozen=frozen)
    state = init_state(jax.tree.map(lambda leaf: leaf[None], own), program.optimizer)
    step = jax.jit(program.train_step, donate_argnums=0)

    def run() -> float:
        nonlocal state
        state, metrics = step(state, batch, study)
        return float(metrics["loss"][0])

    return run


def their_training(models: Adapted, rows: dict[str, np.ndarray]) -> Callable[[], float]:
    trained = [p for p in models.theirs.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=OPTIMIZER.lr, weight_decay=OPTIMIZER.weight_decay, fused=True)
    labels, lm = torch.tensor(rows["labels"]).long(), models.theirs["lm"]

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        x = torch.cat([their_prompts(models, rows), lm.get_input_embeddings()(labels[:, :-1])], dim=1)
        logits = lm(inputs_embeds=x, use_cache=False).logits[:, WORDS - 1 :]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, OPTIMIZER.grad_clip)
        optimizer.step()
        return loss.item()

    return run


def their_prompts(models: Adapted, rows: dict[str, np.ndarray]) -> torch.Tensor:
    """Return the embeddings of the recordings in PyTorch, `[B, W, D]`."""
    return torch.relu(models.theirs["bridge"](models.theirs["project"](torch.tensor(rows["features"]))))


def our_decoding(models: Adapted, rows: dict[str, np.ndarray], beams: int) -> Callable[[], np.ndarray]:
    """Return a function that decodes the batch to new tokens, int `[B, 55]`, as `their_decoding` does."""
    spec = GenerationSpec.from_fields({"num_beams": beams, "max_length": 56, "min_length": 56}, models.model)
    params = jax.tree.map(jnp.asarray, models.params)
    inputs = {name: jnp.asarray(rows[name]) for name in ("features", "mask")}
    return lambda: np.asarray(generate(models.model, params, inputs, spec).sequences[:, 1:])


def their_decoding(models: Adapted, rows: dict[str, np.ndarray], beams: int) -> Callable[[], np.ndarray]:
    fields = {"num_beams": beams, "max_new_tokens": 55, "min_new_tokens": 55, "do_sample": False}
    tokens = {name: SHAPE[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    config, mask = GenerationConfig(**fields, **tokens), torch.ones(len(rows["mask"]), WORDS, dtype=torch.long)

    @torch.no_grad()
    def run() -> np.ndarray:
        fed = their_prompts(models, rows)
        return models.theirs["lm"].generate(inputs_embeds=fed, attention_mask=mask, generation_config=config).numpy()

    return run


def compare(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float, Any, Any]:
    """Return the fastest seconds of each side, taking turns, and the results of the first, untimed run of each."""
    first, seconds = (ours(), theirs()), ([], [])
    for _ in range(repeats):
        for run, taken in zip((ours, theirs), seconds, strict=True):
            begun = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begun)
    return min(seconds[0]), min(seconds[1]), *first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rng, models, machine = np.random.default_rng(0), make_models(), describe_machine()
    torch.set_num_threads(machine["cores"])
    rows = {
        "features": rng.normal(size=(options.batch, WORDS, FEATURES)).astype(np.float32),
        "mask": np.ones((options.batch, WORDS), bool),
        "labels": rng.integers(3, SHAPE["vocab_size"], (options.batch, TOKENS)).astype(np.int32),
    }
    print(f"{machine['processor']}, {machine['cores']} cores; batch {options.batch}; {machine['versions']}")
    print("| stage | eeg2text_jax | transformers + PEFT | ratio | agreement |\n| --- | --- | --- | --- | --- |")
    for beams in (1, 5):  # before training, while both sides have the same weights
        both = our_decoding(models, rows, beams), their_decoding(models, rows, beams)
        ours, theirs, a, b = compare(*both, options.repeats)
        same = f"{(a == b).all(axis=1).sum()} of {len(a)} sentences equal"
        rate = [f"{options.batch / seconds:.2f} sentences/s" for seconds in (ours, theirs)]
        print(f"| decoding, {beams} beam(s) | {' | '.join(rate)} | {theirs / ours:.2f} | {same} |", flush=True)
    ours, theirs, a, b = compare(our_training(models, rows), their_training(models, rows), options.repeats)
    rate = [f"{options.batch / seconds:.2f} samples/s" for seconds in (ours, theirs)]
    print(f"| training | {' | '.join(rate)} | {theirs / ours:.2f} | losses {a:.5f}, {b:.5f} |")


if __name__ == "__main__":
    main()
