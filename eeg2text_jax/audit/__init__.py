"""Does the model use the EEG? Cluster statistics, verdict and report.

The package has the name of its main function and can be called in its stead: `eeg2text_jax.audit(rows, controls)`.
"""

import sys
from types import ModuleType
from typing import Any

from eeg2text_jax.audit.auditing import audit as audit
from eeg2text_jax.audit.result import AuditResult as AuditResult


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> AuditResult:
        """See `eeg2text_jax.audit.auditing.audit`."""
        return audit(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
