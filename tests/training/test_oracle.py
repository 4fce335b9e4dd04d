"""A whole small training beside the same steps in PyTorch, in float64, written from the configuration alone."""

import math

import jax
import numpy as np
import pytest
import torch
import transformers
from tiny_run import study_in, tiny_settings

from eeg2text_jax.models.backbones.build import random_config
from eeg2text_jax.models.backbones.mapping import export
from eeg2text_jax.models.pretrained.load import backbone_table
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.loop import make_initial_state, train
from eeg2text_testing.forked_runs import logged_metrics

# More than two epochs, whose last batches are not full; dev makes three batches, the last of two rows.
FIELDS = {
    "seed": 3,
    "data__synthetic__sentences": 30,
    "split__ratio": (0.5, 0.3, 0.2),
    "grid__train_conditions": ("eeg",),
    "grid__eval_conditions": ("eeg",),
    "model__encoder_layers": 0,
    "optim__grad_clip": 0.2,
    "optim__weight_decay": 0.3,
    "optim__lr": 3e-3,
    "train__steps": 10,
    "train__eval_every": 5,
    "train__label_smoothing": 0.2,
    "train__accumulate": 2,
}


@pytest.fixture(scope="module", params=["cosine", pytest.param("linear to an end", marks=pytest.mark.slow)])
def trained(request, tmp_path_factory):
    """The study, its parameters before and after, and what it logged."""
    ends = {"optim__schedule": "linear", "optim__lr_end": 1e-3} if "end" in request.param else {}
    study = study_in(tmp_path_factory.mktemp("oracle") / "run", tiny_settings(**FIELDS, **ends))
    first = make_initial_state(study, make_program(study.config, study.model, study.arms))
    before = tensors_of(study, first.params)
    return study, before, tensors_of(study, train(study).params), logged_metrics(study.workdir.root)


def tensors_of(study, params):
    """The only arm's parameters by the names of PyTorch, those of the bridge as "bridge.kernel" and "bridge.bias"."""
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[0], params)
    bridge = {f"bridge.{name}": np.asarray(leaf) for name, leaf in own["eeg"]["bridge"].items()}
    return {**export(backbone_table(study.model.spec), own), **bridge}


class Oracle:
    """BART behind `relu(dense)`, its rows, batches, losses and AdamW."""

    def __init__(self, study, tensors):
        self.config, data, parts = study.config, study.data, study.split.parts
        shape = dict(self.config.model.shape)
        self.bart = transformers.BartForConditionalGeneration(random_config("bart", shape, study.tokenizer)).double()
        tensors = {name: torch.tensor(np.array(tensor)).double() for name, tensor in tensors.items()}
        self.bridge = {name: tensors.pop(name).requires_grad_() for name in ("bridge.kernel", "bridge.bias")}
        missing, unexpected = self.bart.load_state_dict(tensors, strict=False)
        assert not unexpected
        assert all("embed_tokens" in name or name == "lm_head.weight" for name in missing)
        self.bart.tie_weights()
        self.bart.train()  # every rate of dropout is 0
        self.pad, self.start = self.bart.config.pad_token_id, self.bart.config.decoder_start_token_id
        # Each feature by the mean and deviation of the train part's words; each text by the tokenizer, an end behind.
        words = np.concatenate([data.words(i) for i in parts["train"]]).astype(np.float64)
        self.features = [(data.words(i) - words.mean(axis=0)) / words.std(axis=0) for i in range(len(data))]
        tokens = [study.tokenizer(str(text))["input_ids"] for text in data.sentence]
        self.labels = [ids if len(ids) <= 56 else [*ids[:55], study.tokenizer.eos_token_id] for ids in tokens]

    def loss(self, rows, smoothing):
        """Summed loss of the tokens of some samples, and their number."""
        width = max(len(self.features[i]) for i in rows)
        fed = np.zeros((len(rows), width, self.features[0].shape[1]))
        mask = np.zeros((len(rows), width), int)
        length = max(len(self.labels[i]) for i in rows)
        labels = np.full((len(rows), length), self.pad)
        for k, i in enumerate(rows):
            fed[k, : len(self.features[i])], mask[k, : len(self.features[i])] = self.features[i], 1
            labels[k, : len(self.labels[i])] = self.labels[i]
        shifted = np.concatenate([np.full((len(rows), 1), self.start), labels[:, :-1]], axis=1)
        embedded = torch.relu(torch.tensor(fed) @ self.bridge["bridge.kernel"] + self.bridge["bridge.bias"])
        given = {"attention_mask": torch.tensor(mask), "decoder_input_ids": torch.tensor(shifted)}
        logits = self.bart(inputs_embeds=embedded, **given).logits
        options = {"ignore_index": self.pad, "reduction": "sum", "label_smoothing": smoothing}
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten(), **options)
        return losses, int((labels != self.pad).sum())

    def batches(self, train):
        """Rows of every step: each epoch shuffles the samples, cuts them, and shuffles the batches."""
        for epoch in range(100):
            order = np.random.default_rng([self.config.seed, epoch, 1]).permutation(len(train))
            cut = [order[k : k + 8] for k in range(0, len(order), 8)]
            yield from (train[cut[k]] for k in np.random.default_rng([self.config.seed, epoch]).permutation(len(cut)))

    def rate(self, done):
        """Learning rate of the step that comes after `done` steps."""
        optim, steps = self.config.optim, self.config.train.steps
        if done < optim.warmup_steps:
            return optim.lr * done / optim.warmup_steps
        if optim.schedule == "cosine":
            return optim.lr * (1 + math.cos(math.pi * (done - optim.warmup_steps) / (steps - optim.warmup_steps))) / 2
        share = (done - optim.warmup_steps) / (steps - 1 - optim.warmup_steps)
        return optim.lr + share * (optim.lr_end - optim.lr)

    def train(self, parts):
        """Logged values by step."""
        trained = [*self.bart.parameters(), *self.bridge.values()]
        optimizer = torch.optim.AdamW(trained, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.3)
        logged = {}
        for step, rows in zip(range(1, self.config.train.steps + 1), self.batches(parts["train"]), strict=False):
            optimizer.param_groups[0]["lr"] = self.rate(step - 1)
            total, count = self.loss(rows, 0.2)
            optimizer.zero_grad()
            (total / count).backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, 0.2)
            assert norm > 0.2, "nothing is clipped"
            optimizer.step()
            logged[step] = {"loss/eeg/0": (total / count).item(), "grad_norm/eeg/0": norm.item()}
            if step % self.config.train.eval_every == 0:
                with torch.no_grad():
                    total, count = self.loss(parts["dev"], 0.0)
                logged[step]["dev_loss/eeg/0"] = (total / count).item()
        return logged


def test_losses_and_parameters_are_those_of_pytorch(trained):
    study, before, after, lines = trained
    assert [len(study.split.parts[name]) % 8 for name in ("train", "dev")] == [6, 2]
    oracle = Oracle(study, before)
    expected = oracle.train(study.split.parts)
    found = {}
    for line in lines:
        found.setdefault(line["step"], {}).update(line)
    for step, values in expected.items():
        for name, value in values.items():
            assert found[step][name] == pytest.approx(value, rel=1e-5), f"{name} of step {step}"
    theirs = {**dict(oracle.bart.named_parameters()), **oracle.bridge}
    for name, tensor in after.items():
        if name.endswith("k_proj.bias") or name not in theirs:  # has no gradient but rounding, which Adam blows up
            continue
        np.testing.assert_allclose(tensor, theirs[name].detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
        assert not np.array_equal(tensor, before[name]), name
