// SPDX-License-Identifier: BSD-2-Clause
// What the log says of a TCP connection when vma_stats -S asks: windows, queues and times, of whatever carries it. The
// endpoint's where it is on an Ethernet port, the kernel's where the kernel has it, and of a ring what lies in it.
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <climits>

#include "compat/src/libc/real.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/stats/text.hpp"
#include "compat/src/table/socket.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

// Who asks may be within a call on this very socket, with its lock.
bool read_info(Stream &s, int fd, tcp_info &info)
{
    socklen_t size = sizeof info;
    if (libc::real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    if (!offloaded(s))
        return true;
    if (!s.tx_lock.try_lock())
        return false;
    s.tx_lock.unlock();
    transport(s).correct_option(s, IPPROTO_TCP, TCP_INFO, &info, size);
    return true;
}

void describe_options(const tcp_info &info, stats::Text &out)
{
    const unsigned options = info.tcpi_options;
    if ((options & TCPI_OPT_WSCALE) != 0)
        out.add("- Window scaling: ENABLED, receive scale %u, send scale %u\n", unsigned{info.tcpi_rcv_wscale},
                unsigned{info.tcpi_snd_wscale});
    else
        out.add("- Window scaling: DISABLED\n");
    out.add("- Options:%s%s%s\n", (options & TCPI_OPT_TIMESTAMPS) != 0 ? " time stamps" : "",
            (options & TCPI_OPT_SACK) != 0 ? " SACK" : "", (options & TCPI_OPT_ECN) != 0 ? " ECN" : "");
}

void describe_connection(const tcp_info &info, stats::Text &out)
{
    out.add("- Connection state: %s\n", stats::name_of_tcp_state(info.tcpi_state));
    describe_options(info, out);
    out.add("- Segment size: send %u, receive %u [bytes]\n", info.tcpi_snd_mss, info.tcpi_rcv_mss);
    out.add("- Receive window: %u [bytes]\n", info.tcpi_rcv_space);
    out.add("- Send window: %u [bytes]\n", info.tcpi_snd_wnd);
    if (info.tcpi_snd_ssthresh >= INT_MAX)
        out.add("- Congestion window: %u [segments]\n", info.tcpi_snd_cwnd);
    else
        out.add("- Congestion window: %u, threshold %u [segments]\n", info.tcpi_snd_cwnd, info.tcpi_snd_ssthresh);
    out.add("- Round trip: %u, variation %u, timeout %u [usec]\n", info.tcpi_rtt, info.tcpi_rttvar, info.tcpi_rto);
    out.add("- Unsent queue: %u [bytes]\n", info.tcpi_notsent_bytes);
    out.add("- Unacked queue: %u [segments], sent again %u\n", info.tcpi_unacked, info.tcpi_total_retrans);
}

void describe_ring(const Stream &s, stats::Text &out)
{
    const std::uint64_t credit = s.tx.credit.load(std::memory_order_acquire);
    const std::uint64_t sent = s.tx.position;
    const std::uint64_t consumed = s.rx.consumed.load(std::memory_order_acquire);
    const std::uint64_t written = s.rx.written.load(std::memory_order_relaxed);
    out.add("- Send ring: %llu bytes sent, %llu of them not known to be read\n", static_cast<unsigned long long>(sent),
            static_cast<unsigned long long>(sent - std::min(sent, credit)));
    out.add("- Receive ring: %llu bytes arrived, %llu of them not read\n", static_cast<unsigned long long>(written),
            static_cast<unsigned long long>(written - std::min(written, consumed)));
}

void describe_stream(int fd, stats::Text &out)
{
    Socket *const s = lookup(fd);
    Stream *const stream = s != nullptr ? stream_of(*s) : nullptr;
    tcp_info info = {};
    if (stream == nullptr)
        return;
    if (offloaded(*stream) && transport(*stream).spans)
        describe_ring(*stream, out);
    else if (read_info(*stream, fd, info))
        describe_connection(info, out);
    else
        out.add("- Windows and queues: a call is under way, ask again\n");
}

} // namespace

} // namespace vma::sock

namespace vma::stats {

constinit const Describer kDescriber = {sock::describe_stream};

} // namespace vma::stats
