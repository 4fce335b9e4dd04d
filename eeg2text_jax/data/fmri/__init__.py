"""fMRI in BIDS folders (Narratives): scans, stories, transcripts -> volumes and the text of each."""
