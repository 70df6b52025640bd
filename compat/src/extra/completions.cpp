// SPDX-License-Identifier: BSD-2-Clause
// The way of a datagram from the engine's queue to a completion: with the poll lock held, and no other.
#include "compat/src/extra/completions.hpp"

#include "compat/src/extra/shared.hpp"
#include "compat/src/extra/state.hpp"

namespace vma::extra {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// nullptr: there is no room, or no memory; or it has to be copied to memory of the program's, whose allocator may do
// anything.
Packet *packet_of(sock::Socket &s, std::uint32_t generation, const iovec &bytes, sock::Loan &loan)
{
    if (bytes.iov_len <= kPacketRoom) [[likely]] {
        Packet *const packet = take_spare(g_tables.spare);
        if (packet == nullptr) [[unlikely]]
            return nullptr;
        std::memcpy(packet->room, bytes.iov_base, bytes.iov_len);
        hold_own(*packet, s, generation, bytes.iov_len);
        return packet;
    }
    return loan.lender != nullptr && has_room_for_packets(s) ? &hold(s, loan) : nullptr;
}

} // namespace

void put_hardware_time(vma_completion_t &made, std::int64_t ns)
{
    if (ns != 0) [[unlikely]]
        made.packet.hw_timestamp = {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
}

DatagramSink::DatagramSink(Output &out) : out_(out)
{
    take = take_one;
}

void DatagramSink::keep(std::ptrdiff_t places)
{
    kept_ = places;
    is_full = out_.end - out_.at <= kept_;
}

bool DatagramSink::take_one(Sink &sink, sock::Socket &s, const sock::udp::About &about, const iovec &bytes,
                            sock::Loan &loan)
{
    DatagramSink &self = static_cast<DatagramSink &>(sink);
    Output &out = self.out_;
    const State *const state = find_state(s);
    const int fd = state != nullptr ? state->ring_fd.load(std::memory_order_relaxed) : -1;
    if (fd < 0 || sink.is_full) // it is not of the ring; or a port brings more than there is room for
        return false;
    Packet *const packet = packet_of(s, state->generation, bytes, loan);
    if (packet == nullptr) [[unlikely]]
        return false;
    const int number = sock::lookup(fd) == &s ? fd : s.any_fd.load(std::memory_order_relaxed); // that one was closed
    vma_completion_t &made = out.packet(*packet, user_data_of(*state, number));
    put_source(made, about.source, about.source_port);
    put_hardware_time(made, about.hardware_ns);
    sink.is_full = out.end - out.at <= self.kept_;
    return true;
}

void sink_after_fork_in_child()
{
    g_tables.spare = nullptr; // all packets are free there
}

} // namespace vma::extra
