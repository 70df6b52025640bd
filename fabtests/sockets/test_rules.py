# SPDX-License-Identifier: BSD-2-Clause
"""libvma.conf: sockets that a rule gives to the kernel stay there and say why, the others are accelerated; and libvma-check."""

import pathlib
import subprocess

import pytest

from lib import build, ports
from lib.runner import open_input

PING = ["/usr/bin/python3", "-B", pathlib.Path(__file__).parent / "programs" / "ping.py"]
REASON = "a rule of libvma.conf says os"
TURNS = 3000


def talk(run, kind, port, server_env=None, client_env=None, address="127.0.0.1", offloads=None):
    """`offloads`: they go on until "client", or "both", are accelerated, else for TURNS turns."""
    options = {"vma": True, "mode": "latency"}
    server = run.start("server", [*PING, kind, "serve", address, port], env=server_env, **options)
    server.wait_output("ready")
    with open_input() as stdin:
        client = run.start("client", [*PING, kind, "ask", "127.0.0.1", port, 0 if offloads else TURNS], env=client_env, stdin=stdin, **options)
        for proc in {"client": [client], "both": [client, server]}.get(offloads, []):
            proc.wait_log(lambda log: log.accelerated() != 0, f"{proc.name} to be accelerated")
    client.ok()
    server.ok()
    return server, client


def is_accelerated(proc) -> bool:
    return proc.log().accelerated() != 0


@pytest.mark.parametrize("kind, rule, who", [
    ("tcp", "use os tcp_client 127.0.0.0/8:{port}", "client"),
    ("tcp", "use os tcp_client *:*:127.0.0.1:*", "client"),
    ("tcp", "use * tcp_client *:{port}", "client"),
    ("tcp", "use os tcp_server *:{port}", "server"),
    ("tcp", "use os tcp_server 127.0.0.1:*", "server"),
    ("udp", "use os udp_sender 127.0.0.1:{port}", "client"),
    ("connected", "use os udp_connect *:{port}", "client"),
    ("connected", "use os udp_sender *:{port}", "client"),
])
def test_the_kernel_has_it(run, kind, rule, who):
    port = ports.free_port()
    run.rules.write_text(rule.format(port=port) + "\n")
    procs = dict(zip(("server", "client"), talk(run, kind, port)))
    assert REASON in " ".join(procs[who].log().lines), "\n".join(procs[who].log().lines)
    if kind == "tcp":
        assert not is_accelerated(procs["server"]) and not is_accelerated(procs["client"])
    else:
        lines = [line for line in procs["client"].log().lines if f"-> 127.0.0.1:{port}: accelerated" in line]
        assert not lines, lines


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_receiver(run, address):
    """Local senders find no name of it."""
    port = ports.free_port()
    run.rules.write_text(f"use os udp_receiver 127.0.0.1:{port}\n")
    server, client = talk(run, "udp", port, address=address)
    assert not [line for line in server.log().lines if f":{port}: accelerated" in line]
    assert not [line for line in client.log().lines if f"-> 127.0.0.1:{port}: accelerated" in line]


@pytest.mark.parametrize("kind, rule", [
    ("tcp", "use os tcp_client *:1\nuse os tcp_server *:1-2\nuse os udp_sender *:*"),
    ("tcp", "use vma tcp_client 127.0.0.1:*:*:*\nuse os tcp_client *:*"),
    ("tcp", "use vma tcp_server 127.0.0.1:*\nuse os tcp_server *:*"),
    ("udp", "use os tcp_client *:*\nuse os udp_connect *:*\nuse os udp_receiver [::]/0:1"),
])
def test_other_sockets_are_accelerated(run, kind, rule):
    port = ports.free_port()
    run.rules.write_text(rule + "\n")
    talk(run, kind, port, offloads="both")


def test_programs_and_ids(run):
    """Of the first section that a process meets, by its name and id, and of no other."""
    port = ports.free_port()
    run.rules.write_text("application-id nc* *\nuse os tcp_server *:*\n"
                         "application-id python3* ours\nuse os tcp_client *:*\n")
    talk(run, "tcp", port, offloads="both")
    server, client = talk(run, "tcp", port, client_env={"VMA_APPLICATION_ID": "ours"})
    assert REASON in " ".join(client.log().lines) and not is_accelerated(server)
    server, client = talk(run, "tcp", port, client_env={"VMA_APPLICATION_ID": "theirs"}, offloads="client")
    assert any("VMA_APPLICATION_ID=theirs" in line for line in client.log().at_level("WARNING"))


def test_what_is_wrong_is_named(run):
    run.expect_errors = True
    port = ports.free_port()
    run.rules.write_text(f"use os tcp_client *:{port}x\nuse os tcp_client *:{port}\n")
    _server, client = talk(run, "tcp", port)
    wrong = client.log().at_level("ERROR")
    assert len(wrong) == 1 and f"{run.rules}:1:{21 + len(str(port))}: expected the end of the line" in wrong[0], wrong
    assert REASON in " ".join(client.log().lines)  # by the line after it


def test_a_file_that_is_not_there(run):
    port = ports.free_port()
    missing = {"VMA_CONFIG_FILE": str(run.work / "nothing")}
    _server, client = talk(run, "tcp", port, client_env=missing, offloads="client")
    assert any("nothing: No such file" in line for line in client.log().at_level("WARNING"))
    _server, client = talk(run, "tcp", port, client_env={"VMA_CONFIG_FILE": str(run.work)})
    assert any("Is a directory" in line for line in client.log().at_level("WARNING"))


def check(*arguments, text=None, folder=None, env=None):
    if text is not None:
        (folder / "rules").write_text(text)
        arguments = ("--file", folder / "rules", *arguments)
    done = subprocess.run([build.build_dir() / "libvma-check", *map(str, arguments)], capture_output=True, text=True,
                          env=env or {}, check=False)
    return done.returncode, done.stdout, done.stderr


SHIPPED = pathlib.Path(__file__).parents[2] / "contrib" / "libvma.conf"


def test_libvma_check(tmp_path):
    assert check("--file", SHIPPED)[0] == 0
    assert check("--file", SHIPPED, "udp_connect", "8.8.8.8:53")[1].startswith("os: line 14 ")
    assert check("--file", SHIPPED, "udp_connect", "8.8.8.8:54")[1] == "vma: no rule matches\n"
    rules = "application-id tcp-lat B1\nuse vma tcp_client 192.168.1.0/24:*:*:*\nuse os tcp_client *:*\n"
    ask = ("--program", "tcp-lat", "--id", "B1", "tcp_client")
    assert check(*ask, "192.168.1.7:80", text=rules, folder=tmp_path)[1].startswith("vma: line 2 ")
    assert check(*ask, "192.168.2.7:80", "10.0.0.1:5", text=rules, folder=tmp_path)[1].startswith("os: line 3 ")
    assert check(*ask[:2], "tcp_client", "1.2.3.4:5", text=rules, folder=tmp_path)[1] == "vma: no rule matches\n"
    assert "2 rules" in check("-p", "tcp-lat", "-i", "B1", text=rules, folder=tmp_path)[1]
    six = "use os udp_receiver [2001:db8::]/32:*\n"
    assert check("udp_receiver", "[2001:db8::5]:9", text=six, folder=tmp_path)[1].startswith("os: line 1 ")
    env = {"VMA_CONFIG_FILE": str(tmp_path / "rules")}
    assert check("udp_receiver", "[2001:db9::5]:9", env=env)[1] == "vma: no rule matches\n"


def test_libvma_check_names_what_is_wrong(tmp_path):
    status, out, err = check(text="use os tcp_serve *:*\n", folder=tmp_path)
    assert status == 1 and ":1:8: error: expected a role" in err and "0 rules" in out
    assert check("--file", tmp_path / "nothing")[0] == 1
    for wrong in (["tcp"], ["tcp_server"], ["tcp_server", "1.2.3.4:5", "1.2.3.4:6"], ["tcp_server", "1.2.3.0/24:5"],
                  ["tcp_server", "1.2.3.4:*"], ["--nothing"]):
        status, _out, err = check("--file", SHIPPED, *wrong)
        assert status == 2 and err, wrong
    assert "usage" in check("--help")[1]
