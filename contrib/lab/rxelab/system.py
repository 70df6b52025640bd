# SPDX-License-Identifier: BSD-2-Clause
"""One guest that this machine's own init has booted, with its services, its users and its file system: what /etc/ld.so.preload does
to a whole machine. Whatever it writes is gone with it."""

import pathlib

from . import errors, kernel
from .guest import Guest
from .lab import missing as lab_missing

BOOT_TIMEOUT = 300.0  # seconds; it takes some 25 on two idle processors, which it has to emulate
INIT = pathlib.Path("/lib/systemd/systemd")


def missing() -> str:
    """Why the system cannot be booted here; empty if it can."""
    return lab_missing() or ("" if INIT.exists() else f"{INIT} is not there (Debian: systemd)")


class System(Guest):
    """A context: the guest, whose agent is there from the moment that basic.target is reached."""

    kind, processors = "system", 2

    def __init__(self, library: pathlib.Path | None, *, memory: int = 1280, say=lambda text: None):
        """`library`: the folder of libvma.so and libvma-fi.so, which each program of the guest then has; None for a guest as it is.
        `memory` in MiB."""
        super().__init__("system", 1)
        self.library = str(library) if library else ""
        self._memory, self._say = memory, say

    def __enter__(self) -> "System":
        reason = missing()
        if reason:
            raise errors.LabError(reason)
        try:
            self.boot(kernel.get(self._say), None, self._memory)
            self.wait_ready(BOOT_TIMEOUT)
        except BaseException:
            self.power_off()
            raise
        return self

    def __exit__(self, *_):
        self.power_off()

    def wait_running(self, timeout: float = BOOT_TIMEOUT) -> str:
        """Until all that the machine starts has been started, or has failed: "running", or "degraded"."""
        command = self.start(["systemctl", "is-system-running", "--wait"])
        command.wait(timeout)
        return command.stdout().strip()

    def failed_units(self) -> set[str]:
        return {line.split()[0] for line in
                self.run(["systemctl", "--failed", "--plain", "--no-legend", "--no-pager"]).splitlines() if line.strip()}
