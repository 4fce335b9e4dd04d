"""EEG encoder, bridge and encoder-decoder backbones."""

import pkgutil

from eeg2text_jax import pretrained

# A backbone is a module here together with a table of names of the same name in `pretrained/`.
BACKBONES = tuple(
    sorted(
        {module.name for module in pkgutil.iter_modules(__path__)}
        & {module.name for module in pkgutil.iter_modules(pretrained.__path__)}
    )
)
