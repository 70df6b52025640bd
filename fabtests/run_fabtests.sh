#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs an installed libfabric fabtests over the provider of this build, and compares with test_configs/vma/expected.txt.
# run_fabtests.sh --help says how; what it does is in lib/fabtests/run.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHONPATH=$here exec python3 -B -m lib.fabtests.run "$@"
