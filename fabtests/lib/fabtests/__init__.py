# SPDX-License-Identifier: BSD-2-Clause
"""run_fabtests.sh: libfabric's own tests run over the provider, what they print read, and held against a table."""
