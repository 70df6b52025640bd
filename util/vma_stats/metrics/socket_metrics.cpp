// SPDX-License-Identifier: BSD-2-Clause
// Samples of each socket, for who asks for them: as many series as sockets come and go.
#include <netinet/in.h>

#include <set>

#include "compat/src/stats/text.hpp"
#include "util/vma_stats/metrics/process_metrics.hpp"
#include "util/vma_stats/options.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;

constexpr auto kCounter = MetricType::kCounter;
constexpr auto kGauge = MetricType::kGauge;

constexpr Family kInfo = {"vma_socket_info", kGauge,
                          "An open socket: what carries it, by which device, and why the kernel does"};

struct PathRow {
    Family family;
    std::uint64_t (*device)(const Counters &);
    std::uint64_t (*kernel)(const Counters &);
};

constexpr PathRow kPathRows[] = {
    {{"vma_socket_receive_bytes_total", kCounter, "Bytes that the program has received by this socket"},
     [](const Counters &c) { return c.rx.bytes; },
     [](const Counters &c) { return c.rx.os_bytes; }},
    {{"vma_socket_receive_packets_total", kCounter, "Datagrams, and pieces of streams, received by this socket"},
     [](const Counters &c) { return c.rx.packets; },
     [](const Counters &c) { return c.rx.os_packets; }},
    {{"vma_socket_transmit_bytes_total", kCounter, "Bytes that the program has sent by this socket"},
     [](const Counters &c) { return c.tx.bytes; },
     [](const Counters &c) { return c.tx.os_bytes; }},
    {{"vma_socket_transmit_packets_total", kCounter, "Datagrams, and pieces of streams, sent by this socket"},
     [](const Counters &c) { return c.tx.packets; },
     [](const Counters &c) { return c.tx.os_packets; }},
};

struct Row {
    Family family;
    std::uint64_t (*value)(const SocketView &);
};

constexpr Row kRows[] = {
    {{"vma_socket_receive_dropped_packets_total", kCounter, "Datagrams for this socket that found no room"},
     [](const SocketView &v) { return v.counters.in.dropped_packets; }},
    {{"vma_socket_receive_queue_bytes", kGauge, "Bytes that have come for this socket by a device and are not read"},
     [](const SocketView &v) { return v.queued_bytes; }},
    {{"vma_socket_transmit_unacknowledged_bytes", kGauge,
      "Bytes sent by this socket over an Ethernet port that are not acknowledged"},
     [](const SocketView &v) { return v.counters.tx.waiting; }},
    {{"vma_socket_transmit_retransmissions_total", kCounter,
      "Segments of this socket sent again over an Ethernet port"},
     [](const SocketView &v) { return v.counters.tx.retransmits; }},
};

std::string end_of(bool known, const std::uint8_t (&address)[16], std::uint16_t port)
{
    char text[kAddressText];
    return known ? print_endpoint(address, port, text) : "";
}

Labels labels_of(const Labels &process, const Facts &f)
{
    return Labels(process)
        .add("fd", std::to_string(f.fd))
        .add("protocol", f.protocol == IPPROTO_UDP ? "udp" : "tcp")
        .add("local", end_of((f.flags & kHasLocal) != 0, f.local, f.local_port))
        .add("peer", end_of((f.flags & kHasPeer) != 0, f.peer, f.peer_port));
}

void add_socket(Exposition &out, const Labels &labels, const SocketView &view)
{
    const Facts &f = *view.facts;
    const Counters &c = view.counters;
    out.add(kInfo,
            Labels(labels)
                .add("way", name_of(f.way))
                .add("device", f.device)
                .add("reason", is_offloaded(f) ? "" : f.reason),
            1);
    const Labels device = Labels(labels).add("path", "device");
    const Labels kernel = Labels(labels).add("path", "kernel");
    for (const PathRow &row : kPathRows) {
        out.add(row.family, device, row.device(c));
        out.add(row.family, kernel, row.kernel(c));
    }
    for (const Row &row : kRows)
        out.add(row.family, labels, row.value(view));
}

} // namespace

void add_sockets(Exposition &out, const Labels &labels, const Snapshot &s, const Options &options, std::size_t &room)
{
    std::set<std::string> known; // the file may name a socket twice; Prometheus takes no sample twice
    for (const Slot &slot : s.slots) {
        if (slot.facts.fd < 0 || !shows(options, slot.facts.fd) || room == 0)
            continue;
        const Labels own = labels_of(labels, slot.facts);
        if (!known.insert(own.text()).second)
            continue;
        SocketView view = view_of(slot);
        view.counters = slot.now; // --zero doesn't touch what Prometheus sees
        add_socket(out, own, view);
        --room;
    }
}

} // namespace vma_stats
