"""Cluster statistics, verdict and report: does a model use the EEG?"""

from eeg2text_jax.audit.auditing import audit as audit
from eeg2text_jax.audit.result import AuditResult as AuditResult
