"""Convert raw EEG that MNE reads, with events that mark sentences, to band power of words or windows."""
