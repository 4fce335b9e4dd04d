"""A page in the browser that judges files of decoded text: `eeg2text app`."""
