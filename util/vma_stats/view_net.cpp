// SPDX-License-Identifier: BSD-2-Clause
// View 4, the groups, and view 5, which looks like netstat.
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "util/vma_stats/kernel_sockets.hpp"
#include "util/vma_stats/views.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;

struct Row {
    const std::uint8_t (*address)[16];
    std::string descriptors;
};

void add(std::vector<Row> &rows, const Group &group, int fd)
{
    for (Row &row : rows)
        if (memcmp(*row.address, group.address, sizeof group.address) == 0) {
            row.descriptors += std::to_string(fd) + " ";
            return;
        }
    rows.push_back({&group.address, std::to_string(fd) + " "});
}

void print_endpoint_column(int width, bool known, const std::uint8_t (&address)[16], std::uint16_t port, bool v6)
{
    char text[kAddressText];
    if (known)
        printf("%-*s ", width, print_endpoint(address, port, text));
    else
        printf("%-*s ", width, v6 ? "[::]:*" : "0.0.0.0:*");
}

} // namespace

void print_groups(const Shown &shown)
{
    std::vector<Row> rows;
    for (const SocketView &view : sockets_of(shown))
        for (std::uint32_t i = 0; i < view.facts->group_count; ++i)
            add(rows, view.facts->groups[i], view.facts->fd);
    printf("VMA Group Memberships Information\n");
    printf("%-20s %s\n", "Group", "fd number");
    printf("------------------------------\n");
    for (const Row &row : rows) {
        char text[kAddressText];
        const std::string name = std::string("[") + print_address(*row.address, text) + "]";
        printf("%-21s %s\n", name.c_str(), row.descriptors.c_str());
    }
    fputs(kCycleRule, stdout);
}

void print_net_title()
{
    printf("%-5s %-9s %-20s %-20s %-22s %-21s %-11s %-10s %s\n", "Proto", "Offloaded", "Recv-Q", "Send-Q",
           "Local Address", "Foreign Address", "State", "Inode", "PID/Program name");
}

void print_net(const Snapshot &s, const Options &options)
{
    for (const SocketView &view : sockets_of({&s, nullptr, &options})) {
        const Facts &f = *view.facts;
        const bool v6 = f.family == 6;
        const bool offloaded = is_offloaded(f);
        const Queues kernel = offloaded ? Queues{} : kernel_queues(f.inode);
        const char *const protocol = f.protocol == IPPROTO_UDP ? (v6 ? "udp6" : "udp") : (v6 ? "tcp6" : "tcp");
        printf("%-5s %-9s %-20llu %-20llu ", protocol, offloaded ? "Yes" : "No",
               static_cast<unsigned long long>(offloaded ? view.queued_bytes : kernel.receive),
               static_cast<unsigned long long>(offloaded ? view.counters.tx.waiting : kernel.send));
        print_endpoint_column(22, (f.flags & kHasLocal) != 0, f.local, f.local_port, v6);
        print_endpoint_column(21, (f.flags & kHasPeer) != 0, f.peer, f.peer_port, v6);
        printf("%-11s ", name_of_tcp_state(f.tcp_state));
        if (f.inode != 0)
            printf("%-10llu ", static_cast<unsigned long long>(f.inode));
        else
            printf("%-10s ", "-");
        printf("%u/%s\n", s.header.pid, s.header.program);
    }
}

} // namespace vma_stats
