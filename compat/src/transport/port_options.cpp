// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/transport/port_options.hpp"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/transport/buffers.hpp"

namespace vma::sock {

namespace {

constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
constexpr int kEcnBits = 3;

template <typename Value> bool get(int fd, int level, int name, Value &value)
{
    socklen_t length = sizeof value;
    return libc::real.getsockopt(fd, level, name, &value, &length) == 0 && length == sizeof value;
}

std::uint8_t get_switch(int fd, int level, int name)
{
    return libc::read_option(fd, level, name, 0) != 0 ? 1 : 0;
}

void read_buffers(int fd, fi_vma_tcp &tcp)
{
    constexpr std::uint32_t kLeast = 2048;
    const AskedBuffers asked = asked_buffers(fd);
    if (asked.send != 0)
        tcp.send_buffer = std::max(asked.send, kLeast);
    if (asked.receive != 0)
        tcp.receive_buffer = std::max(asked.receive, kLeast);
}

void read_ip(int fd, bool v4, fi_vma_tcp &tcp)
{
    const int tos =
        v4 ? libc::read_option(fd, IPPROTO_IP, IP_TOS, 0) : libc::read_option(fd, IPPROTO_IPV6, IPV6_TCLASS, 0);
    const int ttl =
        v4 ? libc::read_option(fd, IPPROTO_IP, IP_TTL, 64) : libc::read_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64);
    tcp.traffic_class = static_cast<std::uint8_t>(tos & ~kEcnBits);
    tcp.hop_limit = static_cast<std::uint8_t>(std::clamp(ttl, 1, 255));
}

void read_tcp(int fd, fi_vma_tcp &tcp)
{
    char algorithm[16] = {};
    socklen_t length = sizeof algorithm - 1;
    std::uint64_t rate = kUnlimited;
    tcp.nodelay = get_switch(fd, IPPROTO_TCP, TCP_NODELAY);
    tcp.cork = get_switch(fd, IPPROTO_TCP, TCP_CORK);
    tcp.user_timeout = static_cast<std::uint32_t>(std::max(libc::read_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0), 0));
    tcp.keepalive_idle =
        static_cast<std::uint32_t>(std::max(libc::read_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 7200), 1));
    tcp.keepalive_interval =
        static_cast<std::uint32_t>(std::max(libc::read_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 75), 1));
    tcp.keepalive_probes =
        static_cast<std::uint8_t>(std::clamp(libc::read_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 9), 1, 127));
    if (libc::real.getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, &length) == 0)
        tcp.congestion = strcmp(algorithm, "reno") == 0 ? FI_VMA_NEWRENO : FI_VMA_CUBIC;
    tcp.rate = get(fd, SOL_SOCKET, SO_MAX_PACING_RATE, rate) && rate != kUnlimited ? rate : 0;
}

void take_variables(bool v4, fi_vma_tcp &tcp)
{
    constexpr std::uint32_t kLeast = 88; // as in the kernel, and in the stack
    const config::Params &p = config::params();
    const std::uint32_t headers = v4 ? 40 : 60;
    if (p.mtu != 0)
        tcp.max_segment = std::max(kLeast, p.mtu - std::min(p.mtu, headers));
    if (p.mss != 0)
        tcp.max_segment = std::max(kLeast, tcp.max_segment != 0 ? std::min(tcp.max_segment, p.mss) : p.mss);
    if (p.tcp_cc_algo != config::kCcOfSocket)
        tcp.congestion = p.tcp_cc_algo == 0 ? FI_VMA_NEWRENO : FI_VMA_CUBIC;
    tcp.nodelay |= p.tcp_nodelay ? 1 : 0;
    tcp.quick_ack = p.tcp_quickack ? 1 : 0;
    tcp.quick_ack_most = p.tcp_quickack_threshold;
}

int tell(Stream &s, int fd)
{
    fi_vma_tcp tcp = {};
    std::size_t size = sizeof tcp;
    int result = fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP), &tcp, &size);
    if (result != 0)
        return result;
    read_buffers(fd, tcp);
    read_ip(fd, IN6_IS_ADDR_V4MAPPED(&s.addresses.peer.sin6_addr), tcp);
    read_tcp(fd, tcp);
    take_variables(IN6_IS_ADDR_V4MAPPED(&s.addresses.peer.sin6_addr), tcp);
    tcp.keepalive = s.keepalive ? 1 : 0;
    if (s.quickack)
        tcp.quick_ack = 1;
    return fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP), &tcp, sizeof tcp);
}

void let_kernel_keep_alive(int fd, bool on)
{
    const int value = on ? 1 : 0;
    libc::real.setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value);
}

} // namespace

int begin_port_options(Stream &s, int fd)
{
    s.keepalive = get_switch(fd, SOL_SOCKET, SO_KEEPALIVE) != 0;
    const int result = tell(s, fd);
    if (result == 0 && s.keepalive)
        let_kernel_keep_alive(fd, false);
    return result;
}

void end_port_options(Stream &s, int fd)
{
    if (s.keepalive)
        let_kernel_keep_alive(fd, true);
}

namespace {

void settle_port(Stream &s, int fd)
{
    const LockGuard guard(s.tx_lock);
    if (is_on_port(s))
        tell(s, fd);
}

// SO_KEEPALIVE, which the kernel must not do meanwhile.
int set_keepalive(Stream &s, int fd, const void *value, socklen_t len)
{
    int on = 0;
    {
        const LockGuard guard(s.tx_lock);
        if (is_on_port(s) && static_cast<int>(len) >= static_cast<int>(sizeof on) && value != nullptr) {
            memcpy(&on, value, sizeof on);
            s.keepalive = on != 0; // the port is told by port_option_was_set()
            return 0;
        }
    }
    return libc::real.setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, value, len);
}

void note_quickack(Stream &s, const void *value) // an int: the kernel has taken it
{
    int on = 0;
    memcpy(&on, value, sizeof on);
    s.quickack = on != 0;
}

} // namespace

bool set_port_option(Stream &s, int fd, int level, int name, const void *value, socklen_t len, int &result)
{
    if (level != SOL_SOCKET || name != SO_KEEPALIVE)
        return false;
    result = set_keepalive(s, fd, value, len);
    return true;
}

void port_option_was_set(Stream &s, int fd, int level, int name, const void *value)
{
    if (level == IPPROTO_TCP && name == TCP_QUICKACK)
        note_quickack(s, value);
    settle_port(s, fd);
}

namespace {

bool read_port_state(Stream &s, fi_vma_tcp_state &state) // false: it isn't on a port any more
{
    std::size_t size = sizeof state;
    const LockGuard guard(s.tx_lock);
    return is_on_port(s) &&
           fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP_STATE), &state, &size) == 0;
}

} // namespace

bool is_port_urgent(Stream &s)
{
    fi_vma_tcp_state state = {};
    return read_port_state(s, state) && state.urgent != 0;
}

bool count_port(Stream &s, QueuedBytes &bytes)
{
    fi_vma_tcp_state state = {};
    if (!read_port_state(s, state))
        return false;
    bytes = {state.readable, state.unacknowledged, state.unsent};
    return true;
}

void publish_port(Stream &s)
{
    fi_vma_tcp_state state = {};
    if (!read_port_state(s, state))
        return;
    stats::Counters &c = record_of(s).now;
    stats::add(c.tx.retransmits, state.retransmissions - std::exchange(s.told_retransmissions, state.retransmissions));
    stats::set(c.tx.waiting, std::uint64_t{state.unacknowledged});
    stats::set(c.in.bytes, stats::get(c.rx.bytes) + state.readable);
}

namespace {

// The program may have asked for the first fields only.
void overlay_tcp_info(Stream &s, void *value, socklen_t len)
{
    fi_vma_tcp_state state = {};
    tcp_info info = {};
    const std::size_t size = std::min<std::size_t>(len, sizeof info);
    if (!read_port_state(s, state))
        return;
    const std::uint32_t segment = std::max(state.segment, 1U);
    memcpy(&info, value, size);
    info.tcpi_rto = state.rto;
    info.tcpi_rtt = state.rtt;
    info.tcpi_rttvar = state.rtt_variation;
    info.tcpi_snd_mss = state.segment;
    info.tcpi_snd_cwnd = state.congestion_window / segment;
    info.tcpi_snd_ssthresh = state.threshold == UINT32_MAX ? INT32_MAX : state.threshold / segment;
    info.tcpi_unacked = (state.unacknowledged - state.unsent + segment - 1) / segment;
    info.tcpi_notsent_bytes = state.unsent;
    info.tcpi_total_retrans = state.retransmissions;
    info.tcpi_bytes_sent = state.bytes_sent;
    info.tcpi_bytes_acked = state.bytes_sent - std::min<std::uint64_t>(state.bytes_sent, state.unacknowledged);
    info.tcpi_bytes_received = state.bytes_received;
    info.tcpi_segs_out = static_cast<std::uint32_t>(state.segments_sent);
    info.tcpi_segs_in = static_cast<std::uint32_t>(state.segments_received);
    info.tcpi_rcv_space = state.receive_window;
    info.tcpi_snd_wnd = state.peer_window;
    memcpy(value, &info, size);
}

} // namespace

void correct_port_option(Stream &s, int level, int name, void *value, socklen_t len)
{
    const int keepalive = s.keepalive ? 1 : 0;
    if (level == IPPROTO_TCP && name == TCP_INFO)
        overlay_tcp_info(s, value, len);
    else if (level == SOL_SOCKET && name == SO_KEEPALIVE && len == sizeof keepalive)
        memcpy(value, &keepalive, sizeof keepalive);
}

} // namespace vma::sock
