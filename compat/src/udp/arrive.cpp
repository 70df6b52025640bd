// SPDX-License-Identifier: BSD-2-Clause
// Datagrams that come by the endpoint, on whichever thread polls: for whom they are, and into the program's memory or a
// socket's queue. All of it with the poll lock of the socket's ring held.
#include <poll.h>
#include <time.h>

#include <algorithm>

#include "compat/src/base/probes.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/sink.hpp"
#include "compat/src/engine/this_thread.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/udp/shown.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

bool filters(const State &u, const About &about)
{
    return u.connected && (u.peer_port != about.source_port || !IN6_ARE_ADDR_EQUAL(&u.peer, &about.source));
}

std::int64_t read_clock(clockid_t clock)
{
    timespec now = {};
    ::clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

} // namespace

bool wants_time(const Wanted &wanted)
{
    return wanted.timestamp || wanted.timestamp_ns || wanted.timestamping;
}

std::int64_t time_of_day(std::int64_t monotonic_ns)
{
    return read_clock(CLOCK_REALTIME) - (read_clock(CLOCK_MONOTONIC) - monotonic_ns);
}

void scatter(const msghdr &msg, const iovec *parts, std::size_t count)
{
    std::size_t at = 0; // in the program's part
    const iovec *to = msg.msg_iov;
    const iovec *const end = to + msg.msg_iovlen;
    for (const iovec *from = parts; from != parts + count; ++from)
        for (std::size_t done = 0; done < from->iov_len && to != end;) {
            const std::size_t piece = std::min(to->iov_len - at, from->iov_len - done);
            if (piece != 0)
                std::memcpy(static_cast<std::uint8_t *>(to->iov_base) + at,
                            static_cast<const std::uint8_t *>(from->iov_base) + done, piece);
            done += piece;
            at += piece;
            if (at == to->iov_len) {
                at = 0;
                ++to;
            }
        }
}

namespace {

// With the sender, who had no room.
[[gnu::cold]] void note_lost(const Socket &s, State &u, std::uint32_t count)
{
    u.losses.add(count);
    stats::dropped(record_of(s), 0, count);
    probe::drop(s.any_fd.load(std::memory_order_relaxed), 0, count);
}

void note_queued(const Socket &s, std::size_t length)
{
    stats::Slot &record = record_of(s);
    stats::Arrived &in = record.now.in;
    stats::arrived(record, length);
    stats::raise(in.most_packets, stats::get(in.packets) - stats::get(record.now.rx.packets));
    stats::raise(in.most_bytes, stats::get(in.bytes) - stats::get(record.now.rx.bytes));
}

// True: it went to the call that polls.
bool put_directly(Socket &s, State &u, Direct *direct, const About &about, const iovec *parts, std::size_t count,
                  std::size_t length, Loan &loan)
{
    if (direct == nullptr || direct->socket != &s || direct->done || about.after_kernel || !u.queue.empty())
        return false;
    if (direct->loan != nullptr && loan.lender != nullptr && length > direct->copied)
        *direct->loan = std::exchange(loan, {});
    else if (direct->loan != nullptr && direct->force) [[unlikely]]
        return false; // it is lent from the queue
    else if (!can_overwrite(direct->msg->msg_iov, direct->msg->msg_iovlen, length)) [[unlikely]]
        direct->is_nowhere = true; // as in the kernel it is lost
    else
        scatter(*direct->msg, parts, count);
    direct->length = length;
    direct->about = about;
    direct->done = true;
    return true;
}

// True: it went to a poll of all sockets. What came before it, by either way, has to be read first.
bool put_in_sink(Socket &s, const State &u, const About &about, const iovec *parts, std::size_t count,
                 std::size_t length, Loan &loan)
{
    if (count != 1 || about.after_kernel || !u.queue.empty() ||
        !t_engine.sink->take(*t_engine.sink, s, about, *parts, loan))
        return false;
    stats::arrived(record_of(s), length);
    stats::received(record_of(s), length,
                    [&](const stats::Slot &record) { show_received(record, about, parts, length, length); });
    return true;
}

// Whether `loan` was made use of, it has no lender any more.
void put(Socket &s, State &u, Direct *direct, std::uint64_t data, About &about, const iovec *parts, std::size_t count,
         std::size_t length, Loan &loan, std::int64_t hardware_ns = 0)
{
    if (about.lost != 0) [[unlikely]]
        note_lost(s, u, about.lost);
    about.hardware_ns = hardware_ns;
    if (filters(u, about) || ((data & kToGroup) != 0 && !is_member(s, about))) [[unlikely]]
        return;
    if (wants_time(u.wanted) && about.arrived_ns == 0) [[unlikely]]
        about.arrived_ns = read_clock(CLOCK_REALTIME);
    u.arrival_tick.store(current_tick(), std::memory_order_relaxed);
    if (put_directly(s, u, direct, about, parts, count, length, loan)) {
        stats::arrived(record_of(s), length);
        return;
    }
    if (t_engine.sink != nullptr && put_in_sink(s, u, about, parts, count, length, loan))
        return;
    if (loan.lender != nullptr && u.lends.load(std::memory_order_relaxed) && u.queue.push(about, loan)) {
        loan = {};
    } else if (!u.queue.push(about, parts, count, length)) [[unlikely]] {
        u.losses.add(1);
        stats::dropped(record_of(s), length);
        probe::drop(s.any_fd.load(std::memory_order_relaxed), length, 1);
        return;
    }
    note_queued(s, length);
    notify(s, POLLIN);
}

// The socket that `data` names, if it takes datagrams.
Socket *addressed(std::uint64_t data)
{
    Socket *const s = socket_by_index(index_of(data));
    if (s == nullptr)
        return nullptr;
    const State *const u = s->udp.load(std::memory_order_acquire);
    const std::uint32_t cookie = cookie_of(data);
    return u != nullptr && cookie != 0 && u->cookie.load(std::memory_order_acquire) == cookie ? s : nullptr;
}

} // namespace

namespace {

// What stands behind the datagram that the polling call got: a few loans are cheaper to queue now than to be looked for
// by a call each.
bool may_queue_behind(Direct &direct, const fi_vma_lender *lender)
{
    constexpr std::uint8_t kMostBehind = 12; // with the one in front less of a ring than its sender would miss
    return lender != nullptr && direct.loan != nullptr && direct.copied == 0 && direct.behind++ < kMostBehind;
}

} // namespace

int take(void *context, const void *payload, std::size_t length, std::uint64_t data, fi_vma_lender *lender)
{
    if (t_engine.sink != nullptr && t_engine.sink->is_full)
        return 0; // for its next poll
    auto &arrivals = *static_cast<Arrivals *>(context);
    Direct *const direct = arrivals.direct;
    Socket *const s = addressed(data);
    if (direct != nullptr && direct->done && s == direct->socket && !may_queue_behind(*direct, lender))
        return 0; // for its next call
    ++arrivals.taken;
    About about;
    const std::size_t header = s != nullptr ? read_header(data, payload, length, about) : 0;
    if (header != 0) [[likely]] {
        const auto *const bytes = static_cast<const std::uint8_t *>(payload) + header;
        const iovec part = {const_cast<std::uint8_t *>(bytes), length - header};
        Loan loan = {lender, static_cast<const std::uint8_t *>(payload), static_cast<std::uint32_t>(length),
                     static_cast<std::uint32_t>(header)};
        put(*s, state_of(*s), direct, data, about, &part, 1, part.iov_len, loan);
        if (lender != nullptr && loan.lender == nullptr)
            return FI_VMA_KEPT;
    }
    return 1;
}

void set_sink(Sink *sink)
{
    t_engine.sink = sink;
}

void take_foreign(Socket &s, About &about, Loan &loan, std::int64_t hardware_ns)
{
    State &u = state_of(s);
    ++g_engine.arrivals.taken;
    about.after_kernel = u.kernel_first.load(std::memory_order_relaxed);
    const iovec bytes = {const_cast<std::uint8_t *>(loan.data()), loan.length()};
    put(s, u, g_engine.arrivals.direct, is_group_address(about.destination) ? kToGroup : 0, about, &bytes, 1,
        bytes.iov_len, loan, hardware_ns);
}

bool take_own(std::uint64_t data, const About &about, const iovec *parts, std::size_t count, std::size_t length)
{
    Socket *const receiver = socket_by_index(index_of(data));
    if (receiver == nullptr)
        return false;
    const RingMask ring = ring_of(*receiver);
    engine_exclude_polling(true, ring);
    Socket *const s =
        ring_of(*receiver) == ring ? addressed(data) : nullptr; // one that has changed its ring has another cookie
    if (s != nullptr) {
        About known = about;
        Loan none;
        put(*s, state_of(*s), nullptr, data, known, parts, count, length, none);
    }
    engine_exclude_polling(false, ring);
    return s != nullptr;
}

} // namespace vma::sock::udp
