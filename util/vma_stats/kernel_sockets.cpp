// SPDX-License-Identifier: BSD-2-Clause
// Reads /proc/PID/net/{tcp,tcp6,udp,udp6}, which are of the process's network namespace.
#include "util/vma_stats/kernel_sockets.hpp"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unordered_map>

namespace vma_stats {

namespace {

using vma::stats::Facts;

std::unordered_map<std::uint64_t, KernelSocket> g_known;

std::uint64_t inode_of(pid_t pid, int fd)
{
    char target[64];
    const std::string link = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target - 1);
    unsigned long long inode = 0;
    if (length <= 0)
        return 0;
    target[length] = '\0';
    return sscanf(target, "socket:[%llu]", &inode) == 1 ? inode : 0;
}

// "0100007F": four bytes in each word, in the processor's order.
bool read_address(const char *hex, bool v6, in6_addr &out)
{
    std::uint32_t words[4] = {0, 0, htonl(0xffff), 0};
    for (int i = v6 ? 0 : 3; i < 4; ++i) {
        char word[9] = {};
        memcpy(word, hex, 8);
        char *end = nullptr;
        words[i] = static_cast<std::uint32_t>(strtoul(word, &end, 16));
        if (*end != '\0')
            return false;
        hex += 8;
    }
    memcpy(&out, words, sizeof out);
    return true;
}

bool read_line(const char *line, bool v6, KernelSocket &out)
{
    char local[40];
    char peer[40];
    unsigned local_port = 0;
    unsigned peer_port = 0;
    unsigned state = 0;
    unsigned long send = 0;
    unsigned long receive = 0;
    unsigned long long inode = 0;
    if (sscanf(line, " %*[^:]: %39[0-9A-Fa-f]:%x %39[0-9A-Fa-f]:%x %x %lx:%lx %*x:%*x %*x %*u %*u %llu", local,
               &local_port, peer, &peer_port, &state, &send, &receive, &inode) != 8 ||
        inode == 0 || strlen(local) != (v6 ? 32 : 8) || strlen(peer) != strlen(local))
        return false;
    out.inode = inode;
    out.v6 = v6;
    out.local_port = static_cast<std::uint16_t>(local_port);
    out.peer_port = static_cast<std::uint16_t>(peer_port);
    out.state = static_cast<std::uint8_t>(state);
    out.queues = {receive, send};
    return read_address(local, v6, out.local) && read_address(peer, v6, out.peer);
}

void read_table(pid_t pid, const char *name, std::uint8_t protocol, bool v6, std::vector<KernelSocket> &out)
{
    const std::string path = "/proc/" + std::to_string(pid) + "/net/" + name;
    FILE *const file = ::fopen(path.c_str(), "re");
    if (file == nullptr)
        return;
    char line[512];
    KernelSocket found;
    found.protocol = protocol;
    while (::fgets(line, sizeof line, file) != nullptr)
        if (read_line(line, v6, found))
            out.push_back(found);
    ::fclose(file);
}

void complete(Facts &f, const KernelSocket &known)
{
    f.tcp_state = f.protocol == IPPROTO_TCP ? known.state : 0;
    f.family = known.v6 ? 6 : 4;
    memcpy(f.local, &known.local, sizeof f.local);
    f.local_port = known.local_port;
    f.flags |= vma::stats::kHasLocal;
    if (known.peer_port == 0)
        return;
    memcpy(f.peer, &known.peer, sizeof f.peer);
    f.peer_port = known.peer_port;
    f.flags |= vma::stats::kHasPeer;
}

} // namespace

std::vector<KernelSocket> sockets_in_namespace_of(pid_t pid)
{
    std::vector<KernelSocket> all;
    read_table(pid, "tcp", IPPROTO_TCP, false, all);
    read_table(pid, "udp", IPPROTO_UDP, false, all);
    read_table(pid, "tcp6", IPPROTO_TCP, true, all);
    read_table(pid, "udp6", IPPROTO_UDP, true, all);
    return all;
}

void ask_kernel(Snapshot &s)
{
    const auto pid = static_cast<pid_t>(s.header.pid);
    bool any = false;
    for (vma::stats::Slot &slot : s.slots) {
        if (slot.facts.fd < 0)
            continue;
        if (const std::uint64_t inode = inode_of(pid, slot.facts.fd))
            slot.facts.inode = inode;
        any |= slot.facts.inode != 0;
    }
    g_known.clear();
    if (!any)
        return;
    for (const KernelSocket &known : sockets_in_namespace_of(pid))
        g_known[known.inode] = known;
    for (vma::stats::Slot &slot : s.slots)
        if (const auto known = g_known.find(slot.facts.inode); slot.facts.fd >= 0 && known != g_known.end())
            complete(slot.facts, known->second);
}

Queues kernel_queues(std::uint64_t inode)
{
    const auto known = g_known.find(inode);
    return known != g_known.end() ? known->second.queues : Queues{};
}

} // namespace vma_stats
