"""Parts that every backbone is made of, the EEG encoder, and the model as pure functions of its parameters."""
