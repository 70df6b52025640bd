# SPDX-License-Identifier: BSD-2-Clause
"""Instructions of a small send on the verbs device, over the simulated NIC, against a loop of bare ibv_post_send(). Counted by
callgrind, so the figures are the same in each run of one build; doc/verbs-device.md has them."""

import re

import pytest

from lib import build

MOST = 1.3  # times the bare loop's
# The same of what is not the device's. The simulated NIC takes some 2000 for one, which flatters the ratio above, a real NIC's driver
# one or two hundred: so this is what a change is seen by. It was 6.0 (with the completion) and 4.1.
MOST_OWN = {"send": 7.5, "inject": 5.2}
DEVICE = ("vma::sim::post_send(", "vma::sim::poll_cq(")


def inclusive(run, profile, function: str) -> int:
    """Instructions of a function and all that it calls."""
    text = run.run("annotate", [build.tool("callgrind_annotate"), "--inclusive=yes", "--threshold=100", profile]).stdout()
    found = [int(line.split()[0].replace(",", "")) for line in text.splitlines() if f":{function}" in line]
    assert found, f"{function} was not called"
    return max(found)  # the others are parts of it that were inlined from headers


def count(run, tmp_path, by: str, what: str):
    """Instructions a send, and how many of them are not the device's."""
    profile = tmp_path / f"callgrind.{by}"
    done = run.run("callgrind", [build.tool("valgrind"), "--tool=callgrind", f"--callgrind-out-file={profile}",
                                 f"--toggle-collect={by}_{what}s", build.program("../prov/vma/test/verbs/post_cost"), by, what])
    collected = re.search(r"Collected : (\d+)", done.stderr())
    assert collected, done.stderr()
    total = int(collected[1])
    sends = int(done.stdout())
    return total / sends, (total - sum(inclusive(run, profile, name) for name in DEVICE)) / sends


@pytest.mark.skipif(build.sanitized(), reason="valgrind does not run what a sanitizer watches")
@pytest.mark.parametrize("what", ["send", "inject"])
def test_small_send(run, tmp_path, what):
    bare, bare_own = count(run, tmp_path, "verbs", what)
    ours, own = count(run, tmp_path, "fi", what)
    print(f"{what}: {ours:.1f} instructions, bare {bare:.1f}, ratio {ours / bare:.3f}; "
          f"without the device's {own:.1f} and {bare_own:.1f}")
    assert 0 < bare_own < bare and bare_own < own < ours
    assert ours / bare <= MOST
    assert own / bare_own <= MOST_OWN[what]
