# SPDX-License-Identifier: BSD-2-Clause
"""Our stack on the raw packets of a simulated NIC that stands between the left host's kernel and the wire, against the kernel
at the other end. What the NIC's rules don't take gets to the left host's kernel, as with a real one."""

import errno
import hashlib
import os
import pathlib
import re
import socket
import struct

import pytest

from lib import build, netns, patience, sim_nic
from lib.tcp import FAMILIES, PORT, echoed, echoing, no_offloads
from lib.wire import LEFT, RIGHT, Asked, inside, set_sysctl, udp_socket, xdp_of
from test_sockets_udp import PROGRAMS, PYTHON, Peer, offload


@pytest.fixture
def hosts(run):
    made = netns.hosts(middle=True)
    for host in (made.left, made.right):  # the NIC's two sides get whole frames with their checksums
        no_offloads(run, host, "tso", "gso")
        set_sysctl(host, "ipv4/icmp_ratelimit", 0)
    yield made
    made.remove()


@pytest.fixture
def sysfs(tmp_path) -> pathlib.Path:
    return sim_nic.make_sysfs(tmp_path)


@pytest.fixture
def nic(hosts, sysfs) -> str:
    """The argument of programs that have the simulated NIC in them."""
    return f"nic=/run/netns/{hosts.middle.name}:{sysfs}"


@pytest.fixture
def start(run, hosts, nic):
    """start(program, argument...): on the left host. Its end is orderly."""
    programs = []

    def started(name, *argv):
        program = Asked(run, hosts.left, name, build.program(f"ether/programs/{name}"), "wire", *argv, nic)
        programs.append(program)
        assert program.next_line() in ("listening", "ready")
        return program

    yield started
    for program in programs:
        program.finish()


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("size", [0, 1448, 8 << 20], ids=str)
def test_kernel_connects(hosts, start, family, left, right, size):
    server = start("tcp_echo", "listen", left, PORT)
    data = os.urandom(size)
    assert echoed(hosts.right, left, data) == hashlib.sha256(data).digest()
    server.close()
    server.proc.ok()
    assert server.next_line().startswith(f"1 connections, {size} bytes")


def test_we_connect(run, hosts, nic):
    with echoing(hosts.right, RIGHT, 10):
        client = run.run("client", [build.program("ether/programs/tcp_echo"), "wire", "connect", LEFT, 30000, RIGHT, PORT,
                                    500_000, 10, nic], netns=hosts.left.file)
    assert client.stdout() == "ok\n"


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_datagrams(hosts, start, family, left, right):
    server = start("udp_echo", left, PORT)
    sock = udp_socket(hosts.right, family)
    with sock:
        for number in range(200):
            data = os.urandom(number * 7)
            sock.sendto(data, (left, PORT))
            assert sock.recvfrom(1 << 16) == (data, (left, PORT) + ((0, 0) if family == socket.AF_INET6 else ()))
    server.close()
    server.proc.ok()
    assert server.next_line() == "200 datagrams"


def test_the_rest_is_the_kernels(hosts, start):
    """Other ports of the same address, and other protocols."""
    start("tcp_echo", "listen", LEFT, PORT)
    with inside(hosts.left):
        listener = socket.create_server((LEFT, PORT + 1))
    with listener:
        listener.settimeout(patience.seconds())
        with inside(hosts.right):
            sock = socket.create_connection((LEFT, PORT + 1), patience.seconds())
        with sock:
            accepted, _address = listener.accept()
            with accepted:
                accepted.sendall(b"the kernel's")
                assert sock.recv(100) == b"the kernel's"
    with inside(hosts.right):
        refused = socket.socket()
    with refused, pytest.raises(ConnectionRefusedError):
        refused.connect((LEFT, PORT + 2))
    datagram = udp_socket(hosts.right)
    with datagram, pytest.raises(ConnectionRefusedError):
        datagram.connect((LEFT, PORT))
        datagram.send(b"not TCP")
        datagram.recv(100)


def test_the_nic_is_pulled_out(run, hosts, start):
    """Its program lives on, and says so once; what comes from then on is the kernel's."""
    server = start("udp_echo", LEFT, PORT)
    with udp_socket(hosts.right) as sock:
        sock.connect((LEFT, PORT))
        sock.send(b"x")
        assert sock.recv(10) == b"x"
        assert server.ask("remove") == "ok"

        def is_the_kernels() -> bool:
            try:
                sock.send(b"y")
                return False
            except ConnectionRefusedError:
                return True

        run.wait_until(is_the_kernels, "the kernel's answer", proc=server.proc)
    server.close()
    server.proc.ok()
    assert server.next_line() == "1 datagrams"
    assert server.proc.stderr().count("new flows are refused") == 1


# ---- through libfabric -------------------------------------------------------------------------------------------------

@pytest.fixture
def machine(run, hosts, sysfs):
    """machine(program, *argv, **env): a program on the left host, whose rdma-core is the simulated NIC."""
    env = {"FI_PROVIDER_PATH": str(build.provider_dir()), **sim_nic.environment(hosts, build.preload().split()[:-1])}

    def started(name, *argv, folder="ether", **more):
        return Asked(run, None, name, build.program(f"{folder}/programs/{name}"), *argv, env={**env, **more},
                     preexec=lambda: sim_nic.enter(hosts, sysfs))

    return started


@pytest.mark.parametrize("kind", ["auto", "raw", "xdp"])
@pytest.mark.parametrize("wait", ["spin", "fd"])
def test_stream_endpoints(hosts, machine, wait, kind):
    """FI_EP_VMA_STREAM on the kind of port that FI_VMA_ETHERNET names; auto is raw packets here."""
    server = machine("stream_echo", wait, "listen", LEFT, PORT, FI_VMA_ETHERNET=kind, FI_LOG_LEVEL="info")
    assert server.next_line() == "listening"
    assert xdp_of(hosts.left) == (kind == "xdp")
    if kind != "xdp":  # with AF_XDP nobody opens the simulated NIC, and it carries nothing
        sizes = [0, 1448, 4 << 20]
        for size in sizes:
            data = os.urandom(size)
            assert echoed(hosts.right, LEFT, data) == hashlib.sha256(data).digest()
    server.close()
    server.proc.ok()
    told = "raw packets of RDMA device sim0, port 1, which computes checksums and cuts TCP segments"
    assert (told in server.proc.stderr()) == (kind != "xdp")


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_datagram_endpoints(run, hosts, machine, family, left, right):
    """FI_EP_DGRAM: whole datagrams by the NIC, fragments by the kernel, and a group."""
    group = "ff15::1:2:3" if family == socket.AF_INET6 else "239.1.2.3"
    for host in (hosts.left, hosts.right):
        with udp_socket(host, family) as probe:
            run.wait_until(lambda probe=probe: reaches(probe, (group, 9)), "the route of groups")
    program = machine("datagram_echo", left, PORT, right, PORT + 1, group, FI_VMA_ETHERNET="raw", FI_LOG_LEVEL="warn")
    assert program.next_line() == "ready"
    sizes = [0, 1, 1452, 3000, 30000]
    with inside(hosts.right):
        index = socket.if_nametoindex("wire")
    with udp_socket(hosts.right, family) as sock:
        sock.bind((right, PORT + 1))
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("@4s4si", bytes(4), bytes(4), index))
        for size in sizes:
            data = os.urandom(size)
            sock.sendto(data, (left, PORT))
            assert sock.recv(1 << 16) == data, size
        for number in range(50):
            data = struct.pack("!I", number)
            sock.sendto(data, (group, PORT))
            assert sock.recv(1 << 16) == data
    program.close()
    program.proc.ok()
    assert program.next_line() == f"{len(sizes) + 50} datagrams"


LIBRARIES = {"librdmacm.so.1", "libmnl.so.0", "libbpf.so.1", "libhwloc.so.15"}


def test_libraries_are_opened_without_a_lock(run, hosts, sysfs, tmp_path):
    """By the thread that loads the provider, which has none: a constructor in another thread's dlopen() may use sockets."""
    opened = tmp_path / "opened"
    env = {**sim_nic.environment(hosts, build.preload().split(), "sim_rdmacm"), "VMA_ETHERNET": "wire", "FI_VMA_ETHERNET": "raw",
           "SIM_DLOPEN_LOG": str(opened), "HWLOC_SYNTHETIC": "node:2 pu:1"}
    proc = run.start("mirror", [PYTHON, PROGRAMS / "udp_mirror.py", "4", LEFT, PORT], vma=True, env=env,
                     preexec=lambda: sim_nic.enter(hosts, sysfs))
    run.wait_until(lambda: "ready" in proc.stdout(), "the mirror", proc=proc)
    peer = Peer(hosts.right, socket.AF_INET, (LEFT, PORT))
    offload(run, peer, proc)
    peer.socket.sendto(b"quit", peer.to)
    proc.ok()
    threads = {}
    for line in opened.read_text(encoding="ascii").splitlines():
        thread, name = line.split(" ", 1)
        threads.setdefault(pathlib.Path(name).name, thread)
    assert threads.keys() >= LIBRARIES
    assert {threads[name] for name in LIBRARIES} == {threads["libvma-fi.so"]} != {str(proc.pid)}


@pytest.fixture
def extra_api(machine):
    """extra_api(scenario, **env): libvma.so on the simulated NIC, which carries from the start."""
    folder = build.build_dir() / "fabtests/ether/programs"
    env = {"LD_PRELOAD": f"{build.preload()} {folder / 'sim_dlopen.so'} {folder / 'sim_rdmacm.so'}", "VMA_ETHERNET": "wire",
           "FI_VMA_ETHERNET": "raw", "VMA_TRACELEVEL": "debug", "VMA_LIFT_AFTER": "8"}
    return lambda scenario, **more: machine("extra_api", scenario, PORT, folder="extra", **{**env, **more})


@pytest.mark.parametrize("scenario", ["udp_zcopy", "tcp_zcopy"])
def test_receiving_without_a_copy(run, hosts, extra_api, scenario):
    """The NIC's frames are lent, and what streams have received."""
    program = build.program("extra/programs/extra_api")
    receiver = extra_api(scenario)
    if scenario == "tcp_zcopy":
        assert receiver.next_line() == "listening"
    sender = run.start("sender", [program, "send" if scenario == "udp_zcopy" else "send_stream", LEFT, PORT],
                       netns=hosts.right.file)
    lent = re.search(r"lent (\d+), copied (\d+)", receiver.proc.ok().stdout())
    sender.stop()
    receiver.finish()
    assert "accelerated: port wire" in receiver.proc.stderr()
    assert lent and (int(lent[1]) == 20000 if scenario == "udp_zcopy" else int(lent[1]) > 0 and int(lent[2]) == 0)


@pytest.mark.parametrize("scenario, told", [("ring", "device wire: interrupts after 33 completions or 65535 us"),
                                            ("own_frames", "of the program's own")])
def test_what_a_ring_is_asked_for(run, hosts, extra_api, scenario, told):
    receiver = extra_api(scenario)
    sender = run.start("sender", [build.program("extra/programs/extra_api"), "send", LEFT, PORT], netns=hosts.right.file)
    receiver.proc.ok()
    sender.stop()
    receiver.finish()
    assert told in receiver.proc.stderr()


def reaches(sock, address) -> bool:
    """False as long as a fresh interface has no way to groups."""
    try:
        sock.sendto(b"", address)
    except OSError as error:
        if error.errno != errno.ENETUNREACH:
            raise
        return False
    return True
