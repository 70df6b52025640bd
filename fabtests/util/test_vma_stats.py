# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats on files with known numbers: the views, character for character as the tool that it replaces prints them, options,
what the dead left, and files that lie."""

import ctypes
import json
import os
import pathlib
import random
import re
import select
import signal
import stat
import subprocess

import pytest

from lib import patience
from lib.vmastats import make_sample, program

RULE = "======================================================\n"

LINES_1 = """\
vmastat: stats for application: gen with pid: {pid}
 fd      ------------ total offloaded -------------   --------- total os ----------
                pkt   Kbyte   eagain   error  poll%     pkt   Kbyte  eagain   error
 14  Rx:     140479    8780        5       0  100.0       7       6       0       0
     Tx:     140400    8779        0       0              1       1       0       0
select     Rx Ready:2/650 [os/offload] Timeouts:5     Errors:0    Poll:95.89%   Polling CPU:87%
epoll[17]   Rx Ready:3/8990 [os/offload] Timeouts:1     Errors:0    Poll:99.89%   Polling CPU:93%
-------------------------------------------------------------------------------
"""

LINES_2 = """\
vmastat: stats for application: gen with pid: {pid}
 fd      ------------ total offloaded ------------- ---- queue pkt -----   --------- total os ----------
                pkt   Kbyte   eagain   error  poll%    cur    max   drop     pkt   Kbyte  eagain   error
 14  Rx:     140479    8780        5       0  100.0      3      9      1       7       6       0       0
     Tx:     140400    8779        0       0                                   1       1       0       0
select     Rx Ready:2/650 [os/offload] Timeouts:5     Errors:0    Poll:95.89%   Polling CPU:87%
epoll[17]   Rx Ready:3/8990 [os/offload] Timeouts:1     Errors:0    Poll:99.89%   Polling CPU:93%
-------------------------------------------------------------------------------
"""

FULL = f"""\
vmastat: stats for application: gen with pid: {{pid}}
{RULE}\
	Fd=[14]
- UDP, Blocked, MC Loop Enabled , MC IF = [10.99.0.1]
- Local Address   = [0.0.0.0:7003]
- Member of = [224.4.4.4]
- Member of = [224.4.4.5]
- Thread Id Rx:  4101, Tx:  4102
Tx Offload: 8779 / 140400 / 0 / 0 [kilobytes/packets/eagains/errors]
Tx OS info: 1 / 1 / 0 / 0 [kilobytes/packets/eagains/errors]
Tx Dummy messages : 4
Rx Offload: 8780 / 140479 / 5 / 0 [kilobytes/packets/eagains/errors]
Rx OS info: 6 / 7 / 0 / 0 [kilobytes/packets/eagains/errors]
Rx byte: cur 300 / max 900 / dropped 100 / limit 212992
Rx pkt : cur 3 / max 9 / dropped 1
Rx zero copy buffers: cur 2
Rx poll: 12 / 140000 (99.99%) [miss/hit]
{RULE}\
	Fd=[15]
- TCP, Non-blocked
- Local Address   = [10.99.0.1:7002]
- Foreign Address = [10.99.0.2:41000]
Tx Offload: 400 / 400 / 0 / 0 [kilobytes/packets/eagains/errors]
Rx Offload: 497 / 500 / 0 / 0 [kilobytes/packets/eagains/errors]
Ring migrations Rx: 1, Tx: 0
Retransmissions: 3
{RULE}\
	select
Polling CPU:87%
- Thread Id:  4101
Rx fds ready: 2 / 650 [os/offload]
Polls [miss/hit]: 30 / 700 (95.89%)
Timeouts: 5
{RULE}\
{RULE}\
	epoll[17]
Polling CPU:93%
- Thread Id:  4101
Rx fds ready: 3 / 8990 [os/offload]
Polls [miss/hit]: 10 / 9000 (99.89%)
Timeouts: 1
{RULE}\
{RULE}\
	CQ=[0]
Packets dropped:     0    
Packets queue len:   0
Drained max:         511
Buffer pool size:    16000
{RULE}\
	RING_ETH=[0]
Master:              0x29e4260
Tx Offload:          9179 / 140800 [kilobytes/packets]    
Rx Offload:          9277 / 140979 [kilobytes/packets]    
Retransmissions:     3    
Interrupts:          78 / 77 [requests/received]    
Moderation:          48 / 50 [frames/usec period]    
Dev Mem Alloc:       16384
Dev Mem Stats:       0 / 10 / 0 [kilobytes/packets/oob]    
{RULE}\
	RING_TAP=[1]
Master:              0x29e4260
Rx Buffers:          32
Tap fd:              21
Tap Device:          t2b9f001
{RULE}\
	BUFFER_POOL(RX)=[0]
Size:                168000
No buffers error:    0
{RULE}\
	BUFFER_POOL(TX)=[1]
Size:                199488
No buffers error:    0
"""

GROUPS = """\
vmastat: stats for application: gen with pid: {pid}
VMA Group Memberships Information
Group                fd number
------------------------------
[224.4.4.4]           14 
[224.4.4.5]           14 
-------------------------------------------------------------------------------
"""

NET = """\
Proto Offloaded Recv-Q               Send-Q               Local Address          Foreign Address       State       Inode      PID/Program name
udp   Yes       300                  0                    0.0.0.0:7003           0.0.0.0:*                         73210      {pid}/gen
tcp   Yes       0                    1460                 10.99.0.1:7002         10.99.0.2:41000       ESTABLISHED 73299      {pid}/gen
"""


def stats(folder, *arguments, status=0):
    done = subprocess.run([program("vma_stats"), "-k", folder, *map(str, arguments)], capture_output=True, text=True,
                          timeout=patience.seconds())
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.mark.parametrize("view, sockets, golden", [(1, "14", LINES_1), (2, "14", LINES_2), (3, "4-16,1", FULL),
                                                   (4, "1-20", GROUPS), (5, "14-15", NET)])
def test_view(folder, sample, view, sockets, golden):
    text = stats(folder, "-p", sample.pid, "-v", view, "-c", 1, "-s", sockets)
    assert text == golden.replace("{pid}", str(sample.pid))


@pytest.mark.parametrize("words, view", [([], 1), ([0], 1), ([1], 3)])
def test_form_of_2008(folder, sample, words, view):
    """vma_stats PID [LEVEL]: with 1 the sockets' configuration, too."""
    old = stats(folder, sample.pid, *words, "-c", 1, "-s", 14)
    assert old == stats(folder, "-p", sample.pid, "-v", view, "-c", 1, "-s", 14)


@pytest.mark.parametrize("words", [[12, 2], [12, 1, 1], [0], [-5], ["12x"], ["-p", 3, 12]])
def test_wrong_form_of_2008(folder, words):
    assert "Usage:" in stats(folder, *words, status=1)


def test_large_numbers(folder, sample):
    """Beyond 32 bits, IPv6, and why the kernel has it."""
    text = stats(folder, "-p", sample.pid, "-v", 3, "-c", 1, "-s", 900)
    assert "Tx OS info: 4882812500 / 5000000000 / 0 / 0" in text
    assert "[[2001:db8::1]:80]" in text and "- Not offloaded: SO_ZEROCOPY" in text
    line = stats(folder, "-v", 5, "-s", 900).splitlines()[1]
    assert line.split() == ["tcp6", "No", "0", "0", "[2001:db8::1]:80", "[2001:db8::2]:50000", "ESTABLISHED", "5000000000",
                            f"{sample.pid}/gen"]


def test_json(folder, sample):
    seen = json.loads(stats(folder, "-p", sample.pid, "--json", "-c", 1))
    sockets = {one["fd"]: one for one in seen["sockets"]}
    assert seen["alive"] and seen["program"] == "gen" and sorted(sockets) == [14, 15, 900]
    assert sockets[900]["tx"]["os_bytes"] == 5_000_000_000_000
    assert sockets[900]["local"] == {"address": "2001:db8::1", "port": 80}
    assert (sockets[900]["way"], sockets[900]["reason"]) == ("pinned", "SO_ZEROCOPY")
    assert sockets[14]["introduced"] and sockets[14]["peer_user"] == 33
    assert not sockets[15]["introduced"] and "peer_user" not in sockets[15]
    assert [group["address"] for group in sockets[14]["groups"]] == ["224.4.4.4", "224.4.4.5"]
    assert [one["name"] for one in seen["iomux"]] == ["select", "epoll[17]"]
    assert [sockets[14]["tx"][name] for name in ("pacing_rate", "paced_bytes", "held", "held_ns")] == [1250000, 1500, 11, 5000]
    (queue,) = seen["cqs"]
    assert queue == {"name": "wire", "dropped": 0, "length": 0, "most_drained": 511, "polls": 9000, "poll_hits": 4000,
                     "buffer_pool": 16000, "frames": 16384,
                     "frames_lent": 7, "no_buffers": 0, "send_frames": 2048, "send_free": 2000, "send_no_buffers": 3,
                     "tcp_blocks": 16384, "tcp_blocks_free": 8192, "tcp_no_blocks": 0}
    assert seen["pools"] == [{"kind": "rx", "size": 168000, "no_buffers": 0}, {"kind": "tx", "size": 199488, "no_buffers": 0}]


def test_deltas(run, folder, sample):
    """Rates a second, of two copies that a second or more lies between; the multiplexers too."""
    tool = run.start("tool", [program("vma_stats"), "-k", folder, "-p", sample.pid, "-d", 2, "-s", 14, "-i", 1])
    tool.wait_output("0.0")
    make_sample(folder, sample, "later")

    def rates():
        return [rate for line in tool.stdout().splitlines(True) if "Rx:" in line and line.endswith("\n") and (rate := int(line.split()[2])) != 0]
    run.wait_until(rates, "a rate", proc=tool)
    tool.stop(signal.SIGINT)
    text = tool.stdout()
    assert "pkt/s Kbyte/s eagain/s error/s" in text
    assert len(rates()) == 1 and 0 < rates()[0] <= 15186
    assert any(line.startswith("epoll[17]   Rx Ready:0/") for line in text.splitlines())


def test_deltas_of_everything(run, folder, sample):
    """The units of rates stand where libvma's tool has them."""
    tool = run.start("tool", [program("vma_stats"), "-k", folder, "-p", sample.pid, "-v", 3, "-d", 2, "-i", 1, "-c", 2])
    tool.wait_output("Drained max")
    make_sample(folder, sample, "later")
    text = tool.ok().stdout()
    assert re.search(r"^Rx fds ready: \d+ / \d+ \[os/offload\]/s$", text, re.M)
    assert re.search(r"^Polls \[miss/hit\]/s: \d+ / \d+ \(", text, re.M)
    assert "\nPolling CPU/s:93%\n" in text


def test_title_is_repeated(folder, sample):
    text = stats(folder, "-p", sample.pid, "-c", 1)
    assert text.count("total offloaded") == 1


def test_zero(folder, sample):
    stats(folder, "-p", sample.pid, "-z", "-c", 1)
    text = stats(folder, "-p", sample.pid, "-v", 3, "-c", 1)
    assert text.count("Rx and Tx where not active") == 3 and "epoll" not in text
    make_sample(folder, sample, "later")


@pytest.mark.parametrize("arguments", [["-v", 6], ["-v", "x"], ["-i", 0], ["-p", "abc"], ["-p", -1], ["-d", 3], ["-D", 4],
                                       ["-l", "loud"], ["-s", "5-"], ["-s", "9-3"], ["-s", ""], ["-c", -1], ["extra"],
                                       ["-S", "x"], ["-Q"], ["-k", ""]])
def test_wrong_option(folder, arguments):
    text = stats(folder, *arguments, status=1)
    assert "Usage:" in text


def test_help_and_version(folder):
    for option in "-h", "-?", "--help":
        assert "--fd_dump" in stats(folder, option)
    assert stats(folder, "-V").startswith("vmastat: Linked with VMA version: ")


def test_no_process(folder):
    text = stats(folder, status=1)
    assert text.startswith("vmastat: Failed to identify process please provide pid of active proccess...\n\nUsage:")


def test_finds_by_name(folder, sample):
    assert f"pid: {sample.pid}" in stats(folder, "-n", "sleep", "-c", 1)
    stats(folder, "-n", "slee", status=1)


def test_explain(folder):
    every = stats(folder, "--explain")
    assert "VMA_STATS_FD_NUM" in every and every.count("\nVMA_") > 30
    assert "0 to 1024" in stats(folder, "--explain", "vma_stats_fd_num")
    assert stats(folder, "--explain=STATS_FD_NUM").count("VMA_STATS_FD_NUM") == 1
    assert "VMA_NONE" in stats(folder, "--explain", "VMA_NONE", status=1)


# ---- the dead --------------------------------------------------------------------------------------------------------------


def test_dead_process(folder, sample):
    sample.kill()
    text = stats(folder, "-F", "-p", sample.pid, "-s", 14)
    assert text == LINES_1.replace("{pid}", str(sample.pid)) + f"vmastat: Process {sample.pid} ended - exiting\n"
    stats(folder, "-F", status=1)
    assert sample.file.exists()
    assert "ended" in stats(folder, "-n", "gen")  # its own name, as nobody has the process's
    stats(folder, status=1)
    assert not sample.file.exists()


def test_cleans_only_ours(folder, sample):
    sample.kill()
    strange = folder / "vmastat.999999"
    strange.write_text("somebody's notes")
    (folder / "vmastat.999998").symlink_to(sample.file)
    (folder / "vmastat.999997x").write_bytes(sample.file.read_bytes())
    (folder / "vmastat.0001").write_bytes(sample.file.read_bytes())
    (folder / "vmastat.999996").mkdir()
    stats(folder, status=1)
    assert sorted(p.name for p in folder.iterdir()) == ["vmastat.0001", "vmastat.999996", "vmastat.999997x", "vmastat.999998",
                                                        "vmastat.999999"]


def test_reused_pid(folder, sample):
    """The process with the id began after the file was made."""
    data = bytearray(sample.file.read_bytes())
    at = data.index(b"gen\0") - 24  # made_boot_ns, made_ns, pid_space
    data[at:at + 8] = (1).to_bytes(8, "little")
    sample.file.write_bytes(data)
    stats(folder, status=1)
    assert not sample.file.exists()


# ---- files that lie ---------------------------------------------------------------------------------------------------------


IN_CLOSE_NOWRITE = 0x10


@pytest.mark.parametrize("length", [0, None], ids=["empty", "no magic number"])
def test_a_file_that_is_being_made(folder, sample, length):
    """The process has named its file and not written it yet: whoever has looked at it then looks again."""
    libc = ctypes.CDLL(None, use_errno=True)
    whole = sample.file.read_bytes()
    sample.file.write_bytes(b"" if length == 0 else bytes(8) + whole[8:])
    events = libc.inotify_init1(os.O_CLOEXEC)
    assert libc.inotify_add_watch(events, os.fsencode(sample.file), IN_CLOSE_NOWRITE) >= 0
    proc = subprocess.Popen([program("vma_stats"), "-k", folder, "-p", str(sample.pid), "-c", "1"], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    waiter = select.poll()
    waiter.register(events, select.POLLIN)
    while not waiter.poll(500):  # a file that has been so for long is none that is being made
        os.utime(sample.file)
    os.close(events)
    with sample.file.open("r+b") as file:
        for at, part in (8, whole[8:]), (0, whole[:8]):
            file.seek(at)
            file.write(part)
            file.flush()
    said, _ = proc.communicate(timeout=patience.seconds())
    assert proc.returncode == 0, said


def test_short_and_foreign_files(folder, sample):
    whole = sample.file.read_bytes()
    for length in 0, 1, 8, 63, sample.header_size - 1, sample.header_size, len(whole) - 8 * sample.slot_size + 1:
        sample.file.write_bytes(whole[:length])
        os.utime(sample.file, (0, 0))  # else it might be about to be written
        assert f"{sample.file}: it is too short" in stats(folder, "-F", "-p", sample.pid, status=1)
    sample.file.write_bytes(b"\0" * len(whole))
    os.utime(sample.file, (0, 0))
    assert "it is not a file of this vma_stats" in stats(folder, "-F", "-p", sample.pid, status=1)
    newer = bytearray(whole)
    newer[8] = 9
    sample.file.write_bytes(newer)
    assert "its version is 9, expected 4" in stats(folder, "-F", "-p", sample.pid, status=1)


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes(folder, sample, seed):
    """Whatever stands in the file, every view ends, and nothing that steers a terminal is printed."""
    whole = sample.file.read_bytes()
    rng = random.Random(seed)
    for _ in range(5):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 30, 3000])):
            at = rng.randrange(28, len(data))
            data[at:at + 8] = rng.choice([b"\xff" * 8, rng.randbytes(8), b"\x1b[2J\x1b[9", b"%n%n%s%s"])
        sample.file.write_bytes(data[:len(whole)])
        for view in 1, 2, 3, 4, 5:
            done = subprocess.run([program("vma_stats"), "-F", "-k", folder, "-p", str(sample.pid), "-v", str(view), "-c", "1"],
                                  capture_output=True, timeout=patience.seconds())
            assert done.returncode in (0, 1) and b"\x1b" not in done.stdout + done.stderr
        done = subprocess.run([program("vma_stats"), "-F", "-k", folder, "-p", str(sample.pid), "--json", "-c", "1"],
                              capture_output=True, timeout=patience.seconds())
        if done.returncode == 0:
            json.loads(done.stdout)


def test_symlink_and_fifo(folder, sample):
    """Neither is followed, nor waited for."""
    (folder / "vmastat.12345").symlink_to(sample.file)
    assert "vmastat.12345: " in stats(folder, "-p", 12345, status=1)
    os.mkfifo(folder / "vmastat.12346")
    assert "it is not a plain file" in stats(folder, "-p", 12346, status=1)


def test_permissions(folder, sample):
    """Of another user's file only what can be read, which is nothing as it was made; root sees all."""
    sample.file.chmod(0o600)
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    for path in [folder, *folder.parents]:
        if path.stat().st_mode & stat.S_IXOTH == 0:
            pytest.skip(f"{path} can't be entered by others")
    nobody = lambda: (os.setgid(65534), os.setuid(65534))
    tool = [program("vma_stats"), "-k", folder, "-p", str(sample.pid), "-c", "1"]
    done = subprocess.run(tool, preexec_fn=nobody, capture_output=True, text=True)
    assert done.returncode == 1 and f"{sample.file}: Permission denied" in done.stderr
    folder.chmod(0o755)
    done = subprocess.run([program("vma_stats"), "-k", folder, "-v", "5"], preexec_fn=nobody, capture_output=True, text=True)
    assert done.returncode == 1 and "Permission denied" not in done.stderr  # nobody's but others'
    os.chown(sample.file, 65534, 65534)
    assert subprocess.run(tool, capture_output=True, check=True).stdout
    os.chown(sample.file, 0, 0)
    sample.file.chmod(0o644)
    assert subprocess.run(tool, preexec_fn=nobody, capture_output=True, check=True).stdout
    done = subprocess.run([*tool, "-z"], preexec_fn=nobody, capture_output=True, text=True)
    assert done.returncode == 1 and "counters can't be zeroed: Permission denied" in done.stderr


def test_ends_with_the_process(run, folder, sample):
    tool = run.start("tool", [program("vma_stats"), "-k", folder, "-p", sample.pid])
    tool.wait_output("total offloaded")
    sample.kill()
    assert f"Process {sample.pid} ended" in tool.ok().stdout()


def test_interrupt(run, folder, sample):
    tool = run.start("tool", [program("vma_stats"), "-k", folder, "-p", sample.pid])
    tool.may_fail = True
    tool.wait_output("total offloaded")
    tool.send_signal(signal.SIGINT)
    assert tool.wait() == -signal.SIGINT
