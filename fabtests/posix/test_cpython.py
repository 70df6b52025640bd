# SPDX-License-Identifier: BSD-2-Clause
"""CPython's own tests of sockets, selectors, servers and processes (libpython3.11-testsuite), over the kernel, with the library,
and with VMA_SPEC=latency: every test ends as it does over the kernel."""

import os
import pathlib
import subprocess

import pytest

from lib import build, patience, suite

PROGRAM = pathlib.Path(__file__).parent / "programs" / "unittest_results.py"
PYTHON = "/usr/bin/python3"
MODULES = ["socket", "select", "poll", "epoll", "socketserver", "httpservers", "ftplib", "smtplib", "telnetlib", "httplib",
           "urllib2_localnet", "asyncore", "asynchat", "asyncio.test_sock_lowlevel", "asyncio.test_server",
           "asyncio.test_streams", "asyncio.test_buffered_proto", "asyncio.test_unix_events",
           "selectors", "ssl", "poplib", "imaplib", "xmlrpc", "subprocess", "signal", "wait3", "wait4", "fork1", "eintr",
           "asyncio.test_events", "asyncio.test_sendfile", "asyncio.test_sslproto", "asyncio.test_subprocess"]
# Of these, which take minutes, the check runs what has to do with connections; FABTESTS_LONG=1 runs all of them.
SLOW = ["multiprocessing_fork", "multiprocessing_spawn", "multiprocessing_forkserver"]
CONNECTIONS = ["*TestListener*", "*TestConnection*", "*TestPicklingConnections*", "*TestPoll.*", "*TestPollEintr*", "*TestWait*",
               "*TestRemoteManager*"]
RESOURCES = {"socketserver": ["network"]}  # it means this host's
LIMIT = 400  # seconds for the three runs
NOT_RUN = ["*VSOCK*"]  # hang in a virtual machine whose host has no such device, over the kernel as well


@pytest.fixture(autouse=True, scope="module")
def suite_is_there():
    if subprocess.run([PYTHON, "-c", "import test.test_socket"], stderr=subprocess.DEVNULL, timeout=patience.seconds(), check=False).returncode != 0:
        pytest.skip("libpython3.11-testsuite is not installed")


def start(run, place, mode, module):
    vma, spec = suite.MODES[mode]
    only = CONNECTIONS if module in SLOW and "FABTESTS_LONG" not in os.environ else []
    return run.start(mode, [PYTHON, "-B", PROGRAM, run.work / f"{mode}.results", f"test.test_{module}",
                            *(f"--only={pattern}" for pattern in only),
                            *(f"--without={pattern}" for pattern in NOT_RUN),
                            *(f"--resource={name}" for name in RESOURCES.get(module, []))],
                     vma=vma, mode=spec, timeout=LIMIT, cwd="/", netns=place.file,
                     env={"VMA_TRACELEVEL": "error", "VMA_LOG_FILE": "", "HOME": str(run.work)})


@pytest.mark.parametrize("module", MODULES + SLOW)
def test_as_over_the_kernel(run, places, module):
    if build.sanitized():
        pytest.skip("the suite judges the memory and the descriptors of the process")
    results = {}
    procs = {mode: start(run, place, mode, module) for mode, place in places.items()}
    for mode, proc in procs.items():
        proc.may_fail = True
        proc.wait()
        results[mode] = suite.read_results(run.work / f"{mode}.results")
    kernel = results.pop("kernel")
    assert kernel.whole and len(kernel.outcomes) > 0
    assert "passed" in kernel.outcomes.values()
    wrong = [f"{mode}: {line}" for mode, other in results.items() for line in suite.differences(kernel, other)]
    assert not wrong, "\n".join(wrong)
