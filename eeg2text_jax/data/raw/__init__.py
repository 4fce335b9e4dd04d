"""Raw recordings that MNE reads, files and BIDS folders, with events -> band power of words or windows."""
