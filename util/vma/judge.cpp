// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/judge.hpp"

#include <linux/capability.h>
#include <linux/seccomp.h>

namespace vma::command {

namespace {

constexpr std::uint64_t kHostIpc = 0xefffffff; // the kernel's numbers of the first namespaces
constexpr std::uint64_t kHostPid = 0xeffffffc;
constexpr std::uint64_t kFewDescriptors = 1024;
constexpr std::uint64_t kFewStreams = 1024;
constexpr std::uint64_t kPortMemory = std::uint64_t{64} << 20;
constexpr std::uint64_t kSmallFile = std::uint64_t{16} << 20;

bool has(const Place &place, unsigned capability)
{
    return ((place.capabilities >> capability) & 1) != 0;
}

bool only_polls(const Place &place)
{
    for (const char *const name : {"latency", "15", "ultra-latency", "10", "multi_ring_latency", "rti", "784", "7750"})
        if (place.variable("VMA_SPEC") == name)
            return true;
    return place.variable("VMA_RX_POLL") == "-1" || place.variable("VMA_SELECT_POLL") == "-1";
}

void judge_meeting(const Machine &m, Findings &out)
{
    switch (m.meeting) {
    case Meeting::kGood:
        return;
    case Meeting::kMissing:
        out.push_back({Cost::kAll, m.folder + " can't be made, where processes meet",
                       "mount a tmpfs there, or let VMA_SHM_DIR name a folder that can be made"});
        return;
    case Meeting::kReadOnly:
        out.push_back({Cost::kAll, m.folder + ", where processes meet, can't be written to",
                       "make it writable (ReadWritePaths=/dev/shm in a unit), or let VMA_SHM_DIR name another folder"});
        return;
    case Meeting::kStranger:
        out.push_back({Cost::kAll,
                       m.folder + ", where processes meet, is not a folder of this user's alone (mode 0700)",
                       "remove it, or let VMA_SHM_DIR name another folder"});
        return;
    }
}

void judge_filters(const Place &place, const Machine &m, Findings &out)
{
    if (place.seccomp == SECCOMP_MODE_STRICT)
        out.push_back({Cost::kAll, "it is under the strict filter of system calls (seccomp)", "start it without"});
    else if (place.seccomp == SECCOMP_MODE_FILTER && !m.refused.empty())
        out.push_back({Cost::kAll, "a filter of system calls (seccomp) refuses " + m.refused,
                       "allow it: `vma enable --mend` does for a service, a seccomp profile for a container"});
    else if (place.seccomp == SECCOMP_MODE_FILTER && !place.is_self)
        out.push_back({Cost::kNote, "it is under a filter of system calls (seccomp), which can't be read from outside",
                       "start it with VMA_TRACELEVEL=info, whose log names the call if one is refused"});
}

void judge_limits(const Place &place, const Machine &m, Findings &out)
{
    const Limits &l = place.limits;
    if (l.descriptors < kFewDescriptors)
        out.push_back({Cost::kSome,
                       "RLIMIT_NOFILE is " + std::to_string(l.descriptors) +
                           ", and the library needs descriptors beside the program's",
                       "raise it: ulimit -n 65536, LimitNOFILE=65536 in a unit"});
    if (l.file_size < kSmallFile)
        out.push_back({Cost::kSome,
                       "RLIMIT_FSIZE is " + std::to_string(l.file_size) + " bytes, which bounds the shared memory too",
                       "lift it: ulimit -f unlimited, LimitFSIZE=infinity in a unit"});
    if (m.most_streams < kFewStreams)
        out.push_back({Cost::kSome,
                       "at most " + std::to_string(m.most_streams) + " connections are accelerated at a time",
                       l.address_space != kUnlimited ? "lift RLIMIT_AS: ulimit -v unlimited, LimitAS=infinity in a unit"
                       : m.most_mappings < 65530
                           ? "raise the mappings of a process: sysctl vm.max_map_count=262144"
                           : "give it more memory (memory.max of its control group), or a smaller VMA_STREAM_RING"});
}

void judge_namespaces(const Place &place, const Machine &m, Findings &out)
{
    const Namespaces &n = place.namespaces;
    const bool apart =
        (m.first_network != 0 && n.network != 0 && n.network != m.first_network) || (n.pid != 0 && n.pid != kHostPid);
    const std::string path = m.broker_path;
    const auto tell = [&out, apart](const std::string &what, const char *mend) {
        out.push_back({apart ? Cost::kSome : Cost::kNote, what + " stay on the kernel", mend});
    };
    if (n.ipc != 0 && n.ipc != kHostIpc)
        out.push_back({Cost::kNote, "its IPC namespace is its own: only processes in it are met without vmad",
                       "share it (PrivateIPC=no in a unit, --ipc=host in a container), or run vmad"});
    switch (m.broker) {
    case Broker::kAnswers:
    case Broker::kUnwanted:
        return;
    case Broker::kForbidden:
        tell("vmad's socket " + path + " may not be connected to: connections to other network namespaces",
             "let this user reach the socket (vmad(8))");
        return;
    case Broker::kSilent:
        tell("vmad does not answer at " + path + ": connections to other network namespaces",
             "start it again: systemctl restart vma");
        return;
    case Broker::kNobody:
        tell("vmad is not at " + path + ": connections to other network namespaces (containers)",
             apart ? "start it on the host and mount /run/vma into the container (vmad(8))"
                   : "start it if you need those: systemctl start vma");
        return;
    }
}

void judge_variables(const Place &place, Findings &out)
{
    if (place.variable("VMA_OFFLOADED_SOCKETS") == "0")
        out.push_back({Cost::kAll, "VMA_OFFLOADED_SOCKETS is 0", "unset it"});
    if (only_polls(place) && place.processors < 2)
        out.push_back({Cost::kSome, "it has one processor, and these settings wait by polling alone",
                       "leave VMA_SPEC away, or give it another processor"});
}

void judge_ports(const Place &place, const Machine &m, Findings &out)
{
    const bool ethernet = !place.variable("VMA_ETHERNET").empty();
    for (const Interface &one : m.interfaces)
        if (!one.exists)
            out.push_back(
                {Cost::kSome, "VMA_ETHERNET: there is no interface " + one.name, "name one that `ip link` lists"});
        else if (!one.is_up)
            out.push_back({Cost::kSome, "VMA_ETHERNET: the interface " + one.name + " is down",
                           "ip link set " + one.name + " up"});
    if (!ethernet)
        return;
    if (!has(place, CAP_NET_RAW) || !has(place, CAP_NET_ADMIN) || !(has(place, CAP_BPF) || has(place, CAP_SYS_ADMIN)))
        out.push_back({Cost::kSome, "VMA_ETHERNET needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF",
                       "start it as root, or with AmbientCapabilities= in a unit"});
    if (place.limits.locked_memory < kPortMemory && !has(place, CAP_IPC_LOCK))
        out.push_back({Cost::kSome,
                       "RLIMIT_MEMLOCK is " + std::to_string(place.limits.locked_memory >> 10) +
                           " KiB, and an Ethernet port's frames are locked in memory",
                       "raise it: ulimit -l unlimited, LimitMEMLOCK=infinity in a unit"});
    if (m.huge_pages == 0)
        out.push_back({Cost::kNote, "there are no free huge pages for the frames of Ethernet ports",
                       "sysctl vm.nr_hugepages=64"});
}

} // namespace

Findings judge(const Place &place, const Machine &machine)
{
    Findings out;
    judge_meeting(machine, out);
    judge_filters(place, machine, out);
    judge_limits(place, machine, out);
    judge_namespaces(place, machine, out);
    judge_variables(place, out);
    judge_ports(place, machine, out);
    return out;
}

} // namespace vma::command
