// SPDX-License-Identifier: BSD-2-Clause
// A soak's datagrams: each is whole or does not come, comes once, and to the port that it was sent to.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fabtests/posix/programs/soak/calls.hpp"
#include "fabtests/posix/programs/soak/worker.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace soak {

using fabtest::Pattern;

namespace {

constexpr std::size_t kMost = 8000;

struct Header {
    std::uint64_t number;
    std::uint32_t length; // with the header
    std::uint32_t port;
};

void check_datagram(unsigned port, const char *bytes, std::size_t len)
{
    Header header{};
    if (len < sizeof header)
        fail(-1, "a datagram of %zu bytes at port %u: nobody sends less than %zu", len, port, sizeof header);
    std::memcpy(&header, bytes, sizeof header);
    const auto number = static_cast<unsigned long long>(header.number);
    if (header.number >= g_ledger->next_datagram || header.length != len || header.port != port)
        fail(-1, "datagram %llu of %u bytes to port %u came as %zu bytes at port %u", number, header.length,
             header.port, len, port);
    const std::size_t rest = len - sizeof header;
    const std::size_t good = Pattern(g_ledger->seed ^ header.number).check(0, bytes + sizeof header, rest);
    if (good != rest)
        fail(-1, "datagram %llu of %zu bytes at port %u: wrong at byte %zu", number, len, port, sizeof header + good);
    if (g_ledger->datagram_read[header.number]++ != 0)
        fail(-1, "datagram %llu of %zu bytes came twice to port %u", number, len, port);
    ++g_ledger->totals.datagrams_read;
}

} // namespace

void open_datagrams(Worker &w)
{
    for (unsigned family = 0; family < 2; ++family) {
        const int fd = fabtest::must(::socket(family ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), "socket");
        for (;;) {
            const auto port = static_cast<std::uint16_t>(10000 + g_ledger->next_port++);
            socklen_t len = 0;
            const sockaddr_storage address = loopback(family, port, &len);
            if (::bind(fd, reinterpret_cast<const sockaddr *>(&address), len) == 0) {
                w.datagram_ports[family] = port;
                g_ledger->workers[w.index].udp_port[family] = port;
                break;
            }
        }
        w.datagrams[family] = fd;
    }
}

void send_datagram(Worker &w)
{
    const auto family = static_cast<unsigned>(w.below(2));
    const std::uint16_t port = g_ledger->workers[w.below(kWorkers)].udp_port[family];
    if (w.datagrams[family] < 0 || port == 0 || g_ledger->next_datagram >= kDatagrams - 1000)
        return;
    socklen_t len = 0;
    const sockaddr_storage address = loopback(family, port, &len);
    doing(w, "sendto of a datagram");
    for (std::size_t left = w.random.size(5); left > 0; --left) {
        char bytes[kMost];
        const Header header{
            g_ledger->next_datagram++,
            static_cast<std::uint32_t>(sizeof header + w.below(w.one_in(8) ? kMost - sizeof header : 300)), port};
        std::memcpy(bytes, &header, sizeof header);
        Pattern(g_ledger->seed ^ header.number).fill(0, bytes + sizeof header, header.length - sizeof header);
        const ssize_t n =
            ::sendto(w.datagrams[family], bytes, header.length, 0, reinterpret_cast<const sockaddr *>(&address), len);
        if (n < 0 && errno != EAGAIN && errno != ECONNREFUSED)
            fail(-1, "sendto of datagram %llu: %s", static_cast<unsigned long long>(header.number),
                 strerrorname_np(errno));
        if (n >= 0 && n != static_cast<ssize_t>(header.length))
            fail(-1, "sendto of a datagram of %u bytes returned %zd", header.length, n);
        ++g_ledger->totals.datagrams_sent;
    }
}

void receive_datagrams(Worker &w)
{
    const std::size_t family = w.below(2);
    if (w.datagrams[family] < 0)
        return;
    doing(w, "recvfrom of datagrams");
    char bytes[kMost + 1];
    for (int left = 64; left > 0; --left) {
        sockaddr_storage from{};
        socklen_t len = sizeof from;
        const ssize_t n =
            ::recvfrom(w.datagrams[family], bytes, sizeof bytes, 0, reinterpret_cast<sockaddr *>(&from), &len);
        if (n >= 0) {
            check_datagram(w.datagram_ports[family], bytes, static_cast<std::size_t>(n));
            continue;
        }
        if (errno != EAGAIN && errno != ECONNREFUSED)
            fail(-1, "recvfrom of a datagram: %s", strerrorname_np(errno));
        if (errno == EAGAIN)
            return;
    }
}

} // namespace soak
