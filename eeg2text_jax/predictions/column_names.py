"""Usual names of columns in published files: references, predictions, conditions and other fields.

Names are compared in the form of `normalize_names`: lower case, `_` for spaces and hyphens.
"""

import itertools
import re
from collections.abc import Iterable

from eeg2text_jax.predictions.foreign import UNKNOWN

# Names of reference and prediction that occur together.
PAIRS = (
    ("target_text", "predicted_text"),
    ("sentence", "prediction"),
    ("ground_truth", "prediction"),
    ("true_text", "llm_pred"),
    ("truth", "pred"),
    ("expected_caption", "generated_caption"),
    ("reference_caption", "generated_caption"),
    ("input_text", "generated_text"),
    ("reference", "prediction"),
    ("target", "prediction"),
    ("reference", "hypothesis"),
    ("label", "predict"),
    ("text", "pred_text"),
    ("labels", "response"),
)
# If no pair fits, a file must have one column of REFERENCE_NAMES and one of PREDICTION_NAMES.
REFERENCE_NAMES = (
    *dict.fromkeys(reference for reference, _ in PAIRS if reference not in ("label", "text", "labels")),
    *("target_string", "target_sentence", "true_sentence", "true", "gt", "gold", "groundtruth", "ground_truth_text"),
    *("reference_text", "reference_sentence", "ref", "references", "refs", "targets", "ground_truths", "truths"),
    *("original", "original_text", "original_sentence", "actual", "actual_text", "expected", "expected_text", "y_true"),
)
# Ambiguous names, which count as the reference only if no column has one of REFERENCE_NAMES.
MAYBE_REFERENCES = ("label", "labels", "text", "transcript", "transcription", "caption")
PREDICTION_NAMES = (
    *dict.fromkeys(prediction for _, prediction in PAIRS),
    *("predicted_string", "predicted_sentence", "predicted", "pred_sentence", "pred_string", "predictions", "preds"),
    *("hyp", "hyps", "hypotheses", "generated", "generated_sentence", "generation", "generations", "decoded"),
    *("decoded_text", "decoded_sentence", "output", "outputs", "output_text", "model_output", "model_prediction"),
    *("hypothesis_text", "reconstructed", "reconstruction", "y_pred"),
)
# Names of columns of phonemes, which are used only if no column of text has a known name.
PHONEMES = (
    ("target_phonemes", "true_phonemes", "reference_phonemes", "ref_phonemes", "gt_phonemes", "phonemes"),
    ("predicted_phonemes", "pred_phonemes", "decoded_phonemes", "hyp_phonemes", "prediction_phonemes"),
)
# Names of columns with the predictions under one condition -> the condition.
CONDITION_NAMES = {
    **dict.fromkeys(("real_eeg", "eeg"), "eeg"),
    **dict.fromkeys(("noise_eeg", "random_eeg", "noise"), "noise"),
    **{"shuffled_eeg": "shuffled", "zero_eeg": "zero"},
}
CONDITION_AFFIXES = {**CONDITION_NAMES, "shuffled": "shuffled", "zero": "zero", "real": "eeg", "random": "noise"}
# Names of other columns -> the field of `ForeignRow.about`.
ABOUT_NAMES = {
    **dict.fromkeys(("subject", "subject_id", "subject_name", "subj", "participant", "participant_id"), "subject"),
    **dict.fromkeys(("subjectid", "sub", "sub_id", "participantid", "pid"), "subject"),
    **dict.fromkeys(("task", "task_name", "task_id", "task_key", "raw_task_key", "raw_task", "dataset"), "task"),
    **dict.fromkeys(("dataset_name", "data_set", "corpus"), "task"),
    # a column that names the encoder's input; used only if it has few distinct values, see `foreign.complete`
    **dict.fromkeys(("condition", "input", "input_type", "modality", "arm"), "condition"),
    **dict.fromkeys(("teacher_forcing", "teacher_forced", "is_teacher_forced", "tf", "with_tf", "use_tf"), "forced"),
    **dict.fromkeys(("decoding", "decoding_mode", "generation_mode", "inference_mode"), "decoding"),
    **dict.fromkeys(("split", "subset", "partition", "data_split"), "split"),
    **{name: name for name in ("sentence_id", "sample_id", "train_condition", "eval_condition", "seed", "mode")},
}
# Names by which a header is recognised, without the names of conditions, decoding and splits, which are common words.
USUAL = {*REFERENCE_NAMES, *PREDICTION_NAMES, *itertools.chain(*PAIRS, *PHONEMES)}
USUAL |= {name for name, field in ABOUT_NAMES.items() if field not in ("condition", "forced", "decoding", "split")}
# Prefixes and suffixes of a column's name that state the mode of its predictions.
MODE_AFFIXES = (
    ("free_running", re.compile(r"_?\(?(?:w/o_?tf|(?:without|wo|no)_tf|free(?:_running)?)\)?$|^free_(?:running_)?")),
    (
        "teacher_forced",
        re.compile(r"_?\(?(?:w/_?tf|(?:with|w)_tf|tf|teacher_forc(?:ed|ing))\)?$|^(?:tf|teacher_forced)_"),
    ),
)


def normalize_names(names: Iterable[str]) -> list[str]:
    """Return names in lower case with `_` for spaces and hyphens."""
    return [re.sub(r"[\s\-]+", "_", name.strip().lower()) for name in names]


def condition_of(name: str) -> str:
    """Return the condition that a column's name states (`pred_noise`: "noise", `eeg_pred`: "eeg"), or "" if none."""
    if name in CONDITION_NAMES:
        return CONDITION_NAMES[name]
    for end, condition in CONDITION_AFFIXES.items():
        rest = name.removesuffix(f"_{end}") if name.endswith(f"_{end}") else name.removeprefix(f"{end}_")
        if rest != name and rest in PREDICTION_NAMES:
            return condition
    return ""


def split_mode(name: str) -> tuple[str, str]:
    """Split a column's name such as `pred_tf` into its base and its mode ("unknown" if the name states none)."""
    for mode, affix in MODE_AFFIXES:
        base = affix.sub("", name)
        if base != name and (base in PREDICTION_NAMES or condition_of(base)):
            return base, mode
    return name, UNKNOWN


def known_names(names: Iterable[str]) -> set[str]:
    """Return the usual names of columns among `names`, after the removal of a prefix or suffix for the mode."""
    bases = {split_mode(name)[0] for name in names}
    return {base for base in bases if base in USUAL or condition_of(base)}


def is_header(names: Iterable[str]) -> bool:
    """Return whether two or more of the names are usual names of columns."""
    return len(known_names(names)) >= 2
