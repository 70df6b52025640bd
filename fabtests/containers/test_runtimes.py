# SPDX-License-Identifier: BSD-2-Clause
"""What containers are made by below podman or without it: crun and runc with a bundle, bubblewrap, unshare(1). Each has a network namespace on a
wire to the other's, and all namespaces else of its own."""

import json

import pytest

from lib import build
from lib.podman import Podman
from lib.talk import PORT, PYTHON, USERS, accelerated

ADDRESSES = {"server": "10.77.0.1", "client": "10.77.0.2"}


class Plain(Podman):
    """Starts programs in a container of one of these, on the wire."""

    def command_of(self, how, name, argv, env):
        return getattr(self, f"_by_{how}")(name, [str(word) for word in argv], env)

    def _bundle(self, runtime, name, argv, env):
        bundle = self._run.work / f"bundle-{name}"
        bundle.mkdir()
        self._run.run(f"spec-{name}", [build.tool(runtime), "spec"], cwd=bundle)
        config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
        config["process"] |= {"terminal": False, "args": argv, "env": [f"{what}={value}" for what, value in env.items()]}
        config["process"].pop("rlimits", None)
        config["root"] = {"path": str(self.root), "readonly": True}
        config["mounts"] += [{"destination": str(what), "source": str(what), "type": "bind", "options": ["bind", how]} for what, how in self.binds.items()]
        spaces = config["linux"]["namespaces"]
        config["linux"]["namespaces"] = [one for one in spaces if one["type"] != "network"] + [{"type": "network", "path": f"/run/netns/{name}"}]
        (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return [build.tool(runtime), "run", "--bundle", bundle, name]

    def _by_crun(self, name, argv, env):
        return self._bundle("crun", name, argv, env)

    def _by_runc(self, name, argv, env):
        return self._bundle("runc", name, argv, env)

    def _by_bwrap(self, name, argv, env):
        binds = [word for what, how in self.binds.items() for word in ("--bind" if how == "rw" else "--ro-bind", what, what)]
        links = [word for name in ("bin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
        settings = [word for what, value in env.items() for word in ("--setenv", what, value)]
        return ["ip", "netns", "exec", name, build.tool("bwrap"), "--tmpfs", "/tmp", *binds, *links, "--ro-bind", self.root / "etc", "/etc",
                "--proc", "/proc", "--dev", "/dev", "--unshare-all", "--share-net", "--die-with-parent", "--clearenv", *settings, "--", *argv]

    def _by_unshare(self, name, argv, env):
        own = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts", "--cgroup"]
        return ["ip", "netns", "exec", name, *own, "env", *(f"{what}={value}" for what, value in env.items()), *argv]

    def begin(self, how, name, argv, env=None, stdin=None):
        env = {"LC_ALL": "C.UTF-8", **self.settings(name, "latency"), **(env or {})}
        return self._run.start(name, self._machine.command(*self.command_of(how, name, argv, env)), stdin=stdin)


@pytest.fixture
def plain(run, machine):
    run.run("wire", machine.command("sh", "-ec", """
        for name in server client; do ip netns add $name; ip -n $name link set lo up; done
        ip link add wire netns server type veth peer name wire netns client
        ip -n server addr add 10.77.0.1/24 dev wire; ip -n client addr add 10.77.0.2/24 dev wire
        for name in server client; do ip -n $name link set wire up; done"""))
    return Plain(run, machine)


@pytest.mark.parametrize("how, other", [("crun", "crun"), ("runc", "runc"), ("bwrap", "bwrap"), ("unshare", "unshare"), ("runc", "bwrap")])
def test_two_of_them(run, vmad, plain, feed, how, other):
    server = plain.begin(how, "server", [PYTHON, "-B", USERS, "serve", ADDRESSES["server"], PORT]).wait_output("ready")
    client = plain.begin(other, "client", [PYTHON, "-B", USERS, "ask", ADDRESSES["server"], PORT], env={"FABTEST_LIFT": "1"}, stdin=feed.file)
    accelerated(run, feed, server, client)
