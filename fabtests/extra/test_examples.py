# SPDX-License-Identifier: BSD-2-Clause
"""The examples of contrib/examples, compiled as a reader would and run; programs of older headers; the library opened by dlopen()."""

import os
import re
import socket
import subprocess

import pytest

from lib import build, expect, patience, ports

EXAMPLES = build.TOP / "contrib" / "examples"
INCLUDE = build.TOP / "include"


@pytest.fixture
def compiled(tmp_path):
    def compile(source, *options):
        program = tmp_path / source.stem
        done = subprocess.run([build.tool(os.environ.get("CC", "cc")), "-Wall", "-Wextra", "-Werror", "-O1", "-I", INCLUDE,
                               source, "-o", program, *options], capture_output=True, text=True, timeout=patience.seconds())
        assert done.returncode == 0, done.stderr
        return str(program)
    return compile


def start(run, program, port, *arguments, tcp=False, **env):
    server = run.start("example", [program, str(port), *map(str, arguments)], vma=True, env={"VMA_LIFT_AFTER": "4", **env})
    run.wait_until(lambda: (ports.is_listening if tcp else ports.is_bound)(port), f"port {port} to be bound", proc=server)
    return server


def send(port, count, content):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for i in range(count):
            s.sendto(content(i), ("127.0.0.1", port))


def test_zcopy_receiver(run, compiled, port):
    """The sender has no library: the kernel brings all of it."""
    server = start(run, compiled(EXAMPLES / "zcopy_receiver.c"), port, 50)
    send(port, 50, lambda i: bytes(100))
    assert "50 datagrams, 0 of them without a copy, 5000 bytes" in server.ok().stdout()


def test_zcopy_receiver_without_a_copy(run, compiled, port):
    server = start(run, compiled(EXAMPLES / "zcopy_receiver.c"), port, 20000)
    sender = run.start("sender", ["/usr/bin/python3", "-c", SENDER, str(port)], vma=True, env={"VMA_LIFT_AFTER": "4"})
    found = re.search(r"20000 datagrams, (\d+) of them without a copy, 20000000 bytes", server.ok().stdout())
    sender.stop()
    assert found and int(found[1]) > 0


SENDER = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for i in range(20):
        s.sendto(bytes(1000), ("127.0.0.1", int(sys.argv[1])))
    time.sleep(0.0002)
"""


def test_callback_filter(run, compiled, port):
    server = start(run, compiled(EXAMPLES / "callback_filter.c"), port, 40)
    run.wait_until(lambda: send(port, 60, lambda i: b"!no" if i % 3 == 0 else b"yes") or server.popen.poll() is not None,
                   "40 to be received")
    assert re.search(r"40 received, [1-9]\d* dropped", server.ok().stdout())


def exchange(s, content):
    s.sendall(content)
    got = b""
    while len(got) < len(content):
        got += s.recv(65536)
    assert got == content


@pytest.mark.parametrize("peer", ["kernel", "vma"])
def test_socketxtreme_echo(run, compiled, port, peer):
    server = start(run, compiled(EXAMPLES / "socketxtreme_echo.c"), port, tcp=True, VMA_SOCKETXTREME="1")
    client = run.run("client", ["/usr/bin/python3", "-c", CLIENT, str(port)], vma=peer == "vma",
                     env={"VMA_LIFT_AFTER": "4"})
    assert "done" in client.stdout()
    text = server.ok().stdout()
    assert text.count("accepted") == 3 and "ended" in text


CLIENT = """
import os, socket, sys
to = ("127.0.0.1", int(sys.argv[1]))
def exchange(s, content):
    s.sendall(content)
    got = b""
    while len(got) < len(content):
        more = s.recv(65536)
        assert more
        got += more
    assert got == content
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(to)
u.settimeout(60 * float(os.environ["FABTESTS_PATIENCE"]))
for i in range(3000):
    u.send(b"%d" % i * (1 + i % 200))
    assert u.recv(65536) == b"%d" % i * (1 + i % 200)
streams = [socket.create_connection(to) for i in range(2)]
for i in range(500):
    for s in streams:
        exchange(s, bytes([i % 256]) * (1 + i * 97 % 30000))
streams[0].close()
exchange(streams[1], b"still there")
last = socket.create_connection(to)
last.sendall(b"quit")
print("done")
"""


# ---- programs of older headers: where the entries stood then ----------------------------------------------------------

FIRST = ["register_recv_callback", "recvfrom_zcopy", "free_packets", "add_conf_rule", "thread_offload", "socketxtreme_poll",
         "get_socket_rings_num", "get_socket_rings_fds", "get_socket_tx_ring_fd", "socketxtreme_free_vma_packets",
         "socketxtreme_ref_vma_buff", "socketxtreme_free_vma_buff", "dump_fd_stats"]
# Up to 9.2 vma_cyclic_buffer_read stood where vma_add_ring_profile has stood since.
ERAS = {
    "8.7": FIRST + ["vma_cyclic_buffer_read", "vma_add_ring_profile"],
    "9.0": FIRST + ["vma_cyclic_buffer_read", "vma_add_ring_profile", "get_socket_network_header",
                    "get_ring_direct_descriptors", "register_memory_on_ring", "deregister_memory_on_ring", "get_mem_info",
                    "vma_modify_ring"],
    "9.8": FIRST + ["vma_add_ring_profile", "get_socket_network_header", "get_ring_direct_descriptors",
                    "register_memory_on_ring", "deregister_memory_on_ring", "vma_modify_ring"],
}

OLD_PROGRAM = """
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct table {
%s
};

static int filter(int fd, size_t n, void *parts, void *info, void *context)
{
    (void)fd, (void)n, (void)parts, (void)info;
    ++*(int *)context;
    return 1;
}

int main(void)
{
    struct table *api = NULL;
    socklen_t size = sizeof(api);
    char room[256];
    int flags = 0, ring = -1, calls = 0;
    struct sockaddr_in here = {.sin_family = AF_INET};
    if (getsockopt(-1, SOL_SOCKET, 2800, &api, &size) != 0 || api == NULL)
        return 2;
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof(here);
    if (bind(fd, (struct sockaddr *)&here, size) != 0 || getsockname(fd, (struct sockaddr *)&here, &size) != 0)
        return 3;
    if (((int (*)(int, void *, void *))api->register_recv_callback)(fd, filter, &calls) != 0)
        return 4;
    sendto(fd, "hello", 5, 0, (struct sockaddr *)&here, sizeof(here));
    if (recv(fd, room, sizeof(room), 0) != 5 || calls != 1)
        return 5;
    ((int (*)(int, void *, void *))api->register_recv_callback)(fd, NULL, NULL);
    sendto(fd, "hello", 5, 0, (struct sockaddr *)&here, sizeof(here));
    if (((int (*)(int, void *, size_t, int *, void *, void *))api->recvfrom_zcopy)(fd, room, sizeof(room), &flags, NULL, NULL) != 5)
        return 6;
    if (memcmp(room, "hello", 5) != 0 || flags != 0)
        return 7;
    if (((int (*)(int, int *, int))api->get_socket_rings_fds)(fd, &ring, 1) != 1 || ring < 0)
        return 8;
    if (((int (*)(int, int))api->dump_fd_stats)(fd, 5) != 0)
        return 9;
    return 0;
}
"""


@pytest.mark.parametrize("era", ERAS)
def test_program_of_an_older_header(run, compiled, tmp_path, era):
    source = tmp_path / "old.c"
    source.write_text(OLD_PROGRAM % "\n".join(f"    void *{name};" for name in ERAS[era]))
    run.run("old", [compiled(source, "-Wno-pedantic")], vma=True)


# ---- the library is opened by the program ---------------------------------------------------------------------------------

# The example of the manual, chapter 7.3.
MANUAL = """
#include <stdlib.h>
#include <stdio.h>
#include <dlfcn.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/socket.h>

typedef int (*socket_fptr_t) (int __domain, int __type, int __protocol);

int main(void)
{
    void* lib_handle;
    socket_fptr_t vma_socket;
    int fd;
    lib_handle = dlopen("libvma.so", RTLD_LAZY);
    if (!lib_handle) {
        printf("FAILED to load libvma.so\\n");
        exit(1);
    }
    vma_socket = (socket_fptr_t)dlsym(lib_handle, "socket");
    if (vma_socket == NULL) {
        printf("FAILED to load socket()\\n");
        exit(1);
    }
    fd = vma_socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    if (fd < 0) {
        printf("FAILED open socket()\\n");
        exit(1);
    }
    printf("socket creation succeeded fd = %d\\n", fd);
    close(fd);
    dlclose(lib_handle);
    return 0;
}
"""


@pytest.mark.skipif("build.sanitized()", reason="a sanitizer's runtime has to be there from the start")
def test_example_of_the_manual(run, compiled, tmp_path):
    source = tmp_path / "manual.c"
    source.write_text(MANUAL)
    done = run.run("manual", [compiled(source, "-ldl")], env={"LD_LIBRARY_PATH": str(build.libvma().parent)})
    assert "socket creation succeeded fd = " in done.stdout() and "VMA_VERSION" in done.output()


@pytest.mark.skipif("build.sanitized()", reason="a sanitizer's runtime has to be there from the start")
def test_sockperf_that_loads_the_library(run, port):
    sockperf = build.tool("sockperf")
    env = {"VMA_TRACELEVEL": "debug", "VMA_LIFT_AFTER": "4"}
    load = f"--load-vma={build.libvma()}"
    server = run.start("server", [sockperf, "server", load, "-i", "127.0.0.1", "-p", str(port)], env=env)
    run.wait_until(lambda: ports.is_bound(port), "the server to be there", proc=server)

    def ask(seconds):
        client = run.run("client", [sockperf, "ping-pong", load, "-i", "127.0.0.1", "-p", str(port), "-t", seconds, "--mps", "100000"], env=env)
        assert "# dropped messages = 0" in client.stdout()
        return all("accelerated: " in proc.output() for proc in (client, server))
    expect.in_time(run, ask, "both to be accelerated", server)
    server.stop()
