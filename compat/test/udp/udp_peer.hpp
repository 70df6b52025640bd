// SPDX-License-Identifier: BSD-2-Clause
// Another process whose UDP socket sends back all it gets; and what the kernel has not delivered yet, as the library
// sees it.
#pragma once

#include "compat/src/engine/engine_state.hpp"
#include "compat/src/udp/backlog.hpp"
#include "compat/test/udp/udp_socket.hpp"
#include "fabtests/patience.hpp"

#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>

namespace vma::test {

// ---- what the kernel has not delivered yet

inline std::atomic<bool> g_quiet{false}; // other programs' packets, which nobody can tell from ours, are left out
inline std::atomic<std::uint32_t> g_seen_backlogs{0}; // by looks of the library

inline int open_backlog()
{
    std::ifstream file(g_quiet ? "/dev/null" : "/proc/net/softnet_stat");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    g_seen_backlogs += sock::udp::tells_backlog(text) ? 1 : 0;
    const int fd = ::memfd_create("softnet_stat", MFD_CLOEXEC);
    return ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) ? fd : -1;
}

inline int open_for_library(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const auto mode = static_cast<mode_t>((flags & O_CREAT) != 0 ? va_arg(rest, int) : 0);
    va_end(rest);
    return std::strcmp(path, "/proc/net/softnet_stat") == 0 ? open_backlog() : ::open(path, flags, mode);
}

// ---- the other process: sends back all it gets

struct Peer {
    pid_t process = -1;
    sockaddr_in address = {};
};
inline Peer g_peer;

enum PeerStatus { kGood, kLost, kBroken, kNotAccelerated };

inline PeerStatus echo(const UdpSocket &socket, std::uint32_t &by_kernel)
{
    const std::uint32_t before = socket.kernel_sends();
    Datagram datagram;
    for (;;) {
        sockaddr_in from = {};
        socklen_t size = sizeof from;
        const ssize_t n = sock::receive_from(*socket.s, socket.fd, &datagram, sizeof datagram, 0,
                                             reinterpret_cast<sockaddr *>(&from), &size);
        if (n < 0)
            return kLost;
        if (!datagram.is_whole(n))
            return kBroken;
        if (datagram.number == kEnd)
            break;
        if (socket.send(datagram, from) != n)
            return kLost;
    }
    by_kernel = socket.kernel_sends() - before;
    return kGood;
}

inline void start_peer()
{
    int channel[2];
    if (::pipe(channel) != 0)
        return;
    g_peer.process = ::fork();
    if (g_peer.process != 0) {
        if (::read(channel[0], &g_peer.address, sizeof g_peer.address) != sizeof g_peer.address)
            print_error("the peer says nothing\n");
        ::close(channel[0]);
        ::close(channel[1]);
        return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    UdpSocket socket;
    socket.set(SOL_SOCKET, SO_RCVTIMEO, timeval{patience::seconds(), 0});
    std::uint32_t by_kernel = 0;
    PeerStatus status = kLost;
    if (::write(channel[1], &socket.address, sizeof socket.address) == sizeof socket.address)
        status = echo(socket, by_kernel);
    if (status == kGood && !socket.takes_by_endpoint())
        status = kNotAccelerated;
    ::_exit(status);
}

inline std::uint32_t taken_from_ring()
{
    sock::engine_exclude_polling(true);
    const std::uint32_t taken = sock::g_engine.arrivals.taken;
    sock::engine_exclude_polling(false);
    return taken;
}

// Until both ways are by the endpoint, and none is to be looked up again.
inline bool accelerate_with_peer(const UdpSocket &socket)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (sock::now_ns() < until) {
        const std::uint32_t names = sock::udp::generation();
        const std::uint32_t sent = socket.kernel_sends();
        const std::uint32_t taken = taken_from_ring();
        Datagram datagram;
        if (!socket.send_number(0, 0, g_peer.address) || !datagram.is_whole(socket.receive(datagram)))
            return false;
        if (socket.kernel_sends() == sent && taken_from_ring() != taken && sock::udp::generation() == names)
            return true;
    }
    return false;
}

} // namespace vma::test
