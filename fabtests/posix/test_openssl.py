# SPDX-License-Identifier: BSD-2-Clause
"""OpenSSL's s_server and s_client: TLS over TCP, and DTLS over UDP, the same bytes without the library, with it, and with
VMA_SPEC=latency. Both wait in select() for the terminal and for the socket."""

import contextlib
import os
import select

import pytest

from lib import build, expect, files, pairing, patience, ports

pytestmark = pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED)


@pytest.fixture
def certificate(run):
    run.run("req", [build.tool("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", "/CN=localhost", "-keyout", run.work / "key.pem", "-out", run.work / "cert.pem"])
    return ["-cert", run.work / "cert.pem", "-key", run.work / "key.pem"]


@contextlib.contextmanager
def feed(path):
    """What a program reads as its input: the file, and then nothing rather than an end."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as end, os.fdopen(write, "wb", buffering=0) as keep:
        yield end, keep, path.read_bytes()


def server(run, pair, port, certificate, *options, **more):
    return run.start("server", [build.tool("openssl"), "s_server", "-accept", f"127.0.0.1:{port}", *certificate, *options],
                     vma=pair.server, mode=pair.mode, **more)


def client(run, pair, port, *options, **more):
    return run.start("client", [build.tool("openssl"), "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile",
                                run.work / "cert.pem", "-verify_return_error", "-servername", "localhost", *options],
                     vma=pair.client, mode=pair.mode, **more)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_both_ways(run, pair, port, certificate, version):
    """Megabytes each way at the same time, and more of them where that was over before the connection was accelerated."""
    def talk(turn):
        more = 1 << min(turn, 4)
        sums = {name: files.random_file(run.work / name, size * more) for name, size in (("up", 3_000_000), ("down", 4_000_000))}
        with feed(run.work / "up") as up, feed(run.work / "down") as down:
            serving = server(run, pair, port, certificate, "-quiet", version, "-naccept", 1, stdin=down[0],
                             stdout=(run.work / "came_up").open("wb"))
            run.wait_port(port, serving)
            asking = client(run, pair, port, "-quiet", version, stdin=up[0], stdout=(run.work / "came_down").open("wb"))
            pour([up, down])
            for name in sums:
                came = run.work / f"came_{name}"
                run.wait_until(lambda came=came, name=name: came.stat().st_size >= (run.work / name).stat().st_size, f"all of {name}")
                assert files.sha256(came) == sums[name]
        asking.stop()
        serving.stop()
        return serving, asking

    serving, asking = expect.rounds(pair, talk, expect.of_port(port))
    expect.acceleration(pair, port, serving, asking)


def pour(feeds):
    """Writes each feed's data to its pipe, as the readers take it."""
    left = {keep: data for _, keep, data in feeds}
    for keep in left:
        os.set_blocking(keep.fileno(), False)
    while left:
        for fd in select.select([], [keep.fileno() for keep in left], [], patience.seconds())[1]:
            keep = next(one for one in left if one.fileno() == fd)
            left[keep] = left[keep][os.write(fd, left[keep][:65536]):]
            if not left[keep]:
                del left[keep]


def test_web(run, pair, port, certificate):
    """A page of the session (-www) and files (-WWW), fetched by curl and by s_client."""
    wanted = files.random_file(run.work / "large", 2 << 20)
    for how in ("-www", "-WWW"):
        at = ports.free_port()
        serving = server(run, pair, at, certificate, how)
        run.wait_port(at, serving)
        page = run.run("curl", [build.tool("curl"), "-sS", "--fail", "--http1.1", "--max-time", patience.seconds(), "--cacert", run.work / "cert.pem",
                                "-o", run.work / "page", f"https://localhost:{at}/large", "--connect-to", f"localhost:{at}:127.0.0.1:{at}"],
                       vma=pair.client, mode=pair.mode)
        assert page.output() == ""
        if how == "-WWW":
            assert files.sha256(run.work / "page") == wanted
        else:
            assert "s_server" in (run.work / "page").read_text()
            asked = client(run, pair, at, "-ign_eof", stdin=b"GET / HTTP/1.0\r\n\r\n").ok()
            assert "Cipher is TLS" in asked.stdout() and "s_server" in asked.stdout()
        serving.stop()


def test_resumption(run, pair, port, certificate):
    """Six connections by one session, and requests on each."""
    serving = server(run, pair, port, certificate, "-www")
    run.wait_port(port, serving)
    asked = client(run, pair, port, "-reconnect", "-tls1_2").ok()
    assert asked.stdout().count("Reused, TLSv1.2") == 5, asked.stdout()
    serving.stop()


def test_datagrams(run, pair, port, certificate):
    """DTLS: lines in turn, each way, each seen before the next."""
    (run.work / "none").touch()
    with feed(run.work / "none") as up, feed(run.work / "none") as down:
        serving = server(run, pair, port, certificate, "-dtls1_2", "-quiet", "-naccept", 1, stdin=down[0])
        run.wait_until(lambda: ports.is_bound(port), "the server's port", proc=serving)
        asking = client(run, pair, port, "-dtls1_2", "-quiet", stdin=up[0])
        for number in range(60):
            for way, reader in ((up, serving), (down, asking)):
                line = f"line {number} {'abc' * (number * 11 % 300)}\n"
                way[1].write(line.encode())
                run.wait_until(lambda: reader.stdout().endswith(line), f"line {number} at the {reader.name}", proc=reader)
    asking.stop()
    serving.stop()
