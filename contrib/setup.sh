#!/usr/bin/env bash
# One door to a fresh machine (Debian 12): installs what the project needs, builds it, tests it, shows it.
# Build rules are in Makefile.am, and what a full check consists of in contrib/check.py; neither is repeated here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." && SELF=contrib/setup.sh

# Every Debian package that building, testing or the demo needs: the only lists.
BUILD_PACKAGES=(
    g++ make autoconf automake pkg-config libfabric-dev libibverbs-dev librdmacm-dev libhwloc-dev libbpf-dev libmnl-dev libncurses-dev
    systemtap-sdt-dev
    libpcap-dev
    git ca-certificates xz-utils
)
DEMO_PACKAGES=("${BUILD_PACKAGES[@]}" sockperf redis-server redis-tools procps iproute2 python3 python3-matplotlib)
PACKAGES=(
    "${DEMO_PACKAGES[@]}"
    # tests and checks
    libcmocka-dev libfabric-bin clang clang-format clang-tidy python3-pytest
    binutils lld util-linux nftables iputils-ping ethtool strace tcpdump tshark valgrind spin man-db mandoc
    # MPI over libvma-fi.so; libopenmpi-dev has what mpicc compiles with
    openmpi-bin libopenmpi-dev
    # programs that are run, unmodified, over libvma.so
    nginx-light php8.2-fpm wrk iperf3 netcat-openbsd socat memcached curl openssl
    openssh-client openssh-server openssh-sftp-server rsync postgresql-15 haproxy nodejs openjdk-17-jre-headless
    python3-zmq python3-grpcio nanomsg-utils iperf mosquitto mosquitto-clients hey nats-server
    libpython3.11-testsuite libjemalloc2 libeatmydata1 libboost-dev liburing-dev
    # a whole machine under it (contrib/lab/system)
    systemd-sysv dbus cron postfix dnsmasq
    # containers: podman with its runtimes, networks and pods, root's and other users'; compose files
    podman crun runc bubblewrap netavark iptables catatonit slirp4netns uidmap python3-yaml
    # contrib/lab: QEMU guests with RDMA devices
    qemu-system-x86 busybox-static kmod rdmacm-utils ibverbs-utils ibverbs-providers
    # packages, and a fresh system to install them into
    debhelper lintian mmdebstrap rpm ccache
    # AArch64: a cross compiler, and an emulator for what it makes
    g++-aarch64-linux-gnu qemu-user
)

PYTHON=/usr/bin/python3 # Debian's: another one in PATH lacks Debian's pytest
JOBS=${JOBS:-$(nproc)}
BUILD=build
DEMO_GOALS=(contrib/standard.hpp.gch .libs/libvma.so .libs/libvma-fi.so vma contrib/bench/cacheline) # `vma`: the README goes on with it
LOGS=$BUILD/check-logs

usage() {
    cat <<TEXT
Usage: contrib/setup.sh COMMAND

  deps          install the Debian packages that the project needs (as root, or with sudo)
  build         make ./build: both libraries, tests not included
  check         deps, build, then the unit tests, the style checks, and the whole-program tests that say most;
                the last line counts them
  check --all [--minutes N]
                every test and check; --minutes leaves stages out that would not end in time
  check STAGE...
                those of the stages named (--list names them)
  demo [ARG...] the packages and the part of the build that it needs, then contrib/bench/demo.py ARG...

JOBS=N sets how many compilers run at a time (now $JOBS). Logs are in ./$LOGS.
TEXT
}

say() { printf '==> %s\n' "$*"; }

# run NAME COMMAND...: quietly, with the output in a log that is named, and its end shown, when the command fails.
run() {
    local log=$LOGS/$1.log
    shift
    mkdir -p "$LOGS"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 40 "$log" >&2
        printf 'failed: %s\nthe whole log: %s\n' "$*" "$log" >&2
        exit 1
    fi
}

missing_packages() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
    done
}

install_packages() {
    # Packages of servers start them at once, unless this file says no (101 is "forbidden by policy").
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o Acquire::Retries=3 update
    local quick=() # a machine that is thrown away needs nothing on its disk
    [ -z "${CI:-}" ] || quick=(-o Dpkg::Options::=--force-unsafe-io)
    apt-get -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold "${quick[@]}" install -y --no-install-recommends "$@"
}

# deps PACKAGE...: installs those that are missing.
deps() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    if [ ${#missing[@]} -eq 0 ]; then
        say "packages: all $# installed"
        return
    fi
    say "packages: installing ${missing[*]}"
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "not root, and no sudo without a password: install them yourself" >&2
            exit 1
        fi
        root=(sudo -n)
    fi
    run deps "${root[@]}" bash -euc "$(declare -f install_packages); install_packages \"\$@\"" install "${missing[@]}"
}

# Huge pages, which are root's to set, for what is compiled here: a compiler then faults half as often (doc/checks.md).
# They are put back as they were.
huge_pages() {
    local setting=/sys/kernel/mm/transparent_hugepage/enabled
    if [ -w "$setting" ]; then
        # shellcheck disable=SC2064 # as it is now
        trap "echo '$(sed 's/.*\[\(.*\)\].*/\1/' "$setting")' >$setting" EXIT
        echo always >"$setting"
    fi
}

# build GOAL...: one after the other.
build() {
    local goal
    say "build: $BUILD"
    huge_pages
    [ -x configure ] || run autogen ./autogen.sh
    mkdir -p "$BUILD"
    # Lines are what backtraces and profiles need; full debug information takes a sixth more time to compile.
    [ -f "$BUILD/Makefile" ] || run configure env -C "$BUILD" CXXFLAGS="${CXXFLAGS:--O2 -g1}" ../configure --enable-precompiled
    for goal; do
        run make make -C "$BUILD" -j"$JOBS" "$goal"
    done
    say "build: $BUILD/.libs/libvma.so, $BUILD/.libs/libvma-fi.so"
}

case "${1:-}" in
deps) deps "${PACKAGES[@]}" ;;
build) build all ;;
check)
    shift
    if ! "$SELF" deps; then
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
    exec "$PYTHON" contrib/check.py --jobs "$JOBS" "$@"
    ;;
demo)
    shift
    deps "${DEMO_PACKAGES[@]}"
    (build "${DEMO_GOALS[@]}") # in a shell of its own: huge pages end with it
    exec "$PYTHON" contrib/bench/demo.py "$@"
    ;;
-h | --help | help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
