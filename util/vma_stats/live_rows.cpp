// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_stats/live_rows.hpp"

#include <netinet/in.h>
#include <stdio.h>

#include <algorithm>

namespace vma_stats {

namespace {

using namespace vma::stats;
using Number = unsigned long long;

struct Row {
    std::string text;
    std::uint64_t rank;
    int fd;
};

// 0 to 4 digits and a letter: 999, 1.2k, 45.6M
std::string brief(std::uint64_t value)
{
    static constexpr char kUnits[] = " kMGTPE";
    double left = static_cast<double>(value);
    std::size_t unit = 0;
    while (left >= 999.5 && unit + 2 < sizeof kUnits) {
        left /= 1000;
        ++unit;
    }
    char text[16];
    if (unit == 0)
        snprintf(text, sizeof text, "%llu", static_cast<Number>(value));
    else
        snprintf(text, sizeof text, left < 99.95 ? "%.1f%c" : "%.0f%c", left, kUnits[unit]);
    return text;
}

std::uint64_t rank_of(const SocketView &view, Order order)
{
    const Counters &c = view.counters;
    switch (order) {
    case Order::kReceived:
        return c.rx.packets;
    case Order::kSent:
        return c.tx.packets;
    case Order::kBytes:
        return c.rx.bytes + c.tx.bytes;
    case Order::kOs:
        return c.rx.os_packets + c.tx.os_packets;
    case Order::kPolls:
        return c.rx.poll_miss;
    case Order::kQueue:
        return view.queued_bytes;
    default:
        return 0;
    }
}

std::string endpoint_of(bool known, const std::uint8_t (&address)[16], std::uint16_t port)
{
    char text[kAddressText];
    return known ? print_endpoint(address, port, text) : "-";
}

// Where it goes, and if that is the kernel, why.
std::string way_of(const Facts &f)
{
    if (is_offloaded(f))
        return std::string(name_of(f.way)) +
               (f.device[0] != '\0' && std::string(f.device) != name_of(f.way) ? std::string(" ") + f.device
                                                                               : std::string()) +
               ((f.flags & kOtherUser) != 0 ? ", user " + std::to_string(f.peer_user) : std::string()) +
               ((f.flags & kByVmad) != 0 ? std::string(", introduced by vmad") : std::string()) +
               (f.pacing_rate != 0 ? ", at most " + brief(f.pacing_rate) + " B/s" : std::string());
    return std::string("kernel") + (f.reason[0] != '\0' ? std::string(": ") + f.reason : std::string());
}

// Of polls that had no share in the interval, the share since the beginning.
std::string text_of(const SocketView &view, const SocketView &total)
{
    const Facts &f = *view.facts;
    const Counters &c = view.counters;
    char polls[16] = "-";
    const Received &polled = (c.rx.poll_hit | c.rx.poll_miss) != 0 ? c.rx : total.counters.rx;
    if ((polled.poll_hit | polled.poll_miss) != 0)
        snprintf(polls, sizeof polls, "%.1f", percent(polled.poll_hit, polled.poll_miss));
    char text[512];
    snprintf(text, sizeof text, "%5d %-4s %7s %7s %7s %7s %6s %7s %7s %6s  %-21s %-21s %s", f.fd,
             f.protocol == IPPROTO_UDP ? "udp" : "tcp", brief(c.rx.packets).c_str(), brief(c.rx.bytes).c_str(),
             brief(c.tx.packets).c_str(), brief(c.tx.bytes).c_str(), polls, brief(c.rx.os_packets).c_str(),
             brief(c.tx.os_packets).c_str(), brief(view.queued_bytes).c_str(),
             endpoint_of((f.flags & kHasLocal) != 0, f.local, f.local_port).c_str(),
             endpoint_of((f.flags & kHasPeer) != 0, f.peer, f.peer_port).c_str(), way_of(f).c_str());
    return text;
}

std::string mux_line(const ShownMux &total, const MuxCounters &c)
{
    const MuxCounters &polled = (c.poll_hit | c.poll_miss) != 0 ? c : total.counters;
    char text[160];
    snprintf(text, sizeof text, "%-11s ready %s/s by a device, %s/s by the kernel; poll %.1f%%; %s/s timeouts",
             total.name.c_str(), brief(c.ready).c_str(), brief(c.os_ready).c_str(),
             percent(polled.poll_hit, polled.poll_miss), brief(c.timeouts).c_str());
    std::string line = text;
    if (total.polling != 0)
        line += "; polls " + std::to_string(total.polling) + "% of the time";
    return line;
}

bool is_chosen(const Facts &f, const std::string &text, const Choice &choice)
{
    if (choice.kind != Kind::kAll && is_offloaded(f) != (choice.kind == Kind::kOffloaded))
        return false;
    return choice.filter.empty() || text.find(choice.filter) != std::string::npos;
}

} // namespace

const char *name_of(Order order)
{
    static constexpr const char *kNames[] = {"fd",         "rx packets",  "tx packets", "bytes",
                                             "os packets", "poll misses", "queue"};
    return kNames[static_cast<std::size_t>(order)];
}

const char *name_of(Kind kind)
{
    static constexpr const char *kNames[] = {"all", "accelerated", "kernel"};
    return kNames[static_cast<std::size_t>(kind)];
}

std::string title_of_rows()
{
    char text[256];
    snprintf(text, sizeof text, "%5s %-4s %7s %7s %7s %7s %6s %7s %7s %6s  %-21s %-21s %s", "fd", "", "rx/s", "rx B/s",
             "tx/s", "tx B/s", "poll%", "os rx/s", "os tx/s", "queue", "local", "peer", "way");
    return text;
}

std::vector<std::string> make_rows(const Shown &shown, const Choice &choice, std::size_t &sockets,
                                   std::size_t &offloaded)
{
    std::vector<Row> rows;
    sockets = offloaded = 0;
    const std::vector<SocketView> totals = sockets_of({shown.now, nullptr, shown.options}); // in the same order
    for (const SocketView &view : sockets_of(shown)) {
        const SocketView &total = totals[sockets];
        ++sockets;
        offloaded += is_offloaded(*view.facts) ? 1 : 0;
        std::string text = text_of(view, total);
        if (is_chosen(*view.facts, text, choice))
            rows.push_back({std::move(text), rank_of(view, choice.order), view.facts->fd});
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) { return a.rank > b.rank; });
    if (choice.reverse)
        std::reverse(rows.begin(), rows.end());
    std::vector<std::string> texts;
    texts.reserve(rows.size());
    for (Row &row : rows)
        texts.push_back(std::move(row.text));
    return texts;
}

std::vector<std::string> port_lines(const Shown &shown)
{
    std::vector<std::string> lines;
    for (const Queue &q : shown.now->header.queues) {
        if (q.used == 0)
            continue;
        char text[320];
        if (q.frames == 0) { // no port's
            snprintf(text, sizeof text, "queue %s: %s wait, at most %s at once; %.1f%% of %s polls found something",
                     q.name, brief(q.length).c_str(), brief(q.most_drained).c_str(),
                     percent(q.poll_hits, q.polls - std::min(q.polls, q.poll_hits)), brief(q.polls).c_str());
            lines.emplace_back(text);
            continue;
        }
        snprintf(
            text, sizeof text,
            "port %-6s %s wait, at most %s at once, %s lost; frames %s free, %s lent of %s, to send %s free of %s; "
            "TCP memory %.0f%% free",
            q.name, brief(q.length).c_str(), brief(q.most_drained).c_str(), brief(q.dropped).c_str(),
            brief(q.pool).c_str(), brief(q.lent).c_str(), brief(q.frames).c_str(), brief(q.send_free).c_str(),
            brief(q.send_frames).c_str(), percent(q.blocks_free, q.blocks - std::min(q.blocks, q.blocks_free)));
        lines.emplace_back(text);
    }
    return lines;
}

std::vector<std::string> mux_lines(const Shown &shown)
{
    std::vector<std::string> lines;
    const std::vector<ShownMux> rates = muxes_of(shown);
    for (const ShownMux &total : muxes_of({shown.now, nullptr, shown.options})) {
        const auto rate =
            std::find_if(rates.begin(), rates.end(), [&total](const ShownMux &one) { return one.name == total.name; });
        lines.push_back(mux_line(total, rate != rates.end() ? rate->counters : MuxCounters{}));
    }
    return lines;
}

} // namespace vma_stats
