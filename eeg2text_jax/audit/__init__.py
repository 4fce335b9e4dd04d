"""Does the model use the EEG? Cluster statistics, verdict and report.

The package has the name of its main function, `auditing.audit`, and can be called in its stead:
`eeg2text_jax.audit(eeg, {"noise": noise})`.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """See `eeg2text_jax.audit.auditing.audit`."""
        from eeg2text_jax.audit.auditing import audit

        return audit(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
