// SPDX-License-Identifier: BSD-2-Clause
// Views 1 and 2: two lines a socket.
#include <stdio.h>

#include "util/vma_stats/views.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;
using Number = unsigned long long;

constexpr unsigned kLinesPerTitle = 24;
unsigned g_lines = 0; // since the last title

void print_title(bool queues, bool deltas)
{
    const char *const per = deltas ? "/s" : "";
    const auto column = [per](int width, const char *name) { // right-aligned with its unit
        char text[16];
        snprintf(text, sizeof text, "%s%s", name, per);
        printf("%*s", width, text);
    };
    printf(" fd      %s%s   %s\n",
           deltas ? "--------------- offloaded ----------------" : "------------ total offloaded -------------",
           queues ? " ---- queue pkt -----" : "", deltas ? "---------- os ---------" : "--------- total os ----------");
    printf("        ");
    column(11, "pkt");
    column(8, "Kbyte");
    column(9, "eagain");
    column(8, "error");
    printf("%7s", "poll%");
    if (queues)
        printf("%7s%7s%7s", "cur", "max", "drop");
    column(8, "pkt");
    column(8, "Kbyte");
    column(deltas ? 9 : 8, "eagain");
    column(8, "error");
    printf("\n");
}

void print_offloaded(std::uint64_t packets, std::uint64_t bytes, std::uint64_t eagain, std::uint64_t errors)
{
    printf(" %10llu %7llu %8llu %7llu", static_cast<Number>(packets), static_cast<Number>(bytes / 1024),
           static_cast<Number>(eagain), static_cast<Number>(errors));
}

void print_os(bool deltas, std::uint64_t packets, std::uint64_t bytes, std::uint64_t eagain, std::uint64_t errors)
{
    printf(" %7llu %7llu %*llu %7llu\n", static_cast<Number>(packets), static_cast<Number>(bytes / 1024),
           deltas ? 8 : 7, static_cast<Number>(eagain), static_cast<Number>(errors));
}

void print_socket(const SocketView &view, bool queues, bool deltas)
{
    const Received &rx = view.counters.rx;
    const Sent &tx = view.counters.tx;
    const Arrived &in = view.counters.in;
    printf("%3d  Rx:", view.facts->fd);
    print_offloaded(rx.packets, rx.bytes, rx.eagain, rx.errors);
    printf(" %6.1f", percent(rx.poll_hit, rx.poll_miss));
    if (queues)
        printf(" %6llu %6llu %6llu", static_cast<Number>(view.queued_packets), static_cast<Number>(in.most_packets),
               static_cast<Number>(in.dropped_packets));
    print_os(deltas, rx.os_packets, rx.os_bytes, rx.os_eagain, rx.os_errors);
    printf("     Tx:");
    print_offloaded(tx.packets, tx.bytes, tx.eagain, tx.errors);
    printf("%*s", queues ? 28 : 7, "");
    print_os(deltas, tx.os_packets, tx.os_bytes, tx.os_eagain, tx.os_errors);
}

void print_mux(const ShownMux &mux)
{
    const MuxCounters &c = mux.counters;
    const bool set = mux.name[mux.name.size() - 1] == ']';
    printf(set ? "%s   " : "%-10s ", mux.name.c_str());
    printf("Rx Ready:%llu/%llu [os/offload] Timeouts:%-5llu Errors:%-4llu Poll:%.2f%%   Polling CPU:%u%%\n",
           static_cast<Number>(c.os_ready), static_cast<Number>(c.ready), static_cast<Number>(c.timeouts),
           static_cast<Number>(c.errors), percent(c.poll_hit, c.poll_miss), mux.polling);
}

} // namespace

void print_lines(const Shown &shown, unsigned cycle)
{
    const bool queues = shown.options->view == 2;
    const bool deltas = shown.before != nullptr;
    const std::vector<SocketView> sockets = sockets_of(shown);
    if (cycle == 0 || g_lines >= kLinesPerTitle) {
        print_title(queues, deltas);
        g_lines = 0;
    }
    for (const SocketView &view : sockets)
        print_socket(view, queues, deltas);
    const std::vector<ShownMux> muxes = muxes_of(shown);
    for (const ShownMux &mux : muxes)
        print_mux(mux);
    fputs(kCycleRule, stdout);
    g_lines += static_cast<unsigned>(2 * sockets.size() + muxes.size()) + 1;
}

} // namespace vma_stats
