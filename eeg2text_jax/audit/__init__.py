"""Does the model use the EEG? Cluster statistics, verdict and report.

The package has the name of its main function and can be called in its stead: `eeg2text_jax.audit(rows, controls)`. What
it imports for that is imported when it is asked for, so that who needs a part of it does not wait for the rest.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eeg2text_jax.audit.auditing import audit as audit
    from eeg2text_jax.audit.result import AuditResult as AuditResult


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> "AuditResult":
        """See `eeg2text_jax.audit.auditing.audit`."""
        from eeg2text_jax.audit.auditing import audit

        return audit(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "audit":
            from eeg2text_jax.audit.auditing import audit

            return audit
        if name == "AuditResult":
            from eeg2text_jax.audit.result import AuditResult

            return AuditResult
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _CallablePackage
