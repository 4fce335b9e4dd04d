"""fMRI: BIDS folders of images, and the words of stories."""
