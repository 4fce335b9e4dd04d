"""The names of the conditions: EEG and its controls; `condition.py` defines the encoder's input under each."""

CONDITIONS = (
    "eeg", "noise", "noise_redrawn", "noise_uniform", "noise_spectrum", "zero", "shuffled", "time_reversed",
    "phase_randomized", "subject_mean", "length_only", "label_shuffle", "prompt_only", "clock", "neighbor",
)  # fmt: skip
FED = ("subject", "donor", "clock", "neighbor")  # fields of a batch from which conditions make their input
TRAINING_ONLY = frozenset({"label_shuffle"})  # conditions that change texts, not the encoder's input
# Evaluations without a model: the text of the training sample nearest in time, or at its place in another recording.
NEAREST, SAME_PLACE = "nearest_in_time", "same_place"
COPIES = (NEAREST, SAME_PLACE)
