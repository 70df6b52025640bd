// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/stats/text.hpp"
#include "compat/src/base/addresses.hpp"
#include "compat/src/stats/count.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>

namespace vma::stats {

namespace {

std::uint64_t less(std::uint64_t now, std::uint64_t then)
{
    return now >= then ? now - then : 0;
}

bool is_v4(const std::uint8_t (&address)[16])
{
    static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(address, kMapped, sizeof kMapped) == 0;
}

unsigned long long kilobytes(std::uint64_t bytes)
{
    return bytes / 1024;
}

void describe_identity(const Facts &f, Text &out)
{
    char text[kAddressText];
    const bool udp = f.protocol == IPPROTO_UDP;
    out.add("\tFd=[%d]\n", f.fd);
    out.add("- %s, %s", udp ? "UDP" : "TCP", (f.flags & kNonblocking) != 0 ? "Non-blocked" : "Blocked");
    if (udp)
        out.add(", MC Loop %-8s", (f.flags & kMulticastLoop) != 0 ? "Enabled" : "Disabled");
    if ((f.flags & kHasInterface) != 0)
        out.add(", MC IF = [%s]", print_address(f.interface_address, text));
    out.add("\n");
    if ((f.flags & kHasLocal) != 0)
        out.add("- Local Address   = [%s]\n", print_endpoint(f.local, f.local_port, text));
    if ((f.flags & kHasPeer) != 0)
        out.add("- Foreign Address = [%s]\n", print_endpoint(f.peer, f.peer_port, text));
    const std::uint32_t groups = std::min(f.group_count, kMostGroups);
    for (std::uint32_t i = 0; i < groups; ++i)
        out.add("- Member of = [%s]\n", print_address(f.groups[i].address, text));
    if (f.reason[0] != '\0' && !is_offloaded(f))
        out.add("- Not offloaded: %.*s\n", static_cast<int>(sizeof f.reason - 1), f.reason);
}

void describe_sent(const Sent &tx, const char *per, Text &out)
{
    if ((tx.bytes | tx.packets | tx.eagain | tx.errors) != 0)
        out.add("Tx Offload: %llu / %llu / %llu / %llu [kilobytes/packets/eagains/errors]%s\n", kilobytes(tx.bytes),
                static_cast<unsigned long long>(tx.packets), static_cast<unsigned long long>(tx.eagain),
                static_cast<unsigned long long>(tx.errors), per);
    if ((tx.os_bytes | tx.os_packets | tx.os_eagain | tx.os_errors) != 0)
        out.add("Tx OS info: %llu / %llu / %llu / %llu [kilobytes/packets/eagains/errors]%s\n", kilobytes(tx.os_bytes),
                static_cast<unsigned long long>(tx.os_packets), static_cast<unsigned long long>(tx.os_eagain),
                static_cast<unsigned long long>(tx.os_errors), per);
    if (tx.dummies != 0)
        out.add("Tx Dummy messages : %llu\n", static_cast<unsigned long long>(tx.dummies));
}

void describe_received(const Received &rx, const char *per, Text &out)
{
    if ((rx.bytes | rx.packets | rx.eagain | rx.errors) != 0)
        out.add("Rx Offload: %llu / %llu / %llu / %llu [kilobytes/packets/eagains/errors]%s\n", kilobytes(rx.bytes),
                static_cast<unsigned long long>(rx.packets), static_cast<unsigned long long>(rx.eagain),
                static_cast<unsigned long long>(rx.errors), per);
    if ((rx.os_bytes | rx.os_packets | rx.os_eagain | rx.os_errors) != 0)
        out.add("Rx OS info: %llu / %llu / %llu / %llu [kilobytes/packets/eagains/errors]%s\n", kilobytes(rx.os_bytes),
                static_cast<unsigned long long>(rx.os_packets), static_cast<unsigned long long>(rx.os_eagain),
                static_cast<unsigned long long>(rx.os_errors), per);
}

void describe_queue(const SocketView &v, Text &out)
{
    const Arrived &in = v.counters.in;
    if ((v.queued_bytes | in.most_bytes | in.dropped_bytes) != 0)
        out.add("Rx byte: cur %llu / max %llu / dropped%s %llu / limit %llu\n",
                static_cast<unsigned long long>(v.queued_bytes), static_cast<unsigned long long>(in.most_bytes), v.per,
                static_cast<unsigned long long>(in.dropped_bytes),
                static_cast<unsigned long long>(v.facts->receive_limit));
    if ((v.queued_packets | in.most_packets | in.dropped_packets) != 0)
        out.add("Rx pkt : cur %llu / max %llu / dropped%s %llu\n", static_cast<unsigned long long>(v.queued_packets),
                static_cast<unsigned long long>(in.most_packets), v.per,
                static_cast<unsigned long long>(in.dropped_packets));
    const Received &rx = v.counters.rx;
    if (rx.zcopy != 0)
        out.add("Rx zero copy buffers: cur %u\n", rx.zcopy);
    if ((rx.poll_miss | rx.poll_hit) != 0)
        out.add("Rx poll: %llu / %llu (%.2f%%) [miss/hit]\n", static_cast<unsigned long long>(rx.poll_miss),
                static_cast<unsigned long long>(rx.poll_hit), percent(rx.poll_hit, rx.poll_miss));
}

} // namespace

void Text::add(const char *format, ...)
{
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(bytes_ + used_, sizeof bytes_ - used_, format, arguments);
    va_end(arguments);
    if (length > 0)
        used_ = std::min(used_ + static_cast<std::size_t>(length), sizeof bytes_ - 1);
}

namespace {

// Calls visit(left, right) with each number that is counted, of both.
template <typename Left, typename Right, typename Visit> void each_counter(Left &left, Right &right, Visit visit)
{
    visit(left.rx.packets, right.rx.packets);
    visit(left.rx.bytes, right.rx.bytes);
    visit(left.rx.poll_hit, right.rx.poll_hit);
    visit(left.rx.poll_miss, right.rx.poll_miss);
    visit(left.rx.poll_os_hit, right.rx.poll_os_hit);
    visit(left.rx.errors, right.rx.errors);
    visit(left.rx.eagain, right.rx.eagain);
    visit(left.rx.os_packets, right.rx.os_packets);
    visit(left.rx.os_bytes, right.rx.os_bytes);
    visit(left.rx.os_errors, right.rx.os_errors);
    visit(left.rx.os_eagain, right.rx.os_eagain);
    visit(left.rx.migrations, right.rx.migrations);
    visit(left.in.packets, right.in.packets);
    visit(left.in.bytes, right.in.bytes);
    visit(left.in.dropped_packets, right.in.dropped_packets);
    visit(left.in.dropped_bytes, right.in.dropped_bytes);
    visit(left.tx.packets, right.tx.packets);
    visit(left.tx.bytes, right.tx.bytes);
    visit(left.tx.errors, right.tx.errors);
    visit(left.tx.eagain, right.tx.eagain);
    visit(left.tx.retransmits, right.tx.retransmits);
    visit(left.tx.dummies, right.tx.dummies);
    visit(left.tx.os_packets, right.tx.os_packets);
    visit(left.tx.os_bytes, right.tx.os_bytes);
    visit(left.tx.os_errors, right.tx.os_errors);
    visit(left.tx.os_eagain, right.tx.os_eagain);
    visit(left.tx.migrations, right.tx.migrations);
    visit(left.tx.held, right.tx.held);
    visit(left.tx.held_ns, right.tx.held_ns);
    visit(left.tx.paced_bytes, right.tx.paced_bytes);
}

} // namespace

Counters since(const Counters &now, const Counters &then)
{
    Counters d = now;
    each_counter(d, then, [](std::uint64_t &left, std::uint64_t old) { left = less(left, old); });
    return d;
}

MuxCounters since(const MuxCounters &now, const MuxCounters &then)
{
    return {less(now.poll_hit, then.poll_hit), less(now.poll_miss, then.poll_miss), less(now.timeouts, then.timeouts),
            less(now.errors, then.errors),     less(now.ready, then.ready),         less(now.os_ready, then.os_ready)};
}

void accumulate(Counters &sum, const Counters &more)
{
    each_counter(sum, more, [](std::uint64_t &to, const std::uint64_t &from) { set(to, get(to) + get(from)); });
}

void accumulate(MuxCounters &sum, const MuxCounters &more)
{
    const auto take = [](std::uint64_t &to, const std::uint64_t &from) { set(to, get(to) + get(from)); };
    take(sum.poll_hit, more.poll_hit);
    take(sum.poll_miss, more.poll_miss);
    take(sum.timeouts, more.timeouts);
    take(sum.errors, more.errors);
    take(sum.ready, more.ready);
    take(sum.os_ready, more.os_ready);
}

std::uint64_t paced_bytes(const Slot &slot, const Counters &since)
{
    const Facts &f = slot.facts;
    const std::uint64_t now =
        f.pacing_rate != 0 ? std::min(less(slot.now.tx.bytes, f.paced_from), since.tx.bytes) : std::uint64_t{0};
    return std::min(now + since.tx.paced_bytes, since.tx.bytes);
}

SocketView view_of(const Slot &slot)
{
    const Counters &now = slot.now;
    const Counters counted = since(now, slot.zero);
    return {&slot.facts,
            counted,
            less(now.in.packets, now.rx.packets),
            less(now.in.bytes, now.rx.bytes),
            paced_bytes(slot, counted),
            ""};
}

bool has_traffic(const Counters &c)
{
    return (c.rx.packets | c.rx.bytes | c.rx.errors | c.rx.eagain | c.rx.os_packets | c.rx.os_bytes | c.rx.os_errors |
            c.rx.os_eagain | c.tx.packets | c.tx.bytes | c.tx.errors | c.tx.eagain | c.tx.os_packets | c.tx.os_bytes |
            c.tx.os_errors | c.tx.os_eagain | c.tx.dummies | c.in.dropped_packets) != 0;
}

double percent(std::uint64_t part, std::uint64_t other)
{
    const double sum = static_cast<double>(part) + static_cast<double>(other);
    return sum > 0 ? static_cast<double>(part) * 100 / sum : 0;
}

const char *print_address(const std::uint8_t (&address)[16], char (&out)[kAddressText])
{
    char text[INET6_ADDRSTRLEN];
    if (is_v4(address))
        std::snprintf(out, sizeof out, "%s", inet_ntop(AF_INET, address + 12, text, sizeof text));
    else
        std::snprintf(out, sizeof out, "[%s]", inet_ntop(AF_INET6, address, text, sizeof text));
    return out;
}

const char *print_endpoint(const std::uint8_t (&address)[16], std::uint16_t port, char (&out)[kAddressText])
{
    print_address(address, out);
    const std::size_t used = strlen(out);
    if (port != 0)
        std::snprintf(out + used, sizeof out - used, ":%u", port);
    else
        std::snprintf(out + used, sizeof out - used, ":*");
    return out;
}

bool is_offloaded(const Facts &facts)
{
    return facts.way == Way::kLocal || facts.way == Way::kRdma || facts.way == Way::kPort;
}

const char *name_of(Way way)
{
    switch (way) {
    case Way::kKernel:
        return "kernel";
    case Way::kPinned:
        return "pinned";
    case Way::kLocal:
        return "local";
    case Way::kRdma:
        return "rdma";
    case Way::kPort:
        return "port";
    }
    return "?";
}

void explain_kernel(Slot &slot, std::uint32_t lift_after)
{
    constexpr std::uint8_t kListens = 10;
    Facts &f = slot.facts;
    if (f.way != Way::kKernel || f.reason[0] != '\0')
        return;
    const char *text = nullptr;
    if (f.tcp_state == kListens)
        text = "it listens";
    else if ((f.flags & kByVmad) != 0)
        text = "vmad introduced nobody: the other side has no library, or was not ready";
    else if ((f.flags & kOtherUser) == 0 && (f.protocol == IPPROTO_UDP || (f.flags & kCandidate) != 0))
        text = "no accelerated peer was found";
    const unsigned long long calls = slot.now.rx.os_packets + slot.now.tx.os_packets;
    if (text != nullptr)
        std::snprintf(f.reason, sizeof f.reason, "%s", text);
    else if ((f.flags & kOtherUser) != 0)
        std::snprintf(f.reason, sizeof f.reason, "the other end is user %u's, who did not come to the meeting",
                      f.peer_user);
    else
        std::snprintf(f.reason, sizeof f.reason, "%llu sends and receives, VMA_LIFT_AFTER is %u", calls, lift_after);
}

const char *name_of_tcp_state(std::uint8_t state)
{
    static constexpr char kNames[][12] = {"",           "ESTABLISHED", "SYN_SENT",  "SYN_RECV",
                                          "FIN_WAIT1",  "FIN_WAIT2",   "TIME_WAIT", "CLOSE",
                                          "CLOSE_WAIT", "LAST_ACK",    "LISTEN",    "CLOSING"};
    return state < std::size(kNames) ? kNames[state] : "";
}

void describe(const SocketView &view, Text &out)
{
    const Counters &c = view.counters;
    describe_identity(*view.facts, out);
    if ((c.rx.thread | c.tx.thread) != 0)
        out.add("- Thread Id Rx: %5u, Tx: %5u\n", c.rx.thread, c.tx.thread);
    if (!has_traffic(c)) {
        out.add("Rx and Tx where not active\n");
        return;
    }
    describe_sent(c.tx, view.per, out);
    describe_received(c.rx, view.per, out);
    describe_queue(view, out);
    if ((c.rx.migrations | c.tx.migrations) != 0)
        out.add("Ring migrations Rx: %llu, Tx: %llu\n", static_cast<unsigned long long>(c.rx.migrations),
                static_cast<unsigned long long>(c.tx.migrations));
    if (c.tx.retransmits != 0)
        out.add("Retransmissions: %llu\n", static_cast<unsigned long long>(c.tx.retransmits));
}

} // namespace vma::stats
