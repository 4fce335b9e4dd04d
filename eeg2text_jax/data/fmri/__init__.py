"""Convert fMRI of story listening in BIDS folders (Narratives) to windows of volumes with their text."""
