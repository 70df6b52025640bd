# SPDX-License-Identifier: BSD-2-Clause
"""A program that has more rights than who starts it (AT_SECURE): here a set-group-ID one, which has the library from its own link. Nothing
of its environment is read, and it is not accelerated unless a line of the installed libvma.conf says so, which is root's and nobody else's to write."""

import os
import subprocess

import pytest

from lib import build, patience

SOURCE = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    const int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&here, size) || listen(listener, 1) || getsockname(listener, (struct sockaddr *)&here, &size) ||
        connect(one, (struct sockaddr *)&here, size))
        return 1;
    const int other = accept(listener, NULL, NULL);
    for (int i = 0; i < 300; ++i) {
        char byte = (char)i;
        if (send(one, &byte, 1, 0) != 1 || recv(other, &byte, 1, 0) != 1 || byte != (char)i || send(other, &byte, 1, 0) != 1 ||
            recv(one, &byte, 1, 0) != 1 || byte != (char)i)
            return 2;
        usleep(i < 100 ? 1000 : 0); // until it is accelerated, if it is
    }
    printf("secure %lu\n", getauxval(AT_SECURE));
    return 0;
}
"""
GROUP = 65534


@pytest.fixture(scope="module", name="program")
def built(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root, for a program of another group and a file of root's")
    if build.sanitized():
        pytest.skip("a sanitizer's runtime does not start in such a program")
    folder = tmp_path_factory.mktemp("privileged")
    if os.statvfs(folder).f_flag & os.ST_NOSUID:
        pytest.skip(f"{folder} is mounted with nosuid")
    source, made = folder / "program.c", folder / "program"
    source.write_text(SOURCE, encoding="ascii")
    library = build.libvma()
    subprocess.run([build.tool("cc"), "-O1", source, "-o", made, "-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}"], check=True,
                   timeout=patience.seconds())
    os.chown(made, 0, GROUP)
    made.chmod(0o2755)
    return made


@pytest.fixture(name="start")
def starter(program, tmp_path):
    """start(text, mode, owner, folder): what it says to stdout and stderr with this libvma.conf in a folder with that mode; None: there is
    no such file."""
    there = build.rules_file().parent

    def start(text=None, mode=0o644, owner=0, folder=0o755):
        conf = tmp_path / "etc" / "libvma.conf"
        conf.parent.mkdir(exist_ok=True)
        conf.parent.chmod(folder)
        if text is not None:
            conf.write_text(text, encoding="ascii")
            conf.chmod(mode)
            os.chown(conf, owner, owner)
        env = os.environ | {"VMA_TRACELEVEL": "debug", "VMA_SPEC": "latency", "VMA_CONFIG_FILE": str(conf), "VMA_OFFLOADED_SOCKETS": "1",
                            "HWLOC_PLUGINS_PATH": str(tmp_path)}
        done = subprocess.run(["unshare", "-m", "sh", "-c", 'mount --bind "$1" "$2" && exec "$3"', "sh", conf.parent, there, program],
                              env=env, capture_output=True, text=True, timeout=patience.seconds(), check=True)
        assert done.stdout.startswith("secure 1\n") or "VMA" in done.stdout
        return done.stdout + done.stderr

    return start


def refused(said):
    """With one line; what the environment asks for is not done."""
    return said.count("its sockets stay on the kernel") == 1 and "accelerated: device" not in said and "DEBUG" not in said


def test_it_is_not_accelerated(start):
    assert refused(start())
    assert refused(start("use vma tcp_server *:*\n"))


def test_a_line_of_roots(start, program):
    said = start(f"privileged {program} VMA_TRACELEVEL=debug VMA_LIFT_AFTER=1 VMA_STATS_SHMEM_DIR=\n")
    assert "accelerated: device local" in said
    assert "stay on the kernel" not in said
    assert " latency " not in said.lower()  # the environment is not read all the same


def test_a_line_without_parameters(start, program):
    said = start(f"application-id nobody *\nuse os tcp_server *:*\nprivileged {program}\n")
    assert "stay on the kernel" not in said and "DEBUG" not in said


@pytest.mark.parametrize("mode, owner", [(0o664, 0), (0o646, 0), (0o644, GROUP)])
def test_a_file_that_others_may_write(start, program, mode, owner):
    assert refused(start(f"privileged {program}\n", mode, owner))


def test_a_folder_that_others_may_write(start, program):
    assert refused(start(f"privileged {program}\n", folder=0o777))
    assert refused(start(f"privileged {program}\n", folder=0o775))


def test_a_line_for_another_program(start, program):
    assert refused(start(f"privileged {program}x\nprivileged {program.name}\nprivileged {program.parent}\n"))
