# SPDX-License-Identifier: BSD-2-Clause
"""Files of seeded random bytes, and what became of them."""

import hashlib
import pathlib
import random


def random_file(path: pathlib.Path, size: int) -> str:
    """Fills the file with seeded random bytes and returns their SHA-256."""
    data = random.Random(size).randbytes(size)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
