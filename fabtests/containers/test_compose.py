# SPDX-License-Identifier: BSD-2-Clause
"""contrib/container: the services of the compose file run by podman, and whatever is named there exists."""

import re
import shutil
import subprocess

import pytest
import yaml

from lib import build
from lib.machine import version

FOLDER = build.TOP / "contrib/container"
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"]
DOCUMENTS = list(yaml.safe_load_all((FOLDER / "daemonset.yaml").read_text(encoding="utf-8")))
FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())
INSTALLED = {"lib/libvma.so": ".libs/libvma.so", "lib/libfabric/libvma-fi.so": ".libs/libvma-fi.so", "sbin/vmad": "vmad"}
REDIS_PORT = 6379
ADDRESS = "10.88.0.10"


def options(service, skip=()):
    """podman's, of a service."""
    said = []
    for key, value in service.items():
        if key in ("build", "image", "command", "depends_on", "environment"):
            continue
        if key == "volumes":
            said += [word for one in value if one.split(":")[0] not in skip for word in ("-v", one)]
        elif key in ("cap_add", "cap_drop", "security_opt"):
            said += [word for one in value for word in (f"--{key.replace('_', '-')}", one)]
        else:
            said.append({"network_mode": f"--network={value}", "pid": f"--pid={value}", "cgroup": f"--cgroupns={value}",
                         "read_only": "--read-only"}[key])
    return said


@pytest.fixture
def installed(work):
    for there, built in INSTALLED.items():
        place = work / "local" / there
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build.build_dir() / built, place)
    return work / "local"


@pytest.fixture
def service(run, podman, installed):
    """service(name, ...): one of the compose file's."""
    def start(name, *more, logs=False, skip=(), arguments=()):
        said = SERVICES[name]
        log = {"VMA_TRACELEVEL": "debug", "VMA_LOG_FILE": f"{run.log_dir}/{name}.%d.log"} if logs else {}
        binds = {"/usr": "ro", **({run.log_dir: "rw"} if logs else {})}
        # The image has packages, in /usr, which here is this machine's.
        where = {"LD_LIBRARY_PATH": "/usr/local/lib"} if "LD_PRELOAD" in said.get("environment", {}) else {}
        return podman.start(name, [*said["command"], *arguments], *options(said, skip), "-v", f"{installed}:/usr/local:ro", *more, vma=False,
                            env={**said.get("environment", {}), **where, **log}, binds=binds)
    return start


def test_its_services(run, machine, podman, service):
    """vmad in a container of its own with the rights that it is given, redis, and a client."""
    skip, more, arguments = (), [], []
    if version() == 1:  # there is no tree of version 2 where others have it
        run.run("tree", machine.command("sh", "-ec", "mkdir /run/tree; mount -t cgroup2 none /run/tree"))
        skip, more, arguments = ["/sys/fs/cgroup"], ["-v", "/run/tree:/run/tree"], ["--cgroup", "/run/tree"]
    podman.root.joinpath("run/tree").mkdir()
    vmad = service("vmad", *more, skip=skip, arguments=arguments)
    run.wait_until(lambda: "vmad introduces" in vmad.stdout() or "no broker" in vmad.output(), "vmad to introduce", proc=vmad)
    assert "no broker" not in vmad.output()
    redis = service("redis", "--ip", ADDRESS, logs=True).wait_output("Ready to accept")
    client = service("client", "--add-host", f"redis:{ADDRESS}", logs=True).ok()
    assert client.log().accelerated(REDIS_PORT) > 0, client.log().not_accelerated()
    for name, proc in (("redis", redis), ("vmad", vmad)):
        podman.do("stop", name)
        proc.ok()
    assert redis.log().accelerated(REDIS_PORT) > 0
    assert "SET: " in client.stdout() and "GET: " in client.stdout()


def document(kind):
    return next(one for one in DOCUMENTS if one["kind"] == kind)


def pod_of(one):
    return one["spec"]["template"]["spec"] if one["kind"] == "DaemonSet" else one["spec"]


def test_the_daemonset_is_the_compose_files():
    """The same rights, the same folder, the same program."""
    spec, vmad = pod_of(document("DaemonSet")), SERVICES["vmad"]
    (container,) = spec["containers"]
    rights = container["securityContext"]
    assert rights["capabilities"] == {"add": vmad["cap_add"], "drop": vmad["cap_drop"]}
    assert rights["seccompProfile"] == {"type": "Unconfined"} and "seccomp=unconfined" in vmad["security_opt"]
    assert spec["hostNetwork"] and vmad["network_mode"] == "host" and spec["hostPID"] and vmad["pid"] == "host"
    assert container["command"][:len(vmad["command"])] == vmad["command"]
    (redis,) = pod_of(document("Pod"))["containers"]
    assert redis["command"] == SERVICES["redis"]["command"]
    assert {one["name"]: one["value"] for one in redis["env"]} == SERVICES["redis"]["environment"]


@pytest.mark.parametrize("kind", ["DaemonSet", "Pod"])
def test_volumes_are_there(kind):
    spec = pod_of(document(kind))
    volumes = {one["name"]: one for one in spec["volumes"]}
    mounts = {one["name"]: one for one in spec["containers"][0]["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    for name, volume in volumes.items():
        if "configMap" in volume:
            assert volume["configMap"]["name"] == document("ConfigMap")["metadata"]["name"]
            assert mounts[name]["subPath"] in document("ConfigMap")["data"]
    assert any(volume.get("hostPath", {}).get("path") == "/run/vma" for volume in volumes.values())


def test_rules_can_be_read():
    """Those of the ConfigMap, and those in it that are comments."""
    text = document("ConfigMap")["data"]["vmad.conf"]
    rules = [line.lstrip("# ") for line in text.splitlines()]
    grammar = re.compile(r"broker (allow|deny) user \S+( cgroup \S+)? with user \S+( cgroup \S+)?( port \d+(-\d+)?)?")
    assert rules and all(grammar.fullmatch(rule) for rule in rules)


def test_names_exist():
    """Variables, options and files of the project that are named in contrib/container."""
    parameters = (build.TOP / "man/libvma.7").read_text(encoding="utf-8")
    help_text = subprocess.run([build.build_dir() / "vmad", "--help"], capture_output=True, text=True, check=True).stdout
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for name in set(re.findall(r"\bVMA_[A-Z_]+\b", text)):
            assert name in parameters, f"{path.name}: {name}"
        for name in set(re.findall(r"\b(?:contrib|doc|fabtests|man)/[\w./-]*\w", text)):
            assert (build.TOP / name).exists(), f"{path.name}: {name}"
    for command in SERVICES["vmad"]["command"], pod_of(document("DaemonSet"))["containers"][0]["command"]:
        for option in filter(lambda word: word.startswith("--"), command):
            assert option in help_text, option
