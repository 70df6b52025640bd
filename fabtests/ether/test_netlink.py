# SPDX-License-Identifier: BSD-2-Clause
"""The network configuration as the Ethernet device follows it, against what `ip` has just changed."""

import re
import subprocess

import pytest

from lib import build, netns, patience
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, Asked, set_sysctl

OTHER = "10.99.0.77"


@pytest.fixture
def hosts():
    made = netns.hosts()
    yield made
    made.remove()


@pytest.fixture
def watch(run, hosts):
    """watch(argument...): net_watch on the left host, in the state that it has read first."""
    made = []

    def started(*argv):
        made.append(Asked(run, hosts.left, "watch", build.program("ether/programs/net_watch"), *argv))
        assert made[-1].next_line() == "open"
        return made[-1]

    yield started
    for one in made:
        one.close()
        one.proc.ok()


def mac_of(host) -> str:
    shown = subprocess.run(["ip", "-n", host.name, "link", "show", "wire"], capture_output=True, text=True, check=True)
    return re.search(r"link/ether (\S+)", shown.stdout)[1]


def addresses_of(host) -> str:
    return subprocess.run(["ip", "-n", host.name, "-o", "addr", "show"], capture_output=True, text=True, check=True).stdout


def batch(host, lines):
    subprocess.run(["ip", "-n", host.name, "-batch", "-"], input="\n".join(lines), text=True, check=True, timeout=patience.seconds())


def generation(net) -> int:
    return int(net.ask("generation"))


def changes(net, change):
    """Runs change(): the generation must go up."""
    before = generation(net)
    change()
    assert generation(net) > before


def test_links(run, hosts, watch):
    net = watch()
    left = hosts.left
    mac = mac_of(left)
    assert net.ask("link wire") == f"mtu 1500 up 1 carrier 1 mac {mac}"
    changes(net, lambda: left.ip("link", "set", "wire", "mtu", "1400"))
    assert net.ask("link wire") == f"mtu 1400 up 1 carrier 1 mac {mac}"
    before = generation(net)
    assert generation(net) == before, "nothing has changed"
    hosts.right.ip("link", "set", "wire", "down")
    run.wait_until(lambda: net.ask("link wire") == f"mtu 1400 up 1 carrier 0 mac {mac}", "no carrier")
    changes(net, lambda: left.ip("link", "set", "wire", "down"))
    left.ip("link", "set", "wire", "name", "cable", "address", "02:00:00:00:00:07", "up")
    assert net.ask("link wire") == "none"
    assert net.ask("link cable") == "mtu 1400 up 1 carrier 0 mac 02:00:00:00:00:07"
    changes(net, lambda: left.ip("link", "del", "cable"))
    assert net.ask("link cable") == "none"
    assert net.ask(f"local {LEFT}") == "0"


def test_addresses(hosts, watch):
    net = watch()
    assert [net.ask(f"local {a}") for a in (LEFT, LEFT6, RIGHT, OTHER)] == ["1", "1", "0", "0"]
    changes(net, lambda: hosts.left.ip("addr", "add", f"{OTHER}/24", "dev", "wire"))
    assert net.ask(f"local {OTHER}") == "1"
    changes(net, lambda: hosts.left.ip("addr", "del", f"{OTHER}/24", "dev", "wire"))
    assert net.ask(f"local {OTHER}") == "0"
    hosts.left.ip("addr", "del", f"{LEFT6}/64", "dev", "wire")
    assert net.ask(f"local {LEFT6}") == "0"


def test_routes(hosts, watch):
    net, left = watch(), hosts.left
    assert net.ask(f"route {RIGHT}") == f"unicast dev wire via {RIGHT} from {LEFT} mtu 0"
    assert net.ask(f"route {RIGHT6}") == f"unicast dev wire via {RIGHT6} from {LEFT6} mtu 0"
    assert net.ask(f"route {LEFT}").startswith(f"local dev lo via {LEFT} from {LEFT} ")
    assert net.ask("route 10.99.0.255").startswith("broadcast dev wire ")
    assert net.ask("route 224.1.2.3").startswith("multicast dev lo ")
    assert net.ask("route 8.8.8.8") == net.ask("route 2001::8") == "ENETUNREACH"
    changes(net, lambda: left.ip("route", "add", "default", "via", RIGHT, "mtu", "1300"))
    assert net.ask("route 8.8.8.8") == f"unicast dev wire via {RIGHT} from {LEFT} mtu 1300"
    changes(net, lambda: left.ip("route", "add", "default", "via", RIGHT6))
    assert net.ask("route 2001::8") == f"unicast dev wire via {RIGHT6} from {LEFT6} mtu 0"
    changes(net, lambda: left.ip("route", "add", "prohibit", "8.8.8.8"))
    assert net.ask("route 8.8.8.8") == "EACCES"
    left.ip("route", "add", "blackhole", "8.8.4.4")
    assert net.ask("route 8.8.4.4") == "EINVAL"
    # A gateway of the other family, and a rule that only another source obeys.
    left.ip("route", "add", "9.9.9.0/24", "via", "inet6", RIGHT6, "dev", "wire")
    assert net.ask("route 9.9.9.9") == f"unicast dev wire via {RIGHT6} from {LEFT} mtu 0"
    left.ip("addr", "add", f"{OTHER}/24", "dev", "wire")
    left.ip("route", "add", "unreachable", "default", "table", "77")
    changes(net, lambda: left.ip("rule", "add", "from", OTHER, "to", "9.9.9.0/24", "table", "77"))
    assert net.ask(f"route 9.9.9.9 {OTHER}") == "EHOSTUNREACH"
    assert net.ask(f"route 9.9.9.9 {LEFT}") == f"unicast dev wire via {RIGHT6} from {LEFT} mtu 0"
    changes(net, lambda: left.ip("link", "set", "wire", "down"))
    assert net.ask(f"route {RIGHT}") == "ENETUNREACH"


def test_nexthop_objects(hosts, watch):
    net, left = watch(), hosts.left
    left.ip("nexthop", "add", "id", "5", "via", RIGHT, "dev", "wire")
    left.ip("route", "add", "9.9.9.0/24", "nhid", "5")
    assert net.ask("route 9.9.9.9").startswith(f"unicast dev wire via {RIGHT} ")
    changes(net, lambda: left.ip("nexthop", "replace", "id", "5", "via", OTHER, "dev", "wire"))
    assert net.ask("route 9.9.9.9").startswith(f"unicast dev wire via {OTHER} ")


@pytest.mark.parametrize("right", [RIGHT, RIGHT6])
def test_neighbours(run, hosts, watch, right):
    net, mac = watch(), mac_of(hosts.right)
    ask = f"neighbour wire {right}"
    absent = right[:-1] + "9"
    # The kernel solicits from its link-local address only, and first sees to it that nobody else has that.
    run.wait_until(lambda: "tentative" not in addresses_of(hosts.left), "the link-local address")
    assert net.ask(ask).startswith("none")
    before = int(net.ask("neighbours"))
    net.do(f"resolve wire {right}")
    run.wait_until(lambda: net.ask(ask) == f"usable {mac}", "the neighbour")
    assert int(net.ask("neighbours")) > before
    # Nobody answers, which need not take three seconds.
    set_sysctl(hosts.left, "ipv4/neigh/wire/retrans_time_ms", 50)
    set_sysctl(hosts.left, "ipv6/neigh/wire/retrans_time_ms", 50)
    assert net.ask(f"neighbour wire {absent}").startswith("none")
    net.do(f"resolve wire {absent}")
    run.wait_until(lambda: net.ask(f"neighbour wire {absent}").startswith("failed"), "no answer")
    # It moves to another adapter; then it is gone.
    hosts.left.ip("neigh", "replace", right, "lladdr", "02:00:00:00:00:09", "dev", "wire", "nud", "permanent")
    assert net.ask(ask) == "usable 02:00:00:00:00:09"
    hosts.left.ip("neigh", "replace", right, "lladdr", "02:00:00:00:00:09", "dev", "wire", "nud", "stale")
    assert net.ask(ask) == "stale 02:00:00:00:00:09"
    net.do(f"resolve wire {right}")  # which asks the old place, then everybody
    hosts.left.ip("neigh", "del", right, "dev", "wire")
    assert net.ask(ask).startswith(("none", "failed"))


def test_lost_events(hosts, watch):
    """More changes than the kernel keeps for one who doesn't look: what is read again is what there is."""
    net = watch(1)  # the least that the kernel allows
    assert net.ask(f"neighbour wire {OTHER}").startswith("none")
    before = generation(net)
    net.do("hold")
    hosts.left.ip("addr", "add", f"{OTHER}/24", "dev", "wire")
    for verb in ("add", "del"):
        batch(hosts.left, [f"addr {verb} 10.98.{i // 250}.{i % 250 + 1}/32 dev wire" for i in range(500)])
    batch(hosts.left, [f"addr add 10.97.0.{i}/32 dev wire" for i in range(1, 21)])
    hosts.left.ip("neigh", "add", OTHER, "lladdr", "02:00:00:00:00:09", "dev", "wire", "nud", "permanent")
    hosts.left.ip("addr", "del", f"{LEFT}/24", "dev", "wire")
    net.do("follow")
    assert net.ask("overruns") == "1"
    assert net.ask(f"local {LEFT}") == "0" and net.ask("local 10.97.0.20") == "1" and net.ask("local 10.98.1.1") == "0"
    assert int(net.ask("locals")) == len(addresses_of(hosts.left).splitlines())
    assert net.ask(f"neighbour wire {OTHER}") == "usable 02:00:00:00:00:09"
    assert generation(net) > before
