# SPDX-License-Identifier: BSD-2-Clause
"""Fast connections between two hosts: short messages by RDMA write into a ring that the receiver polls."""

import re

from lib import rxe as rxe_lib

FAST = {"FI_VMA_FAST_CONNECTIONS": "8"}


def test_pingpong_uses_the_ring(rxe, vma_on_rxe):
    """And what arrives is right: fi_pingpong compares it."""
    env = rxe_lib.fabric_env() | FAST | {"FI_LOG_LEVEL": "debug", "FI_LOG_PROV": "vma"}
    argv = ["fi_pingpong", "-p", "vma", "-d", rxe_lib.DOMAIN, "-e", "msg", "-I", "500", "-S", "64", "-c"]
    for command in rxe_lib.run_pair(rxe, argv, [*argv, rxe.server.address], env=env):
        said = re.search(r"(\d+) of (\d+) messages sent by the ring, (\d+) received by it", command.output())
        assert said, command.output()
        by_ring, sent, received = map(int, said.groups())
        assert by_ring > sent / 2 and received > sent / 2, said[0]


def test_latency_against_send_and_receive(rxe, vma_on_rxe, capsys):
    """Says what the ratio is: on an emulated processor that others use it is no reason to fail."""
    cases = {"ring": ("vma", FAST), "send/receive": ("vma", {})}
    # A connection that becomes fast uses up first what receives there are in the device: 256 and those of the notice.
    _, said = rxe_lib.compare_latency(rxe, cases, 12, warm_up=350, server_env=FAST)
    with capsys.disabled():
        print(f" {said} ", end="")
