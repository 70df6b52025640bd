// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/parties.hpp"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <unordered_map>

#include "compat/src/rules/parser.hpp"
#include "util/vma/files.hpp"
#include "util/vma_stats/kernel_sockets.hpp"

namespace vma::command {

namespace {

using vma::stats::Facts;
using vma_stats::KernelSocket;

bool same(const in6_addr &a, const in6_addr &b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

bool is_any(const in6_addr &a)
{
    static constexpr in6_addr kAny4 = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}}};
    return same(a, in6addr_any) || same(a, kAny4);
}

bool matches(const Address &wanted, const Party &p)
{
    return (p.local_port == wanted.port && (wanted.any || same(p.local, wanted.address) || is_any(p.local))) ||
           (p.peer_port == wanted.port && (wanted.any || same(p.peer, wanted.address)));
}

Party party_of(const KernelSocket &s)
{
    Party p;
    p.protocol = s.protocol;
    p.state = s.state;
    p.local = s.local;
    p.peer = s.peer;
    p.local_port = s.local_port;
    p.peer_port = s.peer_port;
    p.inode = s.inode;
    return p;
}

Party party_of(const Accelerated &process, const Facts &f)
{
    Party p;
    p.protocol = f.protocol;
    p.state = f.tcp_state;
    if ((f.flags & vma::stats::kHasLocal) != 0) {
        memcpy(&p.local, f.local, sizeof p.local);
        p.local_port = f.local_port;
    }
    if ((f.flags & vma::stats::kHasPeer) != 0) {
        memcpy(&p.peer, f.peer, sizeof p.peer);
        p.peer_port = f.peer_port;
    }
    p.inode = f.inode;
    p.pid = process.pid;
    p.facts = &f;
    return p;
}

// The sockets among the descriptors of one process.
void add_owner(pid_t pid, std::unordered_map<std::uint64_t, pid_t> &wanted)
{
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    DIR *const directory = ::opendir(folder.c_str());
    if (directory == nullptr)
        return;
    while (const dirent *const entry = ::readdir(directory)) {
        unsigned long long inode = 0;
        if (sscanf(read_link(folder + "/" + entry->d_name).c_str(), "socket:[%llu]", &inode) != 1)
            continue;
        if (const auto found = wanted.find(inode); found != wanted.end() && found->second == 0)
            found->second = pid;
    }
    ::closedir(directory);
}

void find_owners(std::vector<Party> &parties)
{
    std::unordered_map<std::uint64_t, pid_t> owners;
    for (const Party &p : parties)
        if (p.pid == 0)
            owners[p.inode] = 0;
    DIR *const processes = owners.empty() ? nullptr : ::opendir("/proc");
    if (processes == nullptr)
        return;
    while (const dirent *const entry = ::readdir(processes))
        if (const auto pid = parse_number(entry->d_name, INT32_MAX))
            add_owner(static_cast<pid_t>(*pid), owners);
    ::closedir(processes);
    for (Party &p : parties)
        if (p.pid == 0)
            p.pid = owners[p.inode];
}

} // namespace

bool parse_address(const char *text, Address &out, std::string &error)
{
    rules::Range range;
    if (!rules::parse_range(text, range, error))
        return false;
    if ((!range.any_address && range.bits != 128) || range.first_port != range.last_port) {
        error = "expected one address and one port, as 127.0.0.1:6379, [::1]:6379 or *:6379";
        return false;
    }
    out = {range.any_address, range.address, range.first_port};
    return true;
}

std::vector<Party> find_parties(const Address &address, pid_t space, const Processes &known)
{
    std::vector<Party> parties;
    for (const Accelerated &process : known.all)
        for (const vma::stats::Slot &slot : process.snapshot.slots) {
            if (slot.facts.fd < 0)
                continue;
            if (const Party p = party_of(process, slot.facts); matches(address, p))
                parties.push_back(p);
        }
    const std::size_t followed = parties.size();
    for (const KernelSocket &socket : vma_stats::sockets_in_namespace_of(space)) {
        const Party p = party_of(socket);
        const auto end = parties.begin() + static_cast<std::ptrdiff_t>(followed);
        const bool is_known = std::any_of(parties.begin(), end, [&](const Party &one) { return one.inode == p.inode; });
        if (!is_known && matches(address, p))
            parties.push_back(p);
    }
    find_owners(parties);
    return parties;
}

bool are_two_ends(const Party &a, const Party &b)
{
    return a.peer_port != 0 && a.protocol == b.protocol && a.local_port == b.peer_port && a.peer_port == b.local_port &&
           same(a.local, b.peer) && same(a.peer, b.local);
}

} // namespace vma::command
