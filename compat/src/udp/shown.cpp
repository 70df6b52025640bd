// SPDX-License-Identifier: BSD-2-Clause
// Which addresses a datagram has that the capture shows: what the header tells that receivers on this host get, what
// the program named, or what its socket is bound and connected to.
#include "compat/src/udp/shown.hpp"

#include <string.h>

#include "compat/src/base/addresses.hpp"

namespace vma::sock::udp {

namespace {

// Of the socket itself.
stats::CaptureEnds ends_of(const stats::Facts &f)
{
    stats::CaptureEnds ends;
    memcpy(&ends.local, f.local, sizeof ends.local);
    memcpy(&ends.peer, f.peer, sizeof ends.peer);
    ends.local_port = stats::get(f.local_port);
    ends.peer_port = stats::get(f.peer_port);
    return ends;
}

} // namespace

void show_sent(const stats::Slot &record, const Route &route, const Message &m)
{
    stats::CaptureEnds ends = ends_of(record.facts);
    sockaddr_in6 to = {};
    if (!route.to.is_connected() && to_v6(route.to.words, to)) {
        ends.peer = to.sin6_addr;
        ends.peer_port = ntohs(to.sin6_port);
    }
    About about;
    const std::uint64_t family = route.header_length == kIpv6Header ? kToIpv6 : 0;
    if (route.header_length != 0 && read_header(family, route.header, route.header_length, about) != 0) {
        ends.local = about.source;
        ends.local_port = ntohs(about.source_port);
        ends.peer = about.destination;
    }
    stats::capture_sent(record, m.parts, 0, m.length, m.length, &ends);
}

void show_received(const stats::Slot &record, const About &about, const iovec *parts, std::size_t length,
                   std::size_t there)
{
    const stats::CaptureEnds ends = {about.destination, about.source, stats::get(record.facts.local_port),
                                     ntohs(about.source_port)};
    stats::capture_received(record, parts, 0, length, there, &ends);
}

} // namespace vma::sock::udp
