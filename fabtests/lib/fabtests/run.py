# SPDX-License-Identifier: BSD-2-Clause
"""run_fabtests.sh: libfabric's own tests over the provider of this build, compared with a table of what must pass.

Runs an installed fabtests over PROVIDERs (all: vma, vma;ofi_rxm, vma;ofi_rxd), in a network and process namespace of its own, so
that nothing else is met, and nothing is left behind. Its runfabtests.sh says which tests there are. The exit status is 0 if all
ends as fabtests/test_configs/vma/expected.txt says, 1 if anything does not (each difference is named, with what the test printed),
2 if it could not be used so, and 77 if there is no fabtests, or no namespace may be made.
"""

import argparse
import dataclasses
import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from lib import patience
from lib.fabtests import output
from lib.fabtests import table as tables

HERE = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = HERE / "test_configs" / "vma"
EXPECTED = CONFIGS / "expected.txt"
PROVIDERS = ("vma", "vma;ofi_rxm", "vma;ofi_rxd")
GROUPS = ("unit", "functional", "short", "standard", "multinode", "complex")
TIMEOUT = 60
UBERTEST = 10  # times the timeout of a test: it is some hundred of them
SKIPPED = 77
STATUS_EVERY = 15  # seconds between lines of progress where no terminal shows it

# Where runfabtests.sh would go to another host. A server whose client has failed is killed with its `timeout`, which would leave it.
SSH = """#!/bin/sh
while :; do
    case $1 in
    -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
shift
exec setpriv --pdeathsig KILL bash -c "$*" </dev/null
"""

# The first process of the namespaces.
INSIDE = 'ip link set lo up && mount -t tmpfs none /dev/shm && exec "$@"'


@dataclasses.dataclass
class Run:
    """One start of runfabtests.sh: a group of tests, of ubertest one of our configurations."""

    provider: str
    group: str
    config: pathlib.Path | None = None


class Progress:
    """On a terminal a line that changes; elsewhere a line now and then."""

    def __init__(self):
        self._terminal = sys.stderr.isatty()
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        if self._terminal:
            print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._last > STATUS_EVERY:
            self._last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run_fabtests.sh", description=__doc__.split("\n", 2)[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="FABTESTS_PATH names the folder with fabtests' programs, where it is not in PATH. VMA_BUILD names another build folder\n"
               "than ../build. LD_LIBRARY_PATH may name another libfabric, as ever.")
    parser.add_argument("providers", nargs="*", metavar="PROVIDER", help="all three if none is named")
    parser.add_argument("-t", "--groups", default=",".join(GROUPS), metavar="GROUP,...", help="those of %(default)s (the default) to run")
    parser.add_argument("-T", "--timeout", type=int, default=TIMEOUT, metavar="SECONDS",
                        help=f"for each test (%(default)s); a configuration of ubertest has {UBERTEST} times that")
    parser.add_argument("-w", "--write", action="store_true", help="update the table from this run, instead of comparing with it")
    parser.add_argument("--logs", type=pathlib.Path, metavar="FOLDER", help="keep there all that runfabtests.sh prints")
    options = parser.parse_args(argv)
    options.groups = options.groups.split(",")
    if unknown := [group for group in options.groups if group not in GROUPS]:
        parser.error(f"no group {', '.join(unknown)}: {', '.join(GROUPS)}")
    options.providers = options.providers or list(PROVIDERS)
    return options


def find_fabtests() -> pathlib.Path | None:
    """The folder with its programs."""
    if named := os.environ.get("FABTESTS_PATH"):
        folder = pathlib.Path(named).resolve()
        return folder if (folder / "runfabtests.sh").exists() else None
    found = shutil.which("runfabtests.sh")
    return pathlib.Path(found).resolve().parent if found else None


def provider_dir() -> pathlib.Path:
    return pathlib.Path(os.environ.get("VMA_BUILD", HERE.parent / "build")).resolve() / ".libs"


def libfabric_version() -> tuple[int, int]:
    """Of the one that the tests find, asked in a process of its own: Debian's drags in libraries that install signal handlers."""
    ask = "import ctypes; print(ctypes.CDLL('libfabric.so.1').fi_version())"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False, timeout=patience.seconds())
    number = int(done.stdout) if done.returncode == 0 else 0
    return number >> 16, number & 0xFFFF


def namespaces() -> list[str]:
    """The command that makes them, for root and for others. What is in them ends with this process."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    unshare = ["unshare", *own, "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return ["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", INSIDE, "sh"]


def why_no_namespace() -> str:
    """Empty if they can be made."""
    try:
        done = subprocess.run([*namespaces(), "true"], capture_output=True, text=True, check=False, timeout=patience.seconds())
    except OSError as error:
        return str(error)
    return done.stderr.strip().replace("\n", "; ") if done.returncode else ""


def configurations(provider: str) -> list[pathlib.Path]:
    """Of ubertest, those that name this provider."""
    return [path for path in sorted(CONFIGS.glob("*.test")) if f'prov_name: "{provider}"' in path.read_text(encoding="utf-8")]


def plan(options: argparse.Namespace) -> list[Run]:
    runs = []
    for provider in options.providers:
        for group in options.groups:
            if group == "complex":
                runs += [Run(provider, group, config) for config in configurations(provider)]
            else:
                runs.append(Run(provider, group))
    return runs


def command(programs: pathlib.Path, run: Run, timeout: int, excluded: pathlib.Path) -> list[str]:
    limit = timeout * UBERTEST if run.config else timeout
    script = ["bash", str(programs / "runfabtests.sh"), "-vvv" if run.config else "-vv"]
    script += ["-T", str(limit), "-t", run.group, "-p", str(programs)]
    script += ["-f", str(excluded)]  # and no other: fabtests' own lists say no reasons
    script += ["-u", str(run.config)] if run.config else []
    return [*namespaces(), *script, run.provider, "127.0.0.1", "127.0.0.1"]


def environment(programs: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in ("FI_PROVIDER", "PYTHONPATH") and not name.startswith("VMA_")}
    env["PATH"] = f"{folder / 'bin'}:{programs}:{env.get('PATH', '')}:/usr/sbin:/sbin"
    env["FI_PROVIDER_PATH"] = str(provider_dir())
    env["IPATH_NO_BACKTRACE"] = "1"  # else a library of Debian's libfabric catches SIGSEGV, and a crash ends with status 1
    return env


def lines_of(child: subprocess.Popen, silence: int):
    """What it prints, as it comes; ends with TimeoutError where nothing comes for that many seconds."""
    lines: queue.SimpleQueue = queue.SimpleQueue()

    def read():
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=silence)
        except queue.Empty as error:
            raise TimeoutError(f"runfabtests.sh has said nothing for {silence} s") from error
        if line is None:
            return
        yield line


def execute(programs: pathlib.Path, run: Run, options, rows, progress: Progress) -> tuple[list[output.Result], list[str]]:
    """The results, and what went wrong beside them."""
    reader = output.Reader(run.provider)
    results: list[output.Result] = []
    wrong: list[str] = []
    log: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fabtests-") as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").write_text(SSH)
        (folder / "bin" / "ssh").chmod(0o755)
        excluded = [f"^{re.escape(test)}$" for test, row in rows.items() if row.outcome == output.EXCLUDED]
        (folder / "excluded").write_text("".join(f"{pattern}\n" for pattern in excluded or ["^$"]))
        (folder / "work").mkdir()
        child = subprocess.Popen(
            command(programs, run, options.timeout, folder / "excluded"), cwd=folder / "work", env=environment(programs, folder),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)

        def done(result: output.Result | None):
            if result is None:
                return
            if run.config:
                result.name = f"{result.name} {run.config.name}"
            results.append(result)

        what = f"{run.provider} {run.group}" + (f" {run.config.name}" if run.config else "")
        progress.say(f"{what}: begins")
        try:
            silence = 4 * options.timeout * (UBERTEST if run.config else 1) + 60
            for line in lines_of(child, silence):
                log.append(line)
                before = len(results)
                done(reader.feed(line))
                if len(results) > before:
                    last = results[-1]
                    progress.say(f"{what}: {len(results)} of {max(len(rows), len(results))}: {last.name}: {last.outcome}, {last.seconds} s")
            done(reader.finish())
            child.wait()
        except TimeoutError as error:
            wrong.append(str(error))
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if not reader.whole:
        wrong.append("runfabtests.sh has not come to its end" + "".join(f"\n      {line}" for line in output.shorten(reader.stray)))
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
        (options.logs / (re.sub(r"\W+", "-", what) + ".log")).write_text("".join(log))
    return results, wrong


def count(results: list[output.Result]) -> str:
    passed, failed, not_run = (sum(getattr(result, name) for result in results) for name in ("passed", "failed", "not_run"))
    return f"{passed} passed, {failed} failed, {not_run} not run"


def run_all(options, programs: pathlib.Path, table: tables.Table, version: tuple[int, int]) -> bool:
    """Is all as the table says? With --write the table is changed, and nothing wrong but what has no result at all."""
    progress = Progress()
    everything: list[output.Result] = []
    good = True
    for provider, group in dict.fromkeys((run.provider, run.group) for run in plan(options)):
        rows = table.tests(provider, group, version)
        results: list[output.Result] = []
        wrong: list[str] = []
        for run in plan(options):
            if (run.provider, run.group) == (provider, group):
                more, faults = execute(programs, run, options, rows, progress)
                results += more
                wrong += faults
        progress.clear()
        everything += results
        missing = tables.absent(rows, results)
        print(f"{provider} {group}: {count(results)}" + (f" ({len(missing)} more in the table, not in this fabtests)" if missing else ""))
        if not results:
            wrong.append("no test has run")
        if options.write:
            table.update(provider, group, results, version)
        else:
            wrong += tables.differences(rows, results)
        for fault in wrong:
            print(f"  {fault}")
        sys.stdout.flush()
        good = good and not wrong
    print(f"{', '.join(options.providers)}: {count(everything)}; " + ("as the table says" if good and not options.write else
          "the table is written" if options.write else "NOT as the table says"))
    return good


def main() -> int:
    options = arguments()
    programs = find_fabtests()
    if programs is None:
        where = os.environ.get("FABTESTS_PATH") or "PATH"
        print(f"libfabric's fabtests is not installed: no runfabtests.sh in {where} (FABTESTS_PATH may name its folder)")
        return SKIPPED
    if not (provider_dir() / "libvma-fi.so").exists():
        print(f"no libvma-fi.so in {provider_dir()}: build first, or set VMA_BUILD", file=sys.stderr)
        return 2
    if why := why_no_namespace():
        print(f"cannot make a network and process namespace: {why}")
        return SKIPPED
    try:
        table = tables.Table.read(EXPECTED)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    version = libfabric_version()
    print(f"fabtests in {shlex.quote(str(programs))}, libfabric {version[0]}.{version[1]}, provider of {provider_dir()}", flush=True)
    good = run_all(options, programs, table, version)
    if options.write:
        EXPECTED.write_text(table.text(), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
