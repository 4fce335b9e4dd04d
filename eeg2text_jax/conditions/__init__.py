"""The names of EEG and its controls; what each feeds is in `condition.py`."""

CONDITIONS = (
    "eeg",
    "noise",
    "noise_redrawn",
    "noise_uniform",
    "zero",
    "shuffled",
    "time_reversed",
    "phase_randomized",
    "subject_mean",
    "length_only",
    "label_shuffle",
    "prompt_only",
    "clock",
    "neighbor",
)
TRAINING_ONLY = frozenset({"label_shuffle"})  # they change what a model is trained on
NEAREST = "nearest_in_time"  # an evaluation without a model: the text of the training sample nearest in time
