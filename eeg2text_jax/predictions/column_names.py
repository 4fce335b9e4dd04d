"""Names of columns in published files: references, predictions, conditions and others."""

import re
from collections.abc import Iterable

from eeg2text_jax.predictions.foreign import UNKNOWN

# reference and prediction as published files name them; names are compared in lower case with `_` for space and `-`
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
# where no pair fits: the only column of the one list and the only one of the other
REFERENCE_NAMES = (
    *dict.fromkeys(reference for reference, _ in PAIRS if reference not in ("label", "text", "labels")),
    *("target_string", "target_sentence", "true_sentence", "true", "gt", "gold", "groundtruth", "ground_truth_text"),
    *("reference_text", "reference_sentence", "ref", "references", "refs", "targets", "ground_truths", "truths"),
    *("original", "original_text", "original_sentence", "actual", "actual_text", "expected", "expected_text", "y_true"),
)
# names that a reference has, and other columns, too: taken where nothing else can be the reference
MAYBE_REFERENCES = ("label", "labels", "text", "transcript", "transcription", "caption")
PREDICTION_NAMES = (
    *dict.fromkeys(prediction for _, prediction in PAIRS),
    *("predicted_string", "predicted_sentence", "predicted", "pred_sentence", "pred_string", "predictions", "preds"),
    *("hyp", "hyps", "hypotheses", "generated", "generated_sentence", "generation", "generations", "decoded"),
    *("decoded_text", "decoded_sentence", "output", "outputs", "output_text", "model_output", "model_prediction"),
    *("hypothesis_text", "reconstructed", "reconstruction", "y_pred"),
)
# columns of phonemes, read where no column holds text
PHONEMES = (
    ("target_phonemes", "true_phonemes", "reference_phonemes", "ref_phonemes", "gt_phonemes", "phonemes"),
    ("predicted_phonemes", "pred_phonemes", "decoded_phonemes", "hyp_phonemes", "prediction_phonemes"),
)
# columns that hold the predictions under one condition each
CONDITION_NAMES = {
    "real_eeg": "eeg",
    "eeg": "eeg",
    "shuffled_eeg": "shuffled",
    "noise_eeg": "noise",
    "random_eeg": "noise",
    "noise": "noise",
    "zero_eeg": "zero",
}
CONDITION_AFFIXES = {
    **CONDITION_NAMES,
    **{name: name for name in ("shuffled", "zero")},
    "real": "eeg",
    "random": "noise",
}
ABOUT_NAMES = {
    **dict.fromkeys(("subject", "subject_id", "subject_name", "subj", "participant", "participant_id"), "subject"),
    **dict.fromkeys(("subjectid", "sub", "sub_id", "participantid", "pid"), "subject"),
    **dict.fromkeys(("task", "task_name", "task_id", "task_key", "raw_task_key", "raw_task", "dataset"), "task"),
    **dict.fromkeys(("dataset_name", "data_set", "corpus"), "task"),
    # what the encoder was fed, row by row: used where the column names few conditions, see `foreign.complete`
    **dict.fromkeys(("condition", "input", "input_type", "modality", "arm"), "condition"),
    **dict.fromkeys(("teacher_forcing", "teacher_forced", "is_teacher_forced", "tf", "with_tf", "use_tf"), "forced"),
    **dict.fromkeys(("decoding", "decoding_mode", "generation_mode", "inference_mode"), "decoding"),
    **dict.fromkeys(("split", "subset", "partition", "data_split"), "split"),
    **{name: name for name in ("sentence_id", "sample_id", "train_condition", "eval_condition", "seed", "mode")},
}
TELLING = ("subject", "task", "sentence_id", "sample_id", "train_condition", "eval_condition", "seed", "mode")
# the mode as a beginning or an end of a column's name
MODE_AFFIXES = (
    ("free_running", re.compile(r"_?\(?(?:w/o_?tf|(?:without|wo|no)_tf|free(?:_running)?)\)?$|^free_(?:running_)?")),
    (
        "teacher_forced",
        re.compile(r"_?\(?(?:w/_?tf|(?:with|w)_tf|tf|teacher_forc(?:ed|ing))\)?$|^(?:tf|teacher_forced)_"),
    ),
)


def normalised(names: Iterable[str]) -> list[str]:
    return [re.sub(r"[\s\-]+", "_", name.strip().lower()) for name in names]


def condition_of(name: str) -> str:
    """Return the condition in the name of a column of predictions (`noise_eeg`, `pred_noise`, `eeg_pred`), or ""."""
    if name in CONDITION_NAMES:
        return CONDITION_NAMES[name]
    for end, condition in CONDITION_AFFIXES.items():
        rest = name.removesuffix(f"_{end}") if name.endswith(f"_{end}") else name.removeprefix(f"{end}_")
        if rest != name and rest in PREDICTION_NAMES:
            return condition
    return ""


def split_mode(name: str) -> tuple[str, str]:
    """Split a column's name into the name without its mode, and the mode."""
    for mode, affix in MODE_AFFIXES:
        base = affix.sub("", name)
        if base != name and (base in PREDICTION_NAMES or condition_of(base)):
            return base, mode
    return name, UNKNOWN


def known(names: Iterable[str]) -> set[str]:
    bases = {split_mode(name)[0] for name in names}
    fed = {base for base in bases if condition_of(base)}
    pairs = {name for pair in PAIRS for name in pair}
    abouts = {name for name, field in ABOUT_NAMES.items() if field in TELLING}  # the others are common words
    return {*REFERENCE_NAMES, *PREDICTION_NAMES, *pairs, *PHONEMES[0], *PHONEMES[1], *abouts} & bases | fed


def knows(names: Iterable[str]) -> bool:
    """Return whether the names are a header: at least two are known."""
    return len(known(names)) >= 2
