// SPDX-License-Identifier: BSD-2-Clause
// What socketxtreme_poll() writes to the program's array, and the datagrams that go there from the queue's reader.
#pragma once

#include <mellanox/vma_extra.h>

#include <cstdint>
#include <cstring>

#include "compat/src/engine/sink.hpp"
#include "compat/src/extra/packets.hpp"

namespace vma::extra {

// All fields of a completion are written: the array is the program's, and not zeroed.
struct Output {
    vma_completion_t *at;
    vma_completion_t *end;

    bool is_full() const { return at == end; }
    vma_completion_t &event(std::uint64_t events, std::uint64_t user_data)
    {
        *at = {};
        at->events = events;
        at->user_data = user_data;
        return *at++;
    }
    vma_completion_t &packet(Packet &packet, std::uint64_t user_data)
    {
        vma_completion_t &made = *at++;
        made.packet = {1, packet.buffer.len, &packet.buffer, {}};
        made.events = VMA_SOCKETXTREME_PACKET;
        made.user_data = user_data;
        made.src = {};
        made.listen_fd = 0;
        return made;
    }
};

// The last four bytes of a v4-mapped address; of another one there is no room for more. `port` in network byte order.
inline void put_source(vma_completion_t &made, const in6_addr &address, std::uint16_t port)
{
    made.src.sin_family = AF_INET;
    made.src.sin_port = port;
    std::memcpy(&made.src.sin_addr, &address.s6_addr[12], sizeof made.src.sin_addr);
}

void put_hardware_time(vma_completion_t &made, std::int64_t ns); // 0: it has not stamped it

// Takes what comes for the sockets of the ring, as long as there is room in `out`.
class DatagramSink : public sock::udp::Sink
{
public:
    explicit DatagramSink(Output &out);
    void keep(std::ptrdiff_t places); // so many of `out` are for others from now on

private:
    static bool take_one(Sink &sink, sock::Socket &s, const sock::udp::About &about, const iovec &bytes,
                         sock::Loan &loan);
    Output &out_;
    std::ptrdiff_t kept_ = 0;
};

void sink_after_fork_in_child();

} // namespace vma::extra
