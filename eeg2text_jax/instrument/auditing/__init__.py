"""Does the model use the EEG? Predictions under EEG and controls become statistics and one verdict."""
