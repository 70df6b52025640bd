# SPDX-License-Identifier: BSD-2-Clause
"""Open MPI with ranks on two hosts, which reach each other by nothing but the provider: what arrives is right, it came
over the RDMA device, and a rank that is killed ends the others."""

import re

import pytest

from lib import mpi, patience, rxe as rxe_lib

# What Open MPI is to take, the domain that it is to find there, and what it needs for that: of the provider's domains
# the first is `local`, which reaches no other host by ofi_rxm.
WAYS = {"vma": ("local", {}), "vma;ofi_rxm": (rxe_lib.DOMAIN, {"FI_VMA_DEVICE": rxe_lib.DOMAIN})}

# Nothing else can carry a message: `btl self` reaches no other rank, `osc pt2pt` makes messages of windows. A rank that
# waits lets others run, as a guest has one processor.
MCA = {"pml": "cm", "mtl": "ofi", "btl": "self", "osc": "pt2pt", "mtl_ofi_verbose": 1, "mtl_base_verbose": 1,
       "mpi_yield_when_idle": 1, "oob_tcp_if_include": "eth0", "plm_rsh_agent": "/bin/echo"}

PACKET = 1024  # bytes at most
LONG_ONE = 400_000  # what mpi_windows puts into the next one's window


@pytest.fixture
def hosts(rxe, vma_on_rxe):
    """The lab. What Open MPI starts has process groups of its own, so a command that is killed would leave it."""
    yield rxe
    for guest in rxe.guests:
        guest.start("kill -9 -1").wait()


def start(lab, way: str, ranks: int, argv, mca=()):
    """mpirun on the server, with every other rank on the client. There is no ssh between them: with `echo` for it
    mpirun says what is to be run there, and waits for that to call. Returns both commands."""
    half = ranks // 2
    variables = {**rxe_lib.fabric_env(), "FI_PROVIDER": way.replace(";", ","), **WAYS[way][1]}
    mca = {**MCA, "mtl_ofi_provider_include": way, **dict(mca)}
    options = ["--allow-run-as-root", "--timeout", int(patience.seconds(rxe_lib.LIMIT)) - 10, "--map-by", "node", "--bind-to", "none",
               "--host", f"{lab.server.address}:{half},{lab.client.address}:{half}", "-np", ranks]
    options += [word for name in variables for word in ("-x", name)]
    options += [word for name, value in mca.items() for word in ("--mca", name, value)]
    run = lab.server.start(["mpirun.openmpi", *options, *argv], env=variables)

    def told():
        return re.search(rf"^{re.escape(lab.client.address)} (.*)\n", run.stdout(), re.MULTILINE)

    lab.server.wait_until(lambda: told() or not run.alive(), rxe_lib.LIMIT)
    assert told(), run.output()
    return run, lab.client.start(told()[1], name="orted")


def all_right(lab, way: str, ranks: int, size: int, argv, mca=()) -> str:
    """Runs it to its end. Each host sends at least `size` bytes to the other. What was said."""
    before = {guest: packets(guest) for guest in lab.guests}
    run, daemon = start(lab, way, ranks, argv, mca)
    run.ok(rxe_lib.LIMIT)
    daemon.ok()
    said = run.output()
    assert f"{ranks} of {ranks} ranks: all as sent" in said, said
    for guest in lab.guests:
        # Each rank says what it took, and its host's name before that.
        for name, wanted in (("prov", way), ("provider", WAYS[way][0])):
            taken = re.findall(rf"^\[{guest.role}:\d+\] .*mtl:ofi:{name}: (\S+)$", said, re.MULTILINE)
            assert taken == [wanted] * (ranks // 2), said
        sent = packets(guest) - before[guest]
        print(f"{guest.role}: {ranks // 2} ranks over {way}, {sent} packets of {rxe_lib.DOMAIN}")
        assert sent >= size / PACKET
    return said


def packets(guest) -> int:
    """That the RDMA device has sent."""
    return int(guest.read(f"/sys/class/infiniband/{rxe_lib.DOMAIN}/ports/1/hw_counters/sent_pkts"))


@pytest.mark.parametrize("ranks, largest", [(2, 1 << 20), (4, 1 << 16)])
@pytest.mark.parametrize("way", WAYS)
def test_messages(hosts, work, way, ranks, largest):
    """Of all sizes up to that, by tag, from anybody; collective operations; windows that are made of messages."""
    all_right(hosts, way, ranks, 2 * largest, [mpi.program(work, "mpi_ranks"), largest, 1])


@pytest.mark.parametrize("way", WAYS)
def test_windows(hosts, work, way):
    """By the provider's writes, reads and atomics, but for ofi_rxm, with which in a name `btl ofi` takes none."""
    native = "ofi_rxm" not in way
    one_sided = {"btl": "self,ofi", "osc": "rdma", "btl_ofi_provider_include": way, "btl_base_verbose": 20}
    said = all_right(hosts, way, 2, LONG_ONE, [mpi.program(work, "mpi_windows"), 100], one_sided if native else {})
    assert said.count("init of component ofi returned success") == (2 if native else 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_is_killed(hosts, work, way):
    """On the host where mpirun is not. The job ends: mpirun hears of that rank's end first, or of another one that could
    no longer send to it. (Which is a race of the two hosts.)"""
    run, daemon = start(hosts, way, 4, [mpi.program(work, "mpi_killed")])
    assert run.wait(rxe_lib.LIMIT) != 0
    killed = rf"process rank 1 with PID \d+ on node {re.escape(hosts.client.address)} exited on signal 9"
    aborted = r"mtl_ofi\.h:\d+:fi_\w+ failed: (Connection (reset by peer|refused)|Transport endpoint is not connected)"
    assert re.search(f"{killed}|{aborted}", run.output()), run.output()
    daemon.wait()
    for guest in hosts.guests:
        assert guest.start(["pgrep", "-x", "mpi_killed"]).wait() == 1, f"ranks are left on the {guest.role}"
