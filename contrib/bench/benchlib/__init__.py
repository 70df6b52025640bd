# SPDX-License-Identifier: BSD-2-Clause
"""What the benchmarks share: processes, parsers of the tools' output, results, tables and pictures."""
