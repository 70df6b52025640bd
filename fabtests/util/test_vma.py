# SPDX-License-Identifier: BSD-2-Clause
"""The command `vma` as its users have it: programs that are run with it, what it says of them, services that it enables."""

import json
import os
import pathlib
import shutil
import socket
import subprocess

import pytest

from lib import build, patience
from lib.places import hardened

VMA = build.build_dir() / "vma"
OWN_IPC = os.stat("/proc/self/ns/ipc").st_ino != 0xEFFFFFFF  # not the host's, but a container's or a world's: the command has more to say


@pytest.fixture
def vma(run):
    """vma(ARGUMENTS...): what it says, when it has ended with `status`."""
    def call(*arguments, status=0, env=None, program=VMA, **how):
        settings = {"VMA_TRACELEVEL": "error"} | (env or {})
        done = subprocess.run([str(program), *map(str, arguments)], env=run.environment(False, "default", "vma", settings), cwd=run.work,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience.seconds(), check=False, **how)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr
    return call


@pytest.fixture
def redis(run, port):
    """A server that `vma run` has started."""
    server = run.start("redis", [VMA, "run", "--", build.tool("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "",
                                 "--daemonize", "no"], env={"VMA_BROKER": ""})
    run.wait_port(port, server)
    return server


def sockets_of(vma, proc):
    found = [one for one in json.loads(vma("list", "--json"))["processes"] if one["pid"] == proc.pid]
    return found[0]["sockets"] if found else []


# ---- run, list, explain -----------------------------------------------------------------------------------------------------


def test_redis_as_the_guide_has_it(run, vma, redis, port):
    """Both by `vma run`: list shows the pair as accelerated, and explain says so."""
    client = run.start("benchmark", [VMA, "run", "--", build.tool("redis-benchmark"), "-p", port, "-c", 4, "-t", "get",
                                        "-n", 10**9, "-q"])  # its connections stay

    def pairs():
        return [one for one in sockets_of(vma, redis) if one["accelerated"] and one.get("with", {}).get("pid") == client.pid]

    one = run.wait_until(pairs, "an accelerated pair", proc=client)[0]
    assert one["way"] == "local" and one["local"] == f"127.0.0.1:{port}" and one["with"]["program"] == "redis-benchmark"
    said = vma("list")
    assert f"{redis.pid} redis-server" in said and f"{client.pid} redis-benchmark" in said and "memory" in said
    assert one["peer"] in vma("list", "--sockets", "--all")
    said = vma("explain", f"127.0.0.1:{port}")
    assert f"{redis.pid} redis-server" in said and "accelerated, over shared memory" in said
    said = vma("check", redis.pid, status=1 if OWN_IPC else 0)
    found = "vmad is not at" if OWN_IPC else "nothing that costs acceleration was found"
    assert f"process {redis.pid} redis-server, " in said and ": with " in said and found in said
    client.kill()


def test_a_peer_without_the_library(run, vma, redis, port):
    """The server can't know why it has no accelerated peer; explain looks at both ends."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(200):
            client.sendall(b"PING\r\n")
            assert client.recv(64) == b"+PONG\r\n"
        run.wait_until(lambda: any("no accelerated peer" in one.get("reason", "") for one in sockets_of(vma, redis)), "a verdict")
        said = vma("explain", f"127.0.0.1:{client.getsockname()[1]}")
        assert f"{redis.pid} redis-server" in said and "on the kernel: no accelerated peer was found" in said
        assert f"{os.getpid()} python3" in said and "runs without libvma.so; start it again by `vma run`" in said
        assert f"{redis.pid} redis-server" not in vma("list")
        assert "no accelerated peer was found" in vma("list", "--all")
    assert "runs without libvma.so" in vma("check", os.getpid(), status=1)


def test_a_listening_socket(vma, redis, port):
    assert "it listens" in vma("explain", f"127.0.0.1:{port}")
    assert "it listens" in vma("explain", redis.pid, f"*:{port}")


def test_a_young_connection(vma, redis, port):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"PING\r\n")
        assert client.recv(64) == b"+PONG\r\n"
        said = vma("explain", redis.pid, f"127.0.0.1:{client.getsockname()[1]}")
        assert "VMA_LIFT_AFTER is 32" in said or "no accelerated peer" in said


@pytest.mark.parametrize("spaces", ["-m", "-fp --kill-child"], ids=["mounts", "processes"])
def test_a_service_in_spaces_of_its_own(run, vma, port, spaces):
    """Its counters lie in a /tmp that nobody else sees (PrivateTmp, a container), or under a number that is another's here."""
    if os.geteuid() != 0:
        pytest.skip("only root can look into another's folders")
    mount = f"mount -t tmpfs none {run.log_dir} && " if spaces == "-m" else ""
    script = f"{mount}exec {VMA} run -- {build.tool('redis-server')} --port {port} --save ''"
    server = run.start("redis", ["unshare", *spaces.split(), "sh", "-c", script])
    run.wait_port(port, server)
    children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    pid = int(children[0]) if children else server.pid
    listed = [one for one in json.loads(vma("list", "--json"))["processes"] if one["program"] == "redis-server"]
    assert [one["pid"] for one in listed] == [pid]
    assert any(one["reason"] == "it listens" for one in listed[0]["sockets"])
    said = vma("explain", f"127.0.0.1:{port}")
    assert f"{pid} redis-server" in said and "it listens" in said


def test_explain_what_is_not_there(vma, port):
    assert "no socket" in vma("explain", f"127.0.0.1:{port}", status=1)
    for wrong in (["127.0.0.1"], ["127.0.0.1:99999"], ["10.0.0.0/8:80"], ["x", "127.0.0.1:80"], []):
        assert "vma help explain" in vma("explain", *wrong, status=2)
    assert "VMA_RX_POLL" in vma("explain", "VMA_RX_POLL")
    assert "not a parameter" in vma("explain", "VMA_NONSENSE", status=2)


def test_demo(vma):
    said = vma("demo", "--seconds", "0.05")
    rows = [line for line in said.splitlines() if " us " in line]
    assert rows[0].startswith("kernel ") and any(line.startswith("libvma ") for line in rows)
    assert all("times the kernel's best" in line for line in rows if line.startswith("libvma"))


# ---- what run says, and that it never stops a program -----------------------------------------------------------------------


def test_environment_of_the_program(vma):
    show = ["sh", "-c", "echo $LD_PRELOAD; echo $VMA_SPEC,$VMA_ETHERNET,$VMA_LIFT_AFTER"]
    lines = vma("run", "-q", "--latency", "--ethernet", "lo", "--set", "VMA_LIFT_AFTER=3", *show).splitlines()
    assert lines == [str(build.libvma()), "latency,lo,3"]
    before = {"LD_PRELOAD": "libc.so.6 /elsewhere/libvma.so"}
    assert vma("run", "-q", "--", *show[:2], "echo $LD_PRELOAD", env=before).splitlines()[0] == f"{build.libvma()} libc.so.6"


def test_exit_status(run, vma):
    assert vma("run", "-q", "sh", "-c", "exit 3", status=3) == ""
    path = {"PATH": "/usr/bin:/bin"}  # where the PATH has a folder that this user may not search, execvp() says so
    assert "not-there: No such file" in vma("run", "not-there", status=127, env=path)
    assert "Permission denied" in vma("run", str(run.work), status=126)
    assert "which program?" in vma("run", "--", status=2)
    assert "expected one of" in vma("run", "--profile", "fast", "true", status=2)
    assert "is VMA_LIFT_AFTER meant" in vma("run", "--set", "VMA_LIFT_AFTR=1", "true", status=2)
    assert "vma help run" in vma("run", "--nonsense", "true", status=2)


def test_no_library(run, vma):
    said = vma("run", "--library", run.work / "libvma.so", "--", "sh", "-c", "echo runs")
    assert "nothing is accelerated: libvma.so was not found" in said and "runs\n" in said


def test_programs_without_a_part(run, vma):
    begin = build.program("lib/programs/begin")
    said = vma("run", "--", begin, status=2)
    assert f"{begin} is statically linked" in said and "usage: begin" in said
    script = run.work / "script"
    script.write_text(f"#!{begin}\n")
    script.chmod(0o755)
    assert f"{script} is run by {begin}, which is statically linked" in vma("run", "./script", status=2).replace("./script", str(script))


def test_program_with_more_rights(run, vma):
    if os.geteuid() != 0:
        pytest.skip("needs root, for a program of another user")
    program = run.work / "true"
    shutil.copy("/bin/true", program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    said = vma("run", program)
    assert "is set-user-ID or set-group-ID: the loader ignores LD_PRELOAD" in said and "privileged" in said


def test_limits(vma):
    def under(limits, *options):
        return vma("sh", "-c", f"{limits}; exec {VMA} run {' '.join(options)} true", program="/usr/bin/env")

    assert "RLIMIT_NOFILE is 256" in under("ulimit -n 256")
    assert "RLIMIT_FSIZE" in under("ulimit -f 8")
    assert "VMA_ETHERNET: there is no interface nonsense0" in under("true", "--ethernet", "nonsense0")
    assert under("ulimit -n 256", "--quiet") == ""


def test_meeting_place(run, vma):
    place = run.work / "closed"
    place.mkdir(0o755)
    said = vma("run", "true", env={"VMA_SHM_DIR": str(place)})
    assert f"nothing is accelerated: {place}, where processes meet, is not a folder of this user's alone" in said
    assert "can't be made" in vma("check", env={"VMA_SHM_DIR": str(place / "not" / "there")}, status=1)


def test_filter_of_calls(run, vma):
    """The calls are tried: the one that is refused is named, and the program starts."""
    switch = "SystemCallFilter=@system-service,~@ipc,EPERM"
    arguments = ["-B", hardened.__file__, run.work, switch, "--", VMA, "run", "--", build.tool("sh"), "-c", "echo runs"]
    done = subprocess.run(["/usr/bin/python3", *map(str, arguments)], env=run.environment(False, "default", "vma", None),
                          capture_output=True, text=True, timeout=patience.seconds(), check=False)
    if done.returncode == hardened.NOT_HERE:
        pytest.skip(f"{switch}: {done.stderr.strip()}")
    assert done.stdout == "runs\n" and "a filter of system calls (seccomp) refuses memfd_create" in done.stderr


def test_vmad_answers(vma, vmad, run):
    """Where it doesn't, only who needs it is told."""
    said = vma("run", "--verbose", "true", env={"VMA_BROKER": str(vmad.path)})
    assert not [line for line in said.splitlines() if "vmad" in line and not (OWN_IPC and "its IPC namespace is its own" in line)], said
    dead = run.work / "dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:  # connects, and says nothing
        listener.bind(str(dead))
        listener.listen(1)
        assert f"vmad does not answer at {dead}" in vma("run", "--verbose", "true", env={"VMA_BROKER": str(dead)})
    assert f"vmad is not at {dead}" in vma("run", "--verbose", "true", env={"VMA_BROKER": str(dead)})


# ---- check ------------------------------------------------------------------------------------------------------------------


def test_check_the_machine(vma):
    said = vma("check", env={"VMA_BROKER": ""})
    assert str(build.libvma()) in said and "nothing that costs acceleration was found" in said


def test_check_rules(run, vma):
    rules = run.work / "rules.conf"
    rules.write_text("application-id * *\nuse os tcp_client *:80\nnonsense\n")
    said = vma("check", rules, status=1)
    assert f"{rules}:3:1: error" in said
    rules.write_text("use os tcp_client *:80\n")
    assert vma("check", rules, "tcp_client", "127.0.0.1:80").startswith("os: line 1")
    assert "No such file" in vma("check", run.work / "none", status=1)
    assert "there is none" in vma("check", 2**22 + 7, status=2)


# ---- services ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="unit")
def service(run):
    """Writes the unit of a service in a system below `run.work`; returns where the drop-in of vma is then."""
    def write(text, name="echo.service"):
        units = run.work / "usr/lib/systemd/system"
        units.mkdir(parents=True, exist_ok=True)
        (units / name).write_text(f"[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n{text}")
        return run.work / "etc/systemd/system" / f"{name}.d" / "50-vma.conf"
    return write


def test_enable_and_disable(run, vma, unit):
    drop_in = unit("Nice=1\nEnvironment=A=1 LD_PRELOAD=libx.so\n")
    said = vma("enable", "--root", run.work, "--latency", "--set", "VMA_TRACELEVEL=warn", "echo")
    assert "systemctl daemon-reload && systemctl restart echo.service" in said and "is accelerated:" not in said
    lines = drop_in.read_text().splitlines()
    assert lines[-4:] == ["[Service]", f'Environment="LD_PRELOAD={build.libvma()} libx.so"', 'Environment="VMA_SPEC=latency"',
                          'Environment="VMA_TRACELEVEL=warn"']
    assert drop_in.stat().st_mode & 0o777 == 0o644
    vma("enable", "--root", run.work, "echo.service")  # again, with other settings
    assert "VMA_SPEC" not in drop_in.read_text()
    assert "removed" in vma("disable", "--root", run.work, "echo.service")
    assert not drop_in.parent.exists() and drop_in.parent.parent.exists()
    assert "not enabled by vma" in vma("disable", "--root", run.work, "echo.service", status=1)


def test_systemd_reads_the_drop_in(run, vma, unit):
    drop_in = unit("")
    vma("enable", "--root", run.work, "--set", "VMA_SHM_DIR=/a b/100%/\"c\"", "echo.service")
    done = subprocess.run([build.tool("systemd-analyze"), "verify", "--man=no", f"--root={run.work}", "echo.service"],
                          capture_output=True, text=True, timeout=patience.seconds(), check=False)
    assert "50-vma.conf" not in done.stdout + done.stderr, drop_in.read_text() + done.stderr


def test_disable_takes_only_its_own(run, vma, unit):
    drop_in = unit("")
    drop_in.parent.mkdir(parents=True)
    other = drop_in.parent / "other.conf"
    other.write_text("[Service]\nNice=1\n")
    vma("enable", "--root", run.work, "echo.service")
    vma("disable", "--root", run.work, "echo.service")
    assert other.exists() and not drop_in.exists()
    drop_in.write_text("[Service]\n")
    assert "vma did not write it" in vma("disable", "--root", run.work, "echo.service", status=1)
    assert "vma did not write it" in vma("enable", "--root", run.work, "echo.service", status=1)
    vma("enable", "--force", "--root", run.work, "echo.service")
    with drop_in.open("a") as file:
        file.write("Environment=A=1\n")
    assert "changed by hand" in vma("disable", "--root", run.work, "echo.service", status=1)
    vma("disable", "--force", "--root", run.work, "echo.service")
    assert not drop_in.exists() and other.exists()


def test_settings_that_cost(run, vma, unit):
    unit("PrivateNetwork=yes\nPrivateIPC=yes\nDynamicUser=yes\nSystemCallFilter=@system-service\nMemoryDenyWriteExecute=yes\n")
    overrides = run.work / "etc/systemd/system/echo.service.d/10-local.conf"
    overrides.parent.mkdir(parents=True)
    overrides.write_text("[Service]\nPrivateIPC=no\nSystemCallFilter=~@ipc\nRestrictAddressFamilies=AF_INET\n")
    said = vma("enable", "--root", run.work, "echo.service")
    for words in ("PrivateNetwork=", "DynamicUser=", "SystemCallFilter= refuses @ipc", "leaves AF_UNIX out", "leaves AF_NETLINK out"):
        assert words in said
    assert "PrivateIPC" not in said and "MemoryDenyWriteExecute" not in said


def test_mend(run, vma, unit):
    """Debian's unit of redis refuses both; without --mend nothing is loosened."""
    drop_in = unit("RestrictAddressFamilies=AF_INET AF_UNIX\nSystemCallFilter=@system-service\nSystemCallFilter=~ @privileged @resources\n")
    assert "SystemCallFilter= refuses mbind" in vma("enable", "--root", run.work, "echo")
    assert "SystemCallFilter" not in drop_in.read_text()
    said = vma("enable", "--mend", "--root", run.work, "echo")
    assert "mended: SystemCallFilter=mbind" in said and "is accelerated:" not in said
    assert drop_in.read_text().endswith("\nSystemCallFilter=mbind\nRestrictAddressFamilies=AF_NETLINK\n")


def test_enable_what_is_not_there(run, vma, unit):
    unit("", name="echo@.service")
    assert "there is no such unit" in vma("enable", "--root", run.work, "none.service", status=1)
    for wrong in (["a/b"], ["x.socket"], [], ["a", "b"]):
        assert "vma help enable" in vma("enable", "--root", run.work, *wrong, status=2)
    assert "echo@one.service.d/50-vma.conf: written" in vma("enable", "--root", run.work, "echo@one")


# ---- the command itself -----------------------------------------------------------------------------------------------------


def test_help(vma):
    overview = vma("help")
    for name in ("run", "check", "list", "explain", "demo", "enable", "disable", "version"):
        assert f"  {name} " in overview
        page = vma("help", name)
        assert page.startswith(f"usage: vma {name}")
        if name != "version":
            assert vma(name, "--help") == page
    assert overview == vma("--help")
    assert "there is no command nonsense" in vma("nonsense", status=2)
    assert str(build.libvma()) in vma("version")


def test_installed_elsewhere(run, vma):
    """An installation that was moved finds its own library, in Debian's folders too."""
    prefix = run.work / "prefix"
    for folder in ("bin", "lib/some-triple"):
        (prefix / folder).mkdir(parents=True)
    shutil.copy(VMA, prefix / "bin/vma")
    shutil.copy(build.libvma(), prefix / "lib/some-triple")
    assert str(prefix / "lib/some-triple/libvma.so") in vma("version", program=prefix / "bin/vma")


def test_completion(vma):
    script = pathlib.Path(build.TOP) / "contrib/completion/vma"

    def complete(*words):
        text = f'. {script}; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _vma; echo "${{COMPREPLY[@]}}"'
        return vma("-c", text, program=build.tool("bash"), env={"PATH": f"{VMA.parent}:{os.environ['PATH']}"}).split()

    assert complete("vma", "e") == ["explain", "enable"]
    assert complete("vma", "run", "--l") == ["--latency", "--log", "--library"]
    assert complete("vma", "run", "--profile", "lat") == ["latency"]
    assert complete("vma", "disable", "--") == ["--force", "--root", "--help"]
