// SPDX-License-Identifier: BSD-2-Clause
// The receive callback. A receiving call takes what has come, lent or by the kernel, asks the program's function, and
// goes on until one is to be received. A wait asks about what was lent, and keeps what is to be received (`ready`) for
// the next receive.
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#include <algorithm>

#include "compat/src/base/arguments.hpp"
#include "compat/src/base/parts.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/extra/packets.hpp"
#include "compat/src/extra/receive.hpp"
#include "compat/src/extra/shared.hpp"
#include "compat/src/extra/state.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::extra {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

struct Names {
    sockaddr_storage from = {};
    sockaddr_storage to = {};
};

void write_name(sockaddr_storage &out, const in6_addr &address, std::uint16_t port)
{
    sockaddr_in6 v6 = {};
    sockaddr_in v4 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = v4.sin_port = port;
    v6.sin6_addr = address;
    v4.sin_family = AF_INET;
    memcpy(&v4.sin_addr, &address.s6_addr[12], sizeof v4.sin_addr);
    if (IN6_IS_ADDR_V4MAPPED(&address))
        memcpy(&out, &v4, sizeof v4);
    else
        memcpy(&out, &v6, sizeof v6);
}

timespec time_of(std::int64_t ns)
{
    return {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
}

// What the callback is told of bytes that are in `parts`. `about` nullptr: the kernel brought them.
int ask(sock::Socket &s, State &state, int fd, iovec *parts, std::size_t count, std::size_t bytes, Packet *packet,
        const sock::udp::About *about, Names &names)
{
    const vma_recv_callback_t callback = state.callback.load(std::memory_order_acquire);
    if (callback == nullptr)
        return VMA_PACKET_RECV;
    socklen_t size = sizeof names.to;
    libc::real.getsockname(sock::live_fd(s, fd), reinterpret_cast<sockaddr *>(&names.to), &size);
    vma_info_t info = {};
    info.struct_sz = sizeof info;
    info.packet_id = packet;
    info.src = reinterpret_cast<sockaddr_in *>(&names.from);
    info.dst = reinterpret_cast<sockaddr_in *>(&names.to);
    info.payload_sz = bytes;
    info.socket_ready_queue_pkt_count = state.ready_count;
    info.socket_ready_queue_byte_count = state.ready_bytes;
    if (about != nullptr) {
        write_name(names.to, about->destination, reinterpret_cast<const sockaddr_in *>(&names.to)->sin_port);
        info.hw_timestamp = time_of(about->hardware_ns);
        info.sw_timestamp = time_of(about->arrived_ns);
    }
    const libc::OutsideStretches outside; // of a wait that looks at what is ready
    return callback(fd, count, parts, &info, state.callback_context.load(std::memory_order_relaxed));
}

int ask_of_packet(sock::Socket &s, State &state, int fd, Packet &packet, const sock::udp::About &about)
{
    Names names;
    iovec part = {packet.bytes(), packet.size()};
    const bool datagram = sock::protocol(s).messages;
    if (datagram)
        write_name(names.from, about.source, about.source_port);
    else
        write_name(names.from, s.addresses.peer.sin6_addr, s.addresses.peer.sin6_port);
    return ask(s, state, fd, &part, 1, packet.size(), &packet, datagram ? &about : nullptr, names);
}

// ---- what a wait has let through

void keep_ready(State &state, Packet &packet, const sock::udp::About &about)
{
    const sock::LockGuard guard(state.ready_lock);
    packet.about = about;
    packet.offset = 0;
    packet.next_ready = nullptr;
    (state.last_ready != nullptr ? state.last_ready->next_ready : state.first_ready) = &packet;
    state.last_ready = &packet;
    state.ready_count = state.ready_count + 1;
    state.ready_bytes = state.ready_bytes + static_cast<std::uint32_t>(packet.size());
}

// So many bytes of it, at the most, are to be copied to the message's parts and have room there. -EFAULT: none.
ssize_t room_in(const msghdr &message, std::size_t most)
{
    std::size_t there = 0;
    for (sock::Parts parts(message, 0); there < most && parts.next();) {
        const std::size_t n = std::min(parts.length(), most - there);
        if (!libc::can_overwrite(parts.bytes(), n))
            return there != 0 ? static_cast<ssize_t>(there) : -EFAULT;
        there += n;
    }
    return static_cast<ssize_t>(there);
}

// ready_lock held.
void take_first(State &state, std::size_t left)
{
    Packet &packet = *state.first_ready;
    state.first_ready = packet.next_ready;
    if (state.first_ready == nullptr)
        state.last_ready = nullptr;
    state.ready_count = state.ready_count - 1;
    state.ready_bytes = state.ready_bytes - static_cast<std::uint32_t>(left);
    drop(packet);
}

// A whole datagram, as recvmsg() gives it: what finds no memory of the program's is lost.
ssize_t give_datagram(const sock::Socket &s, State &state, msghdr &message, int flags)
{
    const Packet &packet = *state.first_ready;
    const std::size_t length = packet.size();
    const ssize_t fits = room_in(message, length);
    const bool cut = fits >= 0 && static_cast<std::size_t>(fits) < length;
    ssize_t result = (flags & MSG_TRUNC) != 0 && fits >= 0 ? static_cast<ssize_t>(length) : fits;
    if (cut && static_cast<std::size_t>(fits) < sock::total_length(message))
        result = -EFAULT; // a part of its room is not there
    if (!sock::udp::has_room_for_name(message))
        result = -EFAULT;
    if (result >= 0) {
        const iovec bytes = {packet.bytes(), length};
        sock::udp::scatter(message, &bytes, 1);
        message.msg_flags = cut ? MSG_TRUNC : 0;
        sock::udp::describe(s, packet.about, &message);
    }
    if ((flags & MSG_PEEK) == 0)
        take_first(state, length);
    return result;
}

// What is left of the first, or a part of it, which goes nowhere with MSG_TRUNC.
ssize_t give_bytes(State &state, msghdr &message, int flags)
{
    Packet &packet = *state.first_ready;
    const std::size_t left = packet.left();
    const std::size_t most = std::min(left, sock::total_length(message));
    const bool copies = (flags & MSG_TRUNC) == 0;
    const ssize_t n = copies ? room_in(message, most) : static_cast<ssize_t>(most);
    if (n < 0)
        return n;
    const auto fits = static_cast<std::size_t>(n);
    const iovec bytes = {static_cast<char *>(packet.bytes()) + packet.offset, fits};
    if (copies)
        sock::udp::scatter(message, &bytes, 1);
    sock::describe_bytes(message, flags);
    if ((flags & MSG_PEEK) != 0)
        return n;
    packet.offset += fits;
    if (packet.offset < packet.size())
        state.ready_bytes = state.ready_bytes - static_cast<std::uint32_t>(fits);
    else
        take_first(state, left);
    return n;
}

// Gives the program what stands first; what is left of a stream's stays. -EAGAIN: there is none; -EFAULT: no memory is
// where it is to go.
ssize_t take_ready(sock::Socket &s, State &state, msghdr &message, int flags)
{
    const sock::LockGuard guard(state.ready_lock);
    if (state.first_ready == nullptr)
        return -EAGAIN;
    return sock::protocol(s).messages ? give_datagram(s, state, message, flags) : give_bytes(state, message, flags);
}

// What stands first, which is the program's from now on; nullptr: there is none.
Packet *pop_ready(const sock::Socket &s, State &state, msghdr &message)
{
    const sock::LockGuard guard(state.ready_lock);
    Packet *const packet = state.first_ready;
    if (packet == nullptr)
        return nullptr;
    state.first_ready = packet->next_ready;
    if (state.first_ready == nullptr)
        state.last_ready = nullptr;
    state.ready_count = state.ready_count - 1;
    state.ready_bytes = state.ready_bytes - static_cast<std::uint32_t>(packet->left());
    if (sock::protocol(s).messages)
        sock::udp::describe(s, packet->about, &message);
    else
        name_peer(s, message);
    return packet;
}

// True: it is for the program's next receive. Else it was dropped, or is held.
bool judge(sock::Socket &s, State &state, int fd, sock::Loan &loan, const sock::udp::About &about)
{
    Packet &packet = hold(s, loan);
    const int verdict = ask_of_packet(s, state, fd, packet, about);
    if (verdict == VMA_PACKET_RECV)
        keep_ready(state, packet, about);
    else if (verdict != VMA_PACKET_HOLD)
        drop(packet);
    return verdict == VMA_PACKET_RECV;
}

// The sender's name is received into memory of ours: the callback is told it, whole, whether the program asks for it or
// not.
class Sender
{
public:
    explicit Sender(const msghdr &asked) : asked_(asked) {}
    void ask(msghdr &message)
    {
        message.msg_name = &name_;
        message.msg_namelen = sizeof name_;
    }
    // What the program has asked for. False: EFAULT.
    bool give(msghdr &message)
    {
        const std::size_t length = std::min<std::size_t>(message.msg_namelen, sizeof name_);
        const std::size_t fits = std::min<std::size_t>(asked_.msg_namelen, length);
        message.msg_name = asked_.msg_name;
        if (message.msg_name == nullptr) {
            message.msg_namelen = asked_.msg_namelen; // as it was
            return true;
        }
        if (!libc::can_update(message.msg_name, fits))
            return false;
        memcpy(message.msg_name, &name_, fits);
        return true;
    }

private:
    const msghdr &asked_;
    sockaddr_storage name_;
};

// Who sent what the kernel brought: it names the sender of a datagram, and nobody of a stream.
void name_source(const sock::Socket &s, int fd, const msghdr &message, sockaddr_storage &from)
{
    socklen_t size = sizeof from;
    if (!sock::protocol(s).messages)
        libc::real.getpeername(sock::live_fd(s, fd), reinterpret_cast<sockaddr *>(&from), &size);
    else if (message.msg_name != nullptr)
        memcpy(&from, message.msg_name, std::min<std::size_t>(message.msg_namelen, sizeof from));
}

// What the kernel brought stands in the program's buffer, which is the next receive's: the callback is shown a copy,
// which can be held. True: it may stay in the buffer, where what the callback has changed is changed then.
bool judge_copy(sock::Socket &s, State &state, int fd, const msghdr &message, std::size_t length, int flags)
{
    const bool goes_nowhere = (flags & MSG_TRUNC) != 0 && !sock::protocol(s).messages;
    if (goes_nowhere)
        return true; // bytes of a stream that nobody wants to see
    const std::size_t bytes = std::min(length, sock::total_length(message));
    Names names;
    name_source(s, fd, message, names.from);
    sock::Loan copy = sock::lend_copy(message, bytes);
    if (copy.lender == nullptr)
        return true; // no memory: as if nobody asked
    Packet &packet = hold(s, copy);
    iovec part = {packet.bytes(), bytes};
    const int verdict = ask(s, state, fd, &part, 1, bytes, &packet, nullptr, names);
    if (verdict == VMA_PACKET_HOLD)
        return false;
    if (verdict == VMA_PACKET_RECV)
        sock::udp::scatter(message, &part, 1);
    drop(packet);
    return verdict == VMA_PACKET_RECV;
}

// One packet that the callback lets through, or a part of a stream's.
ssize_t receive_one(sock::Socket &s, int fd, msghdr &message, int flags)
{
    State *const state = find_state(s);
    const msghdr asked = message;
    Sender sender(asked);
    for (;;) {
        message = asked;
        const ssize_t kept = state != nullptr ? take_ready(s, *state, message, flags) : -EAGAIN;
        if (kept != -EAGAIN)
            return kept >= 0 ? kept : sock::give(kept);
        if (state == nullptr || state->callback.load(std::memory_order_acquire) == nullptr) {
            note_extra(s, sock::kScreened, false);
            return sock::receive_unscreened(s, fd, &message, flags);
        }
        if (!has_room_for_packets(s) || (flags & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB)) != 0)
            return sock::receive_unscreened(s, fd, &message, flags);
        sender.ask(message);
        Arrival arrival;
        arrival.most = 1;
        const ssize_t n = receive(s, fd, message, flags, false, arrival);
        if (n < 0) {
            message = asked; // the program's, which may use it again
            return n;
        }
        if (arrival.count != 0) {
            judge(s, *state, fd, arrival.loans[0], arrival.about);
            continue;
        }
        if (n == 0 || judge_copy(s, *state, fd, message, static_cast<std::size_t>(n), flags))
            return sender.give(message) ? n : sock::give(-EFAULT);
    }
}

// More of the stream could be had at once: in the list, in the ring, or by the kernel behind it. Of a connection that
// has no ring the kernel gave all that it had.
bool has_more(const sock::Socket &s)
{
    const sock::Stream &stream = sock::as_stream(s);
    return has_ready(s) ||
           (sock::offloaded(s) &&
            (sock::has_input(stream) || stream.rx.path.load(std::memory_order_relaxed) == sock::Path::kKernel));
}

// What is left of the message's parts behind `done` bytes, or the first of it.
struct Rest {
    iovec parts[16];
    msghdr message;
    std::size_t room = 0;

    Rest(const msghdr &whole, std::size_t done) : message(whole)
    {
        message.msg_iov = parts;
        message.msg_iovlen = 0;
        for (std::size_t i = 0; i < whole.msg_iovlen && message.msg_iovlen < std::size(parts); ++i) {
            const iovec &part = whole.msg_iov[i];
            const std::size_t skipped = std::min(done, part.iov_len);
            done -= skipped;
            if (skipped == part.iov_len)
                continue;
            parts[message.msg_iovlen++] = {static_cast<char *>(part.iov_base) + skipped, part.iov_len - skipped};
            room += part.iov_len - skipped;
        }
    }
};

// Packet by packet, until all parts are full or, without MSG_WAITALL, no more is there: of whoever gets less than asked
// for edge-triggered programs believe that.
ssize_t receive_bytes(sock::Socket &s, int fd, msghdr &message, int flags)
{
    const bool all = (flags & MSG_WAITALL) != 0;
    const std::size_t total = sock::total_length(message);
    std::size_t done = 0;
    for (bool was_full = true; done < total && (was_full || has_more(s) || (all && sock::offloaded(s)));) {
        Rest rest(message, done);
        const ssize_t n = receive_one(s, fd, rest.message, done == 0 || all ? flags : flags | MSG_DONTWAIT);
        if (n < 0 && done != 0 && sock::offloaded(s))
            sock::keep_error(s, errno);
        if (n <= 0)
            return done != 0 ? static_cast<ssize_t>(done) : n;
        if (done == 0) {
            message.msg_namelen = rest.message.msg_namelen;
            message.msg_controllen = rest.message.msg_controllen;
            message.msg_flags = rest.message.msg_flags;
        }
        was_full = static_cast<std::size_t>(n) == rest.room;
        done += static_cast<std::size_t>(n);
    }
    return static_cast<ssize_t>(done);
}

} // namespace

bool any_callbacks()
{
    return g_tables.callbacks.load(std::memory_order_relaxed) != 0;
}

bool has_ready(const sock::Socket &s)
{
    const State *const state = find_state(s);
    return state != nullptr && state->ready_count != 0;
}

std::size_t bytes_ready(const sock::Socket &s)
{
    State *const state = find_state(s);
    if (state == nullptr)
        return 0;
    const sock::LockGuard guard(state->ready_lock);
    return !sock::protocol(s).messages || state->first_ready == nullptr ? std::size_t{state->ready_bytes}
                                                                        : state->first_ready->size();
}

ssize_t receive_packet_screened(sock::Socket &s, int fd, msghdr &message, int flags, bool force, Packet *&packet)
{
    State &state = *find_state(s);
    const msghdr asked = message;
    Sender sender(asked);
    for (;;) {
        message = asked;
        sender.ask(message);
        packet = pop_ready(s, state, message);
        if (packet != nullptr) {
            if (sender.give(message))
                return static_cast<ssize_t>(packet->left());
            drop(*packet);
            packet = nullptr;
            return sock::give(-EFAULT);
        }
        Arrival arrival;
        arrival.most = 1;
        const ssize_t n = receive(s, fd, message, flags, force, arrival);
        if (n < 0)
            return n;
        if (arrival.count != 0) {
            judge(s, state, fd, arrival.loans[0], arrival.about);
            continue;
        }
        if (n == 0 || judge_copy(s, state, fd, message, static_cast<std::size_t>(n), flags))
            return sender.give(message) ? n : sock::give(-EFAULT);
    }
}

ssize_t receive_screened(sock::Socket &s, int fd, msghdr &message, int flags)
{
    if (sock::refused_message(message) != 0)
        return sock::receive_unscreened(s, fd, &message, flags); // which says how
    const bool one = sock::protocol(s).messages || (flags & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB)) != 0;
    return one || sock::total_length(message) == 0 ? receive_one(s, fd, message, flags)
                                                   : receive_bytes(s, fd, message, flags);
}

bool screen(sock::Socket &s, int fd)
{
    State *const state = find_state(s);
    if (state == nullptr || !sock::offloaded(s) || !has_room_for_packets(s))
        return true;
    if ((sock::ready_events(s, fd, POLLIN) & (POLLERR | POLLHUP)) != 0)
        return true; // an error is the program's to take
    char nowhere[1];
    while (state->ready_count == 0 && state->callback.load(std::memory_order_acquire) != nullptr) {
        iovec part = {nowhere, sizeof nowhere};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        Arrival arrival;
        arrival.most = 1;
        const ssize_t n = receive(s, fd, message, MSG_DONTWAIT, true, arrival);
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0 || arrival.count == 0)
            return true; // the kernel has it: the receive will ask
        judge(s, *state, fd, arrival.loans[0], arrival.about);
    }
    return true;
}

int register_recv_callback(int fd, vma_recv_callback_t callback, void *context)
{
    sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr || s->mode.load(std::memory_order_acquire) == sock::Mode::kKernel)
        return fail(EINVAL);
    State *const state = state_of(*s);
    if (state == nullptr)
        return fail(ENOMEM);
    state->callback_context.store(context, std::memory_order_relaxed);
    state->callback.store(callback, std::memory_order_release);
    if (callback == nullptr)
        return 0;
    note_extra(*s, sock::kScreened, true);
    g_tables.callbacks.store(1, std::memory_order_relaxed);
    return 0;
}

} // namespace vma::extra
