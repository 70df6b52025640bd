# SPDX-License-Identifier: BSD-2-Clause
"""libfabric programs over the vma provider: the tools of libfabric, programs of ours, and Open MPI."""

import os
import pathlib
import re

import pytest

from lib import build, mpi, pairing, patience, peers

PROGRAM = "fabric/programs/msg_endpoint"
# Libraries that Debian's libfabric drags in catch SIGSEGV and end with status 1: no crash would be seen.
ENV = {"IPATH_NO_BACKTRACE": "1"}


@pytest.fixture
def env(shm):
    return {**ENV, "FI_PROVIDER_PATH": str(build.provider_dir())}


# ---- what the provider says of itself ----------------------------------------------------------------------------------


def test_library_loads(run):
    """libfabric is silent about a provider that cannot be loaded; this is not."""
    run.run("load", ["/usr/bin/python3", "-c", "import ctypes, sys, os; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)",
                     build.provider_dir() / "libvma-fi.so"])


def fi_info(run, env, *args):
    return run.run("fi_info", [build.tool("fi_info"), *args], env=env).stdout()


def told(block):
    """A block without the name of the protocol where libfabric has none: 2.x has no word for one of a provider's own."""
    return block.replace("protocol: Unknown\n", "") if "api_version: 2." in block else block


def test_fi_info(run, env):
    text = fi_info(run, env, "-p", "vma", "-t", "FI_EP_MSG", "-v")
    blocks = text.split("---\n")[1:]
    assert blocks
    for block in blocks:
        assert "type: FI_EP_MSG" in block and "prov_name: vma\n" in block and "domain: 0x0" in block
        assert re.search(r"caps: \[ .*FI_MSG, FI_RMA", block)
        assert "nknown" not in told(block), block
    assert "127.0.0.1" in text


def test_fi_info_dgram(run, env):
    text = fi_info(run, env, "-p", "vma", "-t", "FI_EP_DGRAM", "-c", "FI_MSG|FI_MULTICAST|FI_SOURCE", "-v")
    blocks = text.split("---\n")[1:]
    assert blocks
    for block in blocks:
        assert "type: FI_EP_DGRAM" in block and "prov_name: vma\n" in block and "max_msg_size: 65507" in block
        assert "FI_MULTICAST" in block and "nknown" not in told(block), block


def test_fi_info_strings(run, env):
    """Addresses as strings, FI_ADDR_STR, and as libfabric itself shows them."""
    asked = ("-p", "vma", "-t", "FI_EP_MSG", "-v", "-n")
    text = fi_info(run, env, *asked, "fi_sockaddr_in://127.0.0.1:7000", "-a", "FI_ADDR_STR")
    assert "addr_format: FI_ADDR_STR" in text and "dest_addrlen: 32" in text
    assert "src_addr: fi_sockaddr_in://127.0.0.1:0" in text and "dest_addr: fi_sockaddr_in://127.0.0.1:7000" in text
    text = fi_info(run, env, *asked, "verbs://localhost:5555", "-a", "FI_SOCKADDR_IN")
    assert "addr_format: FI_SOCKADDR_IN\n" in text and "dest_addr: fi_sockaddr_in://127.0.0.1:5555" in text


@pytest.mark.parametrize("node, why", [
    ("fi_sockaddr_in://127.0.0.1:70000", "port is no number from 0 to 65535"),
    ("fi_shm://127.0.0.1:1", "scheme is none of"),
    ("fi_sockaddr_in6://[::1:7000", "no ] behind"),
    ("verbs://" + "a" * 400 + ":1", "longer than any address"),
], ids=["port", "scheme", "bracket", "length"])
def test_fi_info_refuses_strings(run, env, node, why):
    debug = {**env, "FI_LOG_LEVEL": "debug", "FI_LOG_PROV": "vma"}
    proc = run.start("fi_info", [build.tool("fi_info"), "-p", "vma", "-n", node, "-a", "FI_ADDR_STR"], env=debug)
    proc.fails()
    assert why in proc.stderr(), proc.stderr()


def test_configuration_file(run, env, tmp_path):
    """What FI_VMA_CONFIG says, and CCI's own file where it says nothing."""
    within, card = tmp_path / "within", tmp_path / "card"
    within.write_text("[a]\ntransport = sm\n[b]\ntransport = verbs\nport = 0\n")
    card.write_text("# CCI\n[ib]\ntransport = Verbs\nip = 192.0.2.1\n")
    argv = [build.tool("fi_info"), "-p", "vma", "-d", "local"]
    env = {**env, "FI_LOG_LEVEL": "warn"}
    warned = run.run("ours", argv, env={**env, "FI_VMA_CONFIG": within, "CCI_CONFIG": card})
    assert "provider: vma" in warned.stdout()
    assert f"{within}:5: \"port\": \"0\" is not a port" in warned.stderr()
    proc = run.start("cci", argv, env={**env, "CCI_CONFIG": card})
    proc.fails()
    assert "provider: vma" not in proc.stdout()
    missing = run.start("missing", argv, env={**env, "CCI_CONFIG": tmp_path / "missing"})
    missing.fails()
    assert "missing: it can't be read as a file (No such file or directory)" in missing.stderr()


def test_fi_info_lists_it(run, env):
    assert re.search(r"^vma:$", fi_info(run, env, "-l"), re.M)
    assert "FI_VMA_DIR" in fi_info(run, env, "-e")


@pytest.mark.parametrize("hints, offered", [
    (["-t", "FI_EP_MSG", "-c", "FI_MSG|FI_RMA"], True),
    (["-t", "FI_EP_MSG", "-c", "FI_TAGGED"], False),
    (["-t", "FI_EP_MSG", "-d", "local"], True),
    (["-t", "FI_EP_MSG", "-d", "no-such-domain"], False),
    (["-t", "FI_EP_MSG", "-a", "FI_SOCKADDR_IN6"], True),
    (["-t", "FI_EP_MSG", "-a", "FI_ADDR_PSMX2"], False),
    (["-t", "FI_EP_RDM"], True),
    (["-t", "FI_EP_RDM", "-c", "FI_TAGGED|FI_RMA|FI_ATOMIC|FI_DIRECTED_RECV"], True),
    (["-t", "FI_EP_RDM", "-c", "FI_VARIABLE_MSG"], False),
], ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_hints(run, env, hints, offered):
    proc = run.start("fi_info", [build.tool("fi_info"), "-p", "vma", *hints], env=env)
    if offered:
        assert re.match(r"provider: vma$", proc.ok().stdout(), re.M)  # itself, and no layer over it
    else:
        proc.fails()
        assert "provider: vma" not in proc.stdout()


# ---- fi_pingpong -------------------------------------------------------------------------------------------------------


def pingpong(run, port, env, *args, iterations):
    argv = [build.tool("fi_pingpong"), "-I", iterations, "-c", *args]
    server = run.start("server", [*argv, "-B", port], env=env)
    run.wait_port(port, server)
    client = run.start("client", [*argv, "-P", port, "127.0.0.1"], env=env)
    return server, client


# Both sides spin: on two processors that others use too, a transfer may take milliseconds. So there are few.


@pytest.mark.parametrize("size, iterations", [(64, 500), (65536, 100), ("all", 4)])
def test_pingpong_msg(run, port, env, size, iterations):
    server, client = pingpong(run, port, env, "-p", "vma", "-e", "msg", "-S", size, iterations=iterations)
    client.ok()
    server.ok()
    sizes = re.findall(r"^(\S+)\s+\d", client.stdout(), re.M)
    assert len(sizes) >= (1 if size != "all" else 10), client.stdout()


def test_a_layer_that_is_named(run, env):
    """By a program, and by the environment, which can't hold the name of a layer over another."""
    by_name = run.run("by name", [build.tool("fi_info"), "-p", "vma;ofi_rxm", "-t", "FI_EP_RDM"], env=env)
    assert re.match(r"provider: vma;ofi_rxm$", by_name.stdout(), re.M)
    by_both = run.run("by both", [build.tool("fi_info"), "-t", "FI_EP_RDM"], env={**env, "FI_PROVIDER": "vma,ofi_rxm"})
    assert re.match(r"provider: vma;ofi_rxm$", by_both.stdout(), re.M)


@pytest.mark.parametrize("size, iterations", [(8, 500), (65536, 100), (1048576, 20), ("all", 4)])
@pytest.mark.parametrize("transmit", ["msg", "tagged"])
def test_pingpong_rdm(run, port, env, transmit, size, iterations):
    server, client = pingpong(run, port, env, "-p", "vma", "-e", "rdm", "-m", transmit, "-S", size, iterations=iterations)
    client.ok()
    server.ok()


@pytest.mark.parametrize("size", [64, 65536, 1048576])
@pytest.mark.parametrize("transmit", ["msg", "tagged"])
def test_pingpong_rxm(run, port, env, transmit, size):
    server, client = pingpong(run, port, env, "-p", "vma;ofi_rxm", "-e", "rdm", "-m", transmit, "-S", size,
                              iterations=20)
    client.ok()
    server.ok()
    assert re.search(r"^\S+\s+20\s", client.stdout(), re.M), client.stdout()


@pytest.mark.parametrize("size, iterations", [(64, 500), (65507, 20), ("all", 4)])
def test_pingpong_dgram(run, port, env, size, iterations):
    server, client = pingpong(run, port, env, "-p", "vma", "-e", "dgram", "-S", size, iterations=iterations)
    client.ok()
    server.ok()
    assert re.findall(rf"^\S+\s+{iterations}\s", client.stdout(), re.M), client.stdout()


@pytest.mark.parametrize("size", [64, 65536])
def test_pingpong_rxd(run, port, env, size):
    server, client = pingpong(run, port, env, "-p", "vma;ofi_rxd", "-e", "rdm", "-S", size, iterations=20)
    client.ok()
    server.ok()
    assert re.search(r"^\S+\s+20\s", client.stdout(), re.M), client.stdout()


@pytest.mark.parametrize("victim", ["server", "client"])
def test_pingpong_peer_is_killed(run, port, env, victim):
    procs = dict(zip(("server", "client"), pingpong(run, port, env, "-p", "vma", "-e", "msg", "-S", "1024",
                                                    iterations=100_000_000)))
    run.wait_until(lambda: has_names(run.shm) and procs["client"].alive(), "endpoints")
    # In mid-transfer: both have used some processor time.
    run.wait_until(lambda: all(cpu_seconds(p) > 0.3 for p in procs.values()), "the ping-pong to run")
    procs.pop(victim).kill()
    (survivor,) = procs.values()
    survivor.may_fail = True
    survivor.wait(patience.USUAL)


def has_names(shm):
    return any(shm.iterdir())


def cpu_seconds(proc) -> float:
    try:
        fields = pathlib.Path(f"/proc/{proc.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100


# ---- programs of ours --------------------------------------------------------------------------------------------------


def endpoints(run, env, scenario, waiting="spin"):
    server, client = peers.run_both(run, pairing.KERNEL, PROGRAM, scenario, waiting, env=env)
    assert "done" in server.stdout() and "done" in client.stdout()


@pytest.mark.parametrize("scenario", ["connection_data", "reject", "nobody_listens", "forbidden_memory", "short_receive",
                                      "peer_ends"])
def test_endpoint(run, env, scenario):
    endpoints(run, env, scenario)


@pytest.mark.parametrize("waiting", ["spin", "sread", "fd"])
@pytest.mark.parametrize("scenario", ["messages", "remote_memory", "overload"])
def test_endpoint_waiting(run, env, scenario, waiting):
    endpoints(run, env, scenario, waiting)


@pytest.mark.parametrize("waiting", ["spin", "sread"])
def test_peer_is_killed(run, env, waiting):
    server, client = peers.start(run, pairing.KERNEL, PROGRAM, "peer_is_killed", waiting, env=env)
    client.wait_output("streaming")
    run.wait_until(lambda: cpu_seconds(server) > 0.3, "messages")
    client.kill()
    assert re.search(r"^[1-9]\d* messages, then the end", server.ok().stdout(), re.M)


# ---- MPI ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mpi_ranks(work):
    return mpi.program(work, "mpi_ranks")


@pytest.fixture
def mpi_windows(work):
    return mpi.program(work, "mpi_windows")


def mpirun(run, env, program, ranks, mca, variables):
    """On two processors, however many ranks. All that was said."""
    processors = ",".join(str(n) for n in sorted(os.sched_getaffinity(0))[:2])
    proc = run.run("mpirun", [build.tool("taskset"), "-c", processors, build.tool("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe",
                              "--timeout", int(patience.seconds(100)), "-np", ranks, *(word for variable in variables for word in ("-x", variable)),
                              *(word for name, value in mca.items() for word in ("--mca", name, value)), program],
                   env={**env, "TMPDIR": str(run.work)}, timeout=120)
    assert f"{ranks} of {ranks} ranks: all as sent" in proc.stdout()
    return proc.output()


@pytest.mark.parametrize("include", ["vma", "vma;ofi_rxm"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi(run, env, mpi_ranks, ranks, include):
    """Nothing but the provider can carry a message: `btl self` reaches no other rank, and `osc pt2pt` makes messages of windows. What was chosen
    each rank says in the stream of mtl_ofi_verbose; mtl_base_verbose has only the domain's name."""
    mca = {"pml": "cm", "mtl": "ofi", "btl": "self", "osc": "pt2pt", "mtl_ofi_provider_include": include, "mtl_ofi_verbose": 1,
           "mtl_base_verbose": 1}
    said = mpirun(run, env, mpi_ranks, ranks, mca, ["FI_PROVIDER_PATH", "FI_PROVIDER=" + include.replace(";", ",")])
    chosen = re.findall(r"mtl:ofi:prov: (\S+)$", said, re.M)
    assert len(chosen) == ranks and set(chosen) == {include}, f"Open MPI took {chosen}"
    assert len(re.findall(r"mtl:ofi:provider: local$", said, re.M)) == ranks


@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi_windows(run, env, mpi_windows, ranks):
    """One-sided: writes, reads and atomics of the provider, as `osc rdma` has no other transport than `btl ofi` between ranks."""
    mca = {"pml": "cm", "mtl": "ofi", "btl": "self,ofi", "osc": "rdma", "mtl_ofi_provider_include": "vma", "btl_ofi_provider_include": "vma",
           "btl_base_verbose": 20}
    said = mpirun(run, env, mpi_windows, ranks, mca, ["FI_PROVIDER_PATH", "FI_PROVIDER=vma"])
    assert len(re.findall(r"init of component ofi returned success", said)) == ranks


def test_open_mpi_loses_a_rank(run, env, work):
    """One that is killed ends the others, which would wait for it."""
    program = mpi.program(work, "mpi_killed")
    processors = ",".join(str(n) for n in sorted(os.sched_getaffinity(0))[:2])
    proc = run.start("mpirun", [build.tool("taskset"), "-c", processors, build.tool("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe",
                                "--timeout", int(patience.seconds(100)), "-np", 4, "-x", "FI_PROVIDER_PATH", "-x", "FI_PROVIDER=vma", "--mca", "pml", "cm", "--mca", "mtl",
                                "ofi", "--mca", "btl", "self", "--mca", "osc", "pt2pt", program],
                     env={**env, "TMPDIR": str(run.work)}, timeout=120)
    proc.fails()
    assert "signal 9" in proc.output() and "--timeout" not in proc.output()


def test_open_mpi_is_not_asked(run, env, mpi_ranks):
    """Where libfabric finds the provider, Open MPI goes on with what it has for one host."""
    said = mpirun(run, env, mpi_ranks, 2, {"pml_base_verbose": 10, "mtl_ofi_verbose": 1}, ["FI_PROVIDER_PATH"])
    assert re.findall(r"selected (\w+) best priority", said) == ["ob1", "ob1"]
    assert "mtl:ofi:prov: vma" not in said
