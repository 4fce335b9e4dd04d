"""Read fMRI in BIDS folders (Narratives): scans, stories and transcripts become volumes with the text of each."""
