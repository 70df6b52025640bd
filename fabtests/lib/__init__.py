# SPDX-License-Identifier: BSD-2-Clause
"""What the whole-program tests stand on: finding the build, running processes, pairings, logs, shared directories."""
