# SPDX-License-Identifier: BSD-2-Clause
"""PostgreSQL, pgbench and psql over loopback TCP: a server that forks for each connection and for each worker of a parallel query,
the same answers without the library, with it, and with VMA_SPEC=latency. It refuses to run as root: all of it is another user's."""

import os
import pathlib
import pwd
import re
import shutil
import tempfile

import pytest

from lib import build, expect, pairing

pytestmark = pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED)
WHERE = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
shared_buffers = 16MB
max_connections = 40
max_parallel_workers_per_gather = 3
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
"""


def tool(name):
    return build.tool(name) if not WHERE else str(WHERE[-1].parent / name)


class User:
    """Somebody who is not root, and who owns what the programs write."""

    def __init__(self):
        self.entry = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())

    def become(self):
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(*[self.entry.pw_gid] * 3)
            os.setresuid(*[self.entry.pw_uid] * 3)

    def own(self, *places):
        for place in places:
            os.chown(place, self.entry.pw_uid, self.entry.pw_gid)


@pytest.fixture(scope="module")
def template():
    """A folder for a database that has been initialized; initdb takes longer than any test of it."""
    if not WHERE:
        pytest.skip("postgresql is not installed")
    place = pathlib.Path(tempfile.mkdtemp(prefix="fabtests-"))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def database(run, port, pair, template):
    user = User()
    user.own(run.work, run.shm, template)
    if not (template / "data").exists():
        run.run("initdb", [tool("initdb"), "-D", template / "data", "-A", "trust", "-U", "bench", "--no-sync", "-E", "UTF8",
                           "--locale=C"], preexec=user.become)
        with (template / "data" / "postgresql.conf").open("a") as out:
            out.write(CONFIGURATION)
    shutil.copytree(template / "data", run.work / "data", copy_function=shutil.copy2)
    user.own(run.work / "data", *(run.work / "data").rglob("*"))
    server = run.start("server", [tool("postgres"), "-D", run.work / "data", "-p", port], vma=pair.server, mode=pair.mode,
                       preexec=user.become)
    run.wait_port(port, server)
    run.wait_until(lambda: "ready to accept connections" in server.stderr(), "the server to be ready", proc=server)
    server.user = user
    yield server
    assert server.stop() == 0
    text = server.stderr()
    assert not re.search(r"PANIC|FATAL|terminated by signal|crash", text), text


def start(run, pair, database, port, name, *arguments, **options):
    """psql or pgbench, as the database's user."""
    environment = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "bench", "PGDATABASE": "postgres", "PGSSLMODE": "disable"}
    return run.start(name, [tool(name), *arguments], vma=pair.client, mode=pair.mode, env=environment,
                     preexec=database.user.become, **options)


def client(run, pair, database, port, name, *arguments, **options):
    return start(run, pair, database, port, name, *arguments, **options).ok()


def ask(run, pair, database, port, *questions):
    commands = [word for question in questions for word in ("-c", question)]
    return client(run, pair, database, port, "psql", "-XAtq", *commands).stdout().split("\n")[:-1]


def test_pgbench(run, pair, port, database):
    """Transactions of four clients, in each protocol; what they add up to is what the accounts hold."""
    client(run, pair, database, port, "pgbench", "-i", "-q", "-s", 1)
    done = 0
    for protocol in ("simple", "extended", "prepared"):
        bench = client(run, pair, database, port, "pgbench", "-n", "-M", protocol, "-c", 4, "-j", 2, "-t", 60)
        assert "number of failed transactions: 0" in bench.stdout(), bench.output()
        done += int(re.search(r"actually processed: (\d+)/", bench.stdout())[1])
        expect.acceleration(pair, port, database, bench, offloaded=False)
    bench = client(run, pair, database, port, "pgbench", "-n", "-C", "-S", "-c", 4, "-j", 2, "-t", 10)  # a connection each
    assert "number of failed transactions: 0" in bench.stdout(), bench.output()

    def look(turn):
        bench = client(run, pair, database, port, "pgbench", "-n", "-S", "-M", "prepared", "-c", 4, "-j", 2, "-t", 500 << min(turn, 6))
        assert "number of failed transactions: 0" in bench.stdout(), bench.output()
        return database, bench

    _, bench = expect.rounds(pair, look, expect.of_port(port))
    expect.acceleration(pair, port, database, bench)
    sums = "SELECT sum(abalance) FROM pgbench_accounts", "SELECT sum(bbalance) FROM pgbench_branches", "SELECT sum(delta) FROM pgbench_history"
    found = ask(run, pair, database, port, *sums, "SELECT count(*) FROM pgbench_history")
    assert done == 4 * 60 * 3 and found[3] == str(done)
    assert found[0] == found[1] == found[2]


def test_copy(run, pair, port, database):
    """COPY in and out by psql: megabytes in each direction on one connection, then the same rows."""
    rows = "".join(f"{number}\t{'x' * (number % 300)}{number * 7919 % 100_003}\n" for number in range(40_000))
    (run.work / "rows").write_text(rows)
    script = (f"CREATE TABLE t (a int, b text);\n\\copy t from '{run.work}/rows'\n\\copy t to '{run.work}/back'\n"
              "SELECT count(*), sum(a), sum(length(b)) FROM t;\n\\copy (SELECT * FROM t ORDER BY a DESC LIMIT 3) to stdout\n")
    said = client(run, pair, database, port, "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", stdin=script.encode()).stdout()
    assert sorted((run.work / "back").read_text().splitlines()) == sorted(rows.splitlines())  # an unordered table
    lines = rows.splitlines()
    total = sum(len(line.split("\t")[1]) for line in lines)
    assert said.splitlines() == [f"40000|{sum(range(40_000))}|{total}", *lines[:-4:-1]]


def test_parallel_query(run, pair, port, database):
    """Workers that the server forks while connections live, a large answer, a query that is cancelled."""
    found = ask(run, pair, database, port, "CREATE TABLE n AS SELECT g FROM generate_series(1, 300000) g", "ANALYZE n",
                "EXPLAIN (ANALYZE, COSTS OFF) SELECT count(*), sum(g) FROM n", "SELECT count(*), sum(g) FROM n",
                "SELECT length(string_agg(md5(g::text), '')) FROM n",
                "SELECT sum(length(repeat)) FROM (SELECT repeat('x', 1000) FROM n LIMIT 2000) r")
    workers = [line.strip() for line in found if "Workers Launched" in line]
    assert workers and not workers[0].endswith(" 0")
    assert found[-3:] == [f"300000|{sum(range(300_001))}", str(300_000 * 32), "2000000"]
    wide = ask(run, pair, database, port, "SELECT repeat(md5(g::text), 100) FROM n WHERE g <= 2000 ORDER BY g")
    assert len(wide) == 2000 and all(len(line) == 3200 for line in wide)
    slow = start(run, pair, database, port, "psql", "-XAtq", "-c", "SET statement_timeout = 100; SELECT pg_sleep(50)")
    assert slow.fails() == 1
    assert "canceling statement due to statement timeout" in slow.stderr()
