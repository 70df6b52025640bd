# SPDX-License-Identifier: BSD-2-Clause
"""Faults: killed peers, bad and full shared directories, other users, few resources, wrong parameters, many connections,
slow readers, peers without the library. The program sees what it would see on the kernel."""

import os
import pathlib
import resource
import shutil
import signal
import socket
import stat
import subprocess

import pytest

from lib import build, expect, limits, pairing, peers, shared_dir
from lib.transfer import Transfer

MIB = 1 << 20
FORMS = "sockets/programs/stream_forms"
SPIN = {"VMA_RX_POLL": "-1", "VMA_SELECT_POLL": "-1"}
SLEEP = {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}

waits = pytest.mark.parametrize("waiting", [SLEEP, SPIN], ids=["sleeping", "spinning"])


# ---- killed peers -----------------------------------------------------------------------------------------------------


@waits
@pytest.mark.parametrize("direction", ["up", "down"])
def test_source_is_killed(run, pair, direction, waiting):
    """The sink gets every byte whose send() had returned, nothing else, and then the end."""
    t = Transfer(run, pair, direction, offload=True, env=waiting)
    t.wait_received(8 * MIB)
    t.proc(t.source).kill()
    position, how = t.end_of(t.sink, "received")
    assert how == "end"
    assert t.sent() <= position <= t.sent() + t.piece


@waits
@pytest.mark.parametrize("direction", ["up", "down"])
def test_sink_is_killed(run, pair, direction, waiting):
    """The source learns of it by an error, not by waiting for ever."""
    t = Transfer(run, pair, direction, offload=True, env=waiting)
    t.wait_received(8 * MIB)
    t.proc(t.sink).kill()
    _, how = t.end_of(t.source, "sent")
    assert how in ("ECONNRESET", "EPIPE")


@pytest.mark.parametrize("victim", ["server", "client"])
def test_killed_in_both_directions(run, pair, victim):
    t = Transfer(run, pair, "both", offload=True)
    t.wait_received(8 * MIB)
    t.proc(victim).kill()
    other = "client" if victim == "server" else "server"
    _, how = t.end_of(other, "received")  # every byte before was right, or it had said so
    assert how in ("end", "ECONNRESET")
    _, how = t.end_of(other, "sent")
    assert how in ("ECONNRESET", "EPIPE")


@pytest.mark.pairs(*pairing.ACCELERATED)
@pytest.mark.parametrize("victim", ["source", "sink"])
@pytest.mark.parametrize("after", range(0, 400, 50))
def test_killed_about_the_switch(run, pair, victim, after):
    """Killed while the connection is being offloaded, at a place that differs from run to run."""
    t = Transfer(run, pair, "up", piece=100)
    t.wait_received(after * 100 + 1)
    t.proc(getattr(t, victim)).kill()
    if victim == "source":
        position, how = t.end_of(t.sink, "received")
        assert how == "end" and t.sent() <= position <= t.sent() + t.piece
    else:
        assert t.end_of(t.source, "sent")[1] in ("ECONNRESET", "EPIPE")


@pytest.mark.pairs(*pairing.ACCELERATED)
def test_stopped_peer_is_waited_for(run, pair):
    """SIGSTOP is no death: nothing ends, and all goes on after SIGCONT."""
    t = Transfer(run, pair, "up", amount=64 * MIB, offload=True)
    t.wait_received(MIB)
    t.server.send_signal(signal.SIGSTOP)
    before = None

    def stands_still():
        nonlocal before
        now, before = before, t.sent()
        return now == before
    run.wait_until(stands_still, "the source to be stopped by back-pressure")
    assert t.client.alive()
    t.server.send_signal(signal.SIGCONT)
    assert t.end_of("server", "received") == (64 * MIB, "end")
    t.client.ok()


@pytest.mark.pairs(pairing.VMA_LATENCY)
def test_nothing_is_left_after_kill(run, pair, shm):
    """kill -9 of everything: the next start removes what the dead left."""
    for _ in range(3):
        t = Transfer(run, pair, "both", offload=True)
        t.wait_received(MIB)
        t.server.kill()
        t.client.kill()
    assert shared_dir.of_the_dead(shm)  # else this test would show nothing
    assert shared_dir.left_for_good(run) == []


def test_one_who_ends_late(run, shm):
    """He may listen for a while after he was killed: his name is not of the dead before."""
    wait = run.wait_until
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as late:
        late.bind(str(shm / "1-r5"))
        late.listen()

        def end(condition, what):
            assert not condition()
            late.close()
            wait(condition, what)

        run.wait_until = end
        assert shared_dir.left_for_good(run) == []
    run.wait_until = wait
    assert not (shm / "1-r5").exists()


# ---- the shared directory ---------------------------------------------------------------------------------------------


def works(run, pair, accelerated: bool | None = None, size=None, **options):
    """Every call form over a connection: the program sees no difference. `accelerated`: must it be, None: either."""
    size = size or 2 * MIB
    pair_options = dict(server_options=options.pop("server_options", None),
                        client_options=options.pop("client_options", None))
    server, client = peers.run_both(run, pair, FORMS, "blocking", size, size, 99, offload=bool(accelerated), **options, **pair_options)
    counts = server.log().accelerated(), client.log().accelerated()
    if accelerated is not None:
        assert [c > 0 for c in counts] == [accelerated] * 2, f"{counts}\n{run.report()}"
    return server, client


def says_why(proc, wanted_level=("WARNING", "ERROR")):
    lines = proc.log().at_level(*wanted_level)
    assert lines, f"{proc.name} logged no warning:\n" + "\n".join(proc.log().lines)
    assert len(lines) <= 3, "one clear line is enough:\n" + "\n".join(lines)
    return "\n".join(lines)


both = pytest.mark.pairs(pairing.VMA_LATENCY)


@both
def test_directory_is_made(run, pair, shm):
    place = shm / "new"
    works(run, pair, True, env={"VMA_SHM_DIR": str(place)})
    assert stat.S_IMODE(place.stat().st_mode) == 0o700 and place.stat().st_uid == os.geteuid()
    shutil.rmtree(place)


@both
@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o710])
def test_directory_with_a_wrong_mode(run, pair, shm, mode):
    shm.chmod(mode)
    server, client = works(run, pair, False)
    for proc in (server, client):
        assert str(shm) in says_why(proc)


@both
def test_directory_of_another_user(run, pair, shm):
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    os.chown(shm, 65534, 65534)
    server, _ = works(run, pair, False)
    assert str(shm) in says_why(server)


@both
@pytest.mark.parametrize("what", ["file", "link", "missing parent", "too long", "proc"])
def test_directory_that_is_none(run, pair, shm, what):
    place = shm / "x"
    if what == "file":
        place.write_text("not a directory")
    elif what == "link":
        (shm / "target").mkdir(mode=0o755)
        place.symlink_to(shm / "target")
    elif what == "missing parent":
        place = shm / "no" / "such" / "place"
    elif what == "too long":
        place = shm / ("y" * 250) / ("z" * 250)
    else:
        place = pathlib.Path("/proc/self/vma")
    server, _ = works(run, pair, False, env={"VMA_SHM_DIR": str(place)})
    says_why(server)
    for left in shm.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def names_in_use(run, pair, shm):
    """What two living processes with an accelerated connection have in the directory."""
    t = Transfer(run, pair, "up", offload=True)
    t.wait_received(MIB)
    names = shared_dir.entries(shm)
    t.server.kill()
    t.client.kill()
    return names


RUBBISH = {
    "empty": lambda p: p.write_bytes(b""),
    "short": lambda p: p.write_bytes(b"\xff" * 7),
    "random": lambda p: p.write_bytes(os.urandom(70000)),
    "zeros": lambda p: p.write_bytes(bytes(70000)),
    "directory": lambda p: p.mkdir(),
    "fifo": lambda p: os.mkfifo(p),
    "dangling": lambda p: p.symlink_to("/nonexistent/place"),
    "odd link": lambda p: p.symlink_to("1.1.99999.99999999999.zz"),
    "device": lambda p: p.symlink_to("/dev/zero"),
    "unreadable": lambda p: (p.write_bytes(b"x"), p.chmod(0)),
}


@both
@pytest.mark.parametrize("kind", RUBBISH)
def test_foreign_files(run, pair, shm, kind):
    """Whatever lies under the names the library uses, and under others: the stream is right."""
    names = names_in_use(run, pair, shm)
    shutil.rmtree(shm)
    shm.mkdir(mode=0o700)
    for name in [*names, "o-junk", "o-", "-", "0-0", "99999999999999999999-1", "stranger"]:
        if not (shm / name).exists() and not (shm / name).is_symlink():
            RUBBISH[kind](shm / name)
    works(run, pair)
    shutil.rmtree(shm)
    shm.mkdir(mode=0o700)


@both
def test_files_cut_off_while_running(run, pair, shm):
    """Somebody empties and removes the files under running processes: no crash, and the stream goes on."""
    t = Transfer(run, pair, "both", amount=48 * MIB, pause_at=4 * MIB, offload=True)
    t.wait_received(4 * MIB)
    for name in shared_dir.entries(shm):
        path = shm / name
        if path.is_file() and not path.is_symlink():
            os.truncate(path, 0)
        path.unlink()
    t.go_on()
    for side in ("server", "client"):
        assert t.end_of(side, "received") == (48 * MIB, "end")
    works(run, pair)


@pytest.fixture
def small_tmpfs(shm):
    def mount(size):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "fabtests", shm],
                              capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a small tmpfs: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", shm], capture_output=True)


@both
@pytest.mark.parametrize("size", ["4k", "16k", "256k"])
def test_small_file_system(run, pair, small_tmpfs, size):
    small_tmpfs(size)
    works(run, pair)


@both
def test_full_file_system(run, pair, shm, small_tmpfs):
    small_tmpfs("64k")
    filler = os.open(shm / "filler", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError):
        while True:
            os.write(filler, bytes(4096))
    os.close(filler)
    t = Transfer(run, pair)
    t.wait_received(MIB)
    t.server.wait_log(lambda log: log.accelerated() or log.at_level("WARNING", "ERROR"), "it to be accelerated, or to say why not")
    t.client.kill()
    assert t.end_of("server", "received")[1] == "end"
    if not t.server.log().accelerated():
        says_why(t.server)


@both
def test_read_only_file_system(run, pair, shm, small_tmpfs):
    small_tmpfs("64k")
    subprocess.run(["mount", "-o", "remount,ro", shm], check=True)
    server, _ = works(run, pair, False)
    says_why(server)


# ---- other users, other peers -----------------------------------------------------------------------------------------


NOBODY = 65534


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@both
@pytest.mark.parametrize("side", ["server", "client"])
def test_other_user(run, pair, shm, side):
    """The two ends belong to different users: the kernel path, and one clear line of who cannot use the directory."""
    if os.geteuid() != 0:
        pytest.skip("only root can run one side as another user")
    server, client = works(run, pair, False, **{f"{side}_options": {"preexec": become_nobody}})
    stranger, host = (server, client) if side == "server" else (client, server)
    assert str(shm) in says_why(stranger)
    assert not host.log().at_level("WARNING", "ERROR")


@both
def test_other_user_with_a_directory_of_its_own(run, pair, shm):
    """Both may use the library, with each other too."""
    if os.geteuid() != 0:
        pytest.skip("only root can run one side as another user")
    shm.chmod(0o711)
    own, other = shm / "root", shm / "nobody"
    for place in (own, other):
        place.mkdir(mode=0o700)
    os.chown(other, NOBODY, NOBODY)
    server, client = works(run, pair, True, server_options={"env": {"VMA_SHM_DIR": str(own)}},
                           client_options={"preexec": become_nobody, "env": {"VMA_SHM_DIR": str(other)}})
    for proc in (server, client):
        assert not proc.log().at_level("WARNING", "ERROR")


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.pairs(pairing.VMA_LATENCY)
def test_static_peer(run, pair, side):
    """A static program ignores LD_PRELOAD: its peer stays on the kernel."""
    static = {"argv": [build.program("sockets/programs/transfer_static")]}
    t = Transfer(run, pair, "both", amount=8 * MIB, **{f"{side}_options": static})
    for name in ("server", "client"):
        assert t.end_of(name, "received") == (8 * MIB, "end")
    dynamic = t.client if side == "server" else t.server
    assert dynamic.log().accelerated() == 0 and dynamic.log().not_accelerated()


@both
@pytest.mark.parametrize("side", ["server", "client"])
def test_turned_off_on_one_side(run, pair, side):
    server, client = works(run, pair, False, **{f"{side}_options": {"env": {"VMA_OFFLOADED_SOCKETS": "0"}}})
    assert not (server.log().at_level("WARNING", "ERROR") or client.log().at_level("WARNING", "ERROR"))


@both
def test_provider_is_missing(run, pair, work):
    _, client = works(run, pair, False, env={"VMA_PROVIDER": str(work / "no-such-libvma-fi.so")})
    assert "no-such-libvma-fi.so" in says_why(client)


# ---- few resources ----------------------------------------------------------------------------------------------------


def limited(kind, value):
    return {"preexec": lambda: resource.setrlimit(kind, (value, value))}


@both
@pytest.mark.parametrize("limit", [64, 32, 24, 20, 18, 17, 16, 15])
def test_few_descriptors(run, pair, limit):
    """stream_forms itself needs 15 on the kernel: it must never lack one because the library took it too early."""
    options = limited(resource.RLIMIT_NOFILE, limit)
    works(run, pair, True if limit >= 64 else None, server_options=options, client_options=options)


@both
@pytest.mark.parametrize("megabytes", [2000, 300, 180, 120, 90])
def test_little_address_space(run, pair, megabytes):
    if build.sanitized():
        pytest.skip("a sanitizer needs terabytes of address space")
    options = limited(resource.RLIMIT_AS, megabytes * MIB)
    works(run, pair, server_options=options, client_options=options)


@both
@pytest.mark.parametrize("kind", ["FSIZE", "MEMLOCK", "SIGPENDING", "MSGQUEUE"])
def test_no_room_of(run, pair, kind):
    """RLIMIT_FSIZE is no limit on what sockets carry, and exceeding it sends SIGXFSZ, which kills."""
    number = {"SIGPENDING": 11, "MSGQUEUE": 12}.get(kind) or getattr(resource, f"RLIMIT_{kind}")
    options = limited(number, 65536 if kind == "FSIZE" else 0)  # the logs are files too
    t = Transfer(run, pair, "both", amount=8 * MIB, server_options=options, client_options=options)
    for name in ("server", "client"):
        assert t.end_of(name, "received") == (8 * MIB, "end")


@both
def test_one_side_limited(run, pair):
    """One side cannot afford an endpoint: the other gives up cleanly too."""
    works(run, pair, None, server_options=limited(resource.RLIMIT_NOFILE, 16))
    works(run, pair, None, client_options=limited(resource.RLIMIT_NOFILE, 16))


# ---- parameters -------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("name, value", [
    ("VMA_RX_POLL", "-2"), ("VMA_RX_POLL", "abc"), ("VMA_RX_POLL", "99999999999999999999"), ("VMA_RX_POLL", "12x"),
    ("VMA_SELECT_POLL", "-7"), ("VMA_LIFT_AFTER", "-1"), ("VMA_STREAM_RING", "17"),
    ("VMA_STREAM_RING", "-4096"), ("VMA_THREAD_MODE", "77"), ("VMA_OFFLOADED_SOCKETS", "maybe"),
    ("VMA_TRACELEVEL", "loud"), ("VMA_LOG_DETAILS", "9"), ("VMA_SPEC", "warp"),
])
def test_parameter_out_of_range(run, pair, name, value):
    """A warning that names the parameter and what was given; then the default, and all works."""
    server, _ = works(run, pair, size=MIB // 4, env={name: value}, client_options={"env": {name: ""}})
    lines = [line for line in server.log().at_level("WARNING", "ERROR") if name in line]
    if name == "VMA_TRACELEVEL":  # the default level still shows warnings
        lines = lines or [line for line in (server.output()).splitlines() if name in line]
    assert lines and value in lines[0], "\n".join(server.log().lines) + server.output()


@both
def test_log_file_that_cannot_be(run, pair, work):
    works(run, pair, size=MIB // 4, env={"VMA_LOG_FILE": str(work / "no" / "such" / "place.log")})


# ---- many, and slow ---------------------------------------------------------------------------------------------------


@pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED, pairing.VMA_SERVER)
def test_two_thousand_connections(run, pair):
    needed = 8192
    hard = limits.needs_descriptors(needed)
    options = {"preexec": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard)), "timeout": 120}

    def talk(turn):
        server, client = peers.run_both(run, pair, "sockets/programs/many", 2000, 8000 << turn, 5, server_options=options, client_options=options)
        assert f"{8000 << turn} exchanges on 2000 connections" in client.stdout() and "served 2000" in server.stdout()
        return server, client

    def accelerated(*procs):
        return pair.mode != "latency" or all(proc.log().accelerated() > 500 for proc in procs)

    procs = expect.rounds(pair, talk, accelerated)
    assert not pair.both or accelerated(*procs)


@pytest.mark.parametrize("piece", [700, 60_000])
def test_slow_reader(run, pair, piece):
    """The source is held back while the sink does not read: it is not buffered without bound, and nothing is lost."""
    t = Transfer(run, pair, "down", amount=64 * MIB if piece > 1000 else 8 * MIB, piece=piece, pause_at=MIB, offload=True)
    t.wait_received(MIB)
    before, still = -1, 0

    def held_back():
        nonlocal before, still
        still = still + 1 if t.sent() == before else 0
        before = t.sent()
        return still > 10
    run.wait_until(held_back, "the source to be held back")
    assert t.sent() - t.received() < 16 * MIB
    t.go_on()
    assert t.end_of("client", "received")[1] == "end"
    t.server.ok()
