# SPDX-License-Identifier: BSD-2-Clause
"""The rxe lab: two QEMU guests joined by a wire, each with Soft-RoCE on it; doc/labs.md says why it is built so."""

from .errors import LAB_FAILED, TIMED_OUT, LabError, exit_status
from .guest import Command, Guest
from .lab import Lab, missing

__all__ = ["LAB_FAILED", "TIMED_OUT", "Command", "Guest", "Lab", "LabError", "exit_status", "missing"]
