"""Raw EEG of any file that MNE reads, and BIDS folders."""
