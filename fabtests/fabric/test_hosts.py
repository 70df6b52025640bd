# SPDX-License-Identifier: BSD-2-Clause
"""Reliable datagrams between hosts, which are two network namespaces here: libfabric's provider tcp carries them between those, and the one provider
`vma` is all that a program asks for."""

import re
import stat

import pytest

from lib import build, mpi, netns, patience, wire

ENV = {"IPATH_NO_BACKTRACE": "1"}


@pytest.fixture
def env(shm):
    return {**ENV, "FI_PROVIDER_PATH": str(build.provider_dir())}


@pytest.fixture
def hosts():
    made = netns.hosts()
    yield made
    made.remove()


def offers(run, env, host, *args):
    return run.run("fi_info", [build.tool("fi_info"), *args], env=env, netns=host.file).stdout()


def sources(run, env, host):
    said = offers(run, env, host, "-p", "vma", "-t", "FI_EP_RDM", "-v")
    return [address.split(":")[0] for address in re.findall(r"src_addr: fi_sockaddr_in6?://(\S+)", said)]


def test_the_address_that_others_reach(run, env, hosts):
    """One alone, as Open MPI hands out what it finds to the ranks of a host in turns; the default route's, if there is one."""
    assert sources(run, env, hosts.left) == ["10.99.0.1"]
    hosts.left.ip("link", "add", "other", "type", "veth", "peer", "name", "there")
    hosts.left.ip("link", "set", "there", "up")
    hosts.left.ip("addr", "add", "10.98.0.1/24", "dev", "other")
    hosts.left.ip("link", "set", "other", "up")
    assert sources(run, env, hosts.left) == ["10.99.0.1"]
    hosts.left.ip("route", "add", "default", "dev", "other")
    assert sources(run, env, hosts.left) == ["10.98.0.1"]


def test_another_host_is_offered_only_where_it_is_reached(run, env, hosts):
    there = ["-p", "vma", "-t", "FI_EP_RDM", "-n", "10.99.0.2", "-P", "4000"]
    assert "provider: vma" in offers(run, env, hosts.left, *there)
    for without in ({"FI_VMA_NETWORK": "off"}, {"FI_PROVIDER": "vma"}):
        proc = run.start("fi_info off", [build.tool("fi_info"), *there], env={**env, **without}, netns=hosts.left.file)
        proc.fails()


@pytest.mark.parametrize("size, iterations", [(8, 500), (65536, 100), (1048576, 20), ("all", 4)])
@pytest.mark.parametrize("transmit", ["msg", "tagged"])
def test_pingpong(run, env, hosts, transmit, size, iterations):
    args = [build.tool("fi_pingpong"), "-p", "vma", "-e", "rdm", "-m", transmit, "-c", "-I", iterations, "-S", size]
    server = run.start("server", args, env=env, netns=hosts.left.file)
    run.wait_until(lambda: wire.is_listening(hosts.left, 47592), "the server to listen", proc=server)
    run.run("client", [*args, "10.99.0.1"], env=env, netns=hosts.right.file)
    server.ok()


@pytest.fixture
def agent(work, hosts):
    """What mpirun starts its daemon on the other host by: AGENT ADDRESS COMMAND..."""
    path = work / "agent"
    path.write_text("#!/bin/sh\nshift\n"
                    f"mkdir -p {work}/right\nTMPDIR={work}/right\nexport TMPDIR\n"
                    f"exec ip netns exec {hosts.right.name} sh -c \"$*\"\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def mpirun(run, env, hosts, agent, ranks, program, *args):
    each = ranks // 2
    return run.start("mpirun", [build.tool("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "--timeout", int(patience.seconds(100)), "-np", ranks,
                                "--host", f"10.99.0.1:{each},10.99.0.2:{each}", "--mca", "plm_rsh_agent", agent,
                                "--mca", "oob_tcp_if_include", "10.99.0.0/24", "--mca", "pml", "cm", "--mca", "mtl", "ofi",
                                "--mca", "btl", "self", "--mca", "osc", "pt2pt", "--mca", "mtl_ofi_provider_include", "vma",
                                "--mca", "mtl_ofi_verbose", 1, "--mca", "mtl_base_verbose", 1, "-x", "FI_PROVIDER_PATH",
                                "-x", "FI_PROVIDER=vma,tcp", "-x", "FI_VMA_DIR", program, *args],
                     env={**env, "TMPDIR": str(run.work)}, netns=hosts.left.file, timeout=120)


@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi(run, env, hosts, agent, work, ranks):
    """Each rank takes the one provider, for those beside it and for those on the other host."""
    proc = mpirun(run, env, hosts, agent, ranks, mpi.program(work, "mpi_ranks"), 1 << 20, 2)
    proc.ok()
    assert f"{ranks} of {ranks} ranks: all as sent" in proc.stdout()
    assert re.findall(r"mtl:ofi:prov: (\S+)$", proc.output(), re.M) == ["vma"] * ranks


def test_open_mpi_loses_a_rank_on_another_host(run, env, hosts, agent, work):
    proc = mpirun(run, env, hosts, agent, 4, mpi.program(work, "mpi_killed"))
    proc.fails()
    assert "signal 9" in proc.output() and "--timeout" not in proc.output()


def test_ethernet_ports_by_string_and_file(run, env, hosts, tmp_path):
    """An Ethernet port's addresses as strings (FI_ADDR_STR), and a configuration file that admits it or does not."""
    there = ["-p", "vma", "-f", "ethernet", "-t", "FI_EP_DGRAM", "-n", "fi_sockaddr_in://10.99.0.2:7000", "-a", "FI_ADDR_STR", "-v"]
    said = offers(run, env, hosts.left, *there)
    assert "src_addr: fi_sockaddr_in://10.99.0.1:0" in said and "dest_addr: fi_sockaddr_in://10.99.0.2:7000" in said
    interface = re.search(r"domain: 0x0\n +name: (\S+)", said)[1]
    config = tmp_path / "admits"
    config.write_text(f"[port]\ntransport = eth\ninterface = {interface}\n")
    assert "dest_addr: fi_sockaddr_in://10.99.0.2:7000" in offers(run, {**env, "FI_VMA_CONFIG": config}, hosts.left, *there)
    for name, lines in {"another": f"interface = {interface}x", "address": "ip = 10.99.0.3"}.items():
        config = tmp_path / name
        config.write_text(f"[port]\ntransport = eth\n{lines}\n")
        proc = run.start(name, [build.tool("fi_info"), *there], env={**env, "FI_VMA_CONFIG": config}, netns=hosts.left.file)
        proc.fails()
