# SPDX-License-Identifier: BSD-2-Clause
"""What surrounds a process: a world of its own, a service manager's hardening."""
