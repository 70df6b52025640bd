// SPDX-License-Identifier: BSD-2-Clause
// The steps of the simulation, and what must hold after each of them and at the end.
#include "compat/test/tcp/stream_sim.hpp"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include <algorithm>
#include <iterator>
#include <new>

#include "compat/src/libc/real.hpp"
#include "compat/src/offload/stream.hpp"
#include "compat/src/sharing/leftovers.hpp"

namespace vma::test::sim {

World g_world;

namespace {

using sock::Path;
using sock::Stream;

constexpr std::uint32_t kMostUnread = 40; // bytes that a sender is ahead of its reader

std::uint8_t byte_at(unsigned from, std::uint32_t position)
{
    return static_cast<std::uint8_t>(position * 7 + from * 128 + 1);
}

// ---- what programs do

void check_bytes(unsigned p, const std::uint8_t *bytes, std::size_t count)
{
    const std::uint32_t from = program(p).received;
    if (count > program(peer_of(p)).accepted - from) {
        report("more bytes come than were sent");
        return;
    }
    for (std::uint32_t i = 0; i < count; ++i)
        if (bytes[i] != byte_at(peer_of(p), from + i))
            report("a byte is not the next one");
}

void end_of_input(unsigned p, int error)
{
    Program &reader = program(p);
    const Program &writer = program(peer_of(p));
    reader.ended = true;
    if (g_world.kernel[p].disconnected && error == 0)
        report("an end, where the library has reset the connection");
    if (g_world.kernel[p].reset && error == 0 && reader.received != writer.accepted &&
        (g_world.between_hosts || !writer.dead))
        report("an end, where bytes went with a reset");
    if (g_world.may_reset)
        return;
    if (error != 0)
        report("an error, and nobody has reset the connection");
    else if (!writer.dead && !writer.shut)
        report("an end, and nobody has ended it");
    else if (reader.received != writer.accepted)
        report("an end before the last byte");
}

// A peek tells of all that FIONREAD counts, as far as there is room. But of what is being sent again, and between hosts
// of what the kernel has before END says that it comes next.
void check_peeked(unsigned p, std::size_t peeked, std::size_t room)
{
    Stream &s = socket_of(p);
    int count = 0;
    if (g_world.between_hosts || !sock::offloaded(s) || sock::bytes_readable(s, fd_of(p), &count) != 0 ||
        s.rx.returning)
        return;
    if (peeked < std::min(static_cast<std::size_t>(count), room))
        report("a peek stops before the last byte that is there");
}

} // namespace

int receive(unsigned p, std::size_t size, int flags)
{
    std::uint8_t bytes[64];
    const ssize_t n = sock::receive(socket_of(p), fd_of(p), bytes, std::min(size, sizeof bytes), flags | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return EAGAIN;
    if (n <= 0) {
        if ((flags & MSG_PEEK) == 0)
            end_of_input(p, n < 0 ? errno : 0);
        return n < 0 ? errno : 0;
    }
    check_bytes(p, bytes, static_cast<std::size_t>(n));
    if ((flags & MSG_PEEK) == 0)
        program(p).received += static_cast<std::uint32_t>(n);
    else
        check_peeked(p, static_cast<std::size_t>(n), std::min(size, sizeof bytes));
    return 0;
}

int send(unsigned p, std::size_t size)
{
    std::uint8_t bytes[64];
    for (std::uint32_t i = 0; i < size; ++i)
        bytes[i] = byte_at(p, program(p).accepted + i);
    const ssize_t n = sock::send(socket_of(p), fd_of(p), bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        program(p).accepted += static_cast<std::uint32_t>(n);
    else if (n < 0 && errno != EAGAIN && !g_world.may_reset)
        report("a send fails, and nobody has reset the connection");
    return n < 0 ? errno : 0;
}

namespace {

// ---- the helper thread

void tick(unsigned p)
{
    Stream &s = socket_of(p);
    if (s.endpoint == nullptr || !sock::offloaded(s))
        return;
    sock::tick(s);
    sock::finish_if_done(s);
}

void go_down(unsigned p)
{
    Endpoint &e = g_world.endpoints[p];
    e.down_due = false;
    sock::on_down(&e.ep, "the simulation says so");
}

// ---- leaving

void leave(unsigned p, sock::Heir heir)
{
    Stream &s = socket_of(p);
    sock::stop_offloading(s);
    if (!sock::offloaded(s))
        return;
    program(p).phase = Phase::kLeaves;
    program(p).heir = heir;
    sock::start_leaving(s, heir);
}

void close_left(unsigned p)
{
    Stream &s = socket_of(p);
    g_world.given_up |= g_world.between_hosts && sock::is_returning(s);
    sock::give_up_waiting(s);
    if (sock::close_left(s))
        program(p).phase = Phase::kStays;
    else
        sock::start_leaving(s, program(p).heir);
}

void die(unsigned p)
{
    Program &dying = program(p);
    get_up(dying.in);
    get_up(dying.out);
    dying.dead = true;
    g_world.endpoints[p].open = false;
    g_world.endpoints[p].connecting = false;
    g_world.endpoints[p].down_due = false;
    Endpoint &other = g_world.endpoints[peer_of(p)];
    other.down_due = other.open && g_world.fault != Fault::kDownLost;
    lose_on_the_way(peer_of(p));
    g_world.given_up |= g_world.between_hosts;
    end_process(p);
}

void shut(unsigned p)
{
    program(p).shut = true;
    sock::shut_down(socket_of(p), fd_of(p), SHUT_WR);
}

// A span is over for whoever goes by the kernel's counts.
bool may_other_send(unsigned p)
{
    const sock::Sender &tx = socket_of(p).tx;
    return tx.path == Path::kKernel && tx.resend_from == sock::kNone && tx.end_pending == sock::kNone &&
           !program(p).shut && !g_world.kernel[p].reset && (kernel_poll(p, POLLOUT) & POLLOUT) != 0;
}

void other_sends(unsigned p)
{
    const std::uint8_t byte = byte_at(p, program(p).accepted);
    g_world.others = true;
    if (libc::real.send(fd_of(p), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        ++program(p).accepted;
}

void spill(unsigned p)
{
    Stream &s = socket_of(p);
    s.tx_lock.lock();
    sock::end_transmit(s, false);
    sock::unlock_tx(s);
}

bool may_offload(unsigned p)
{
    const Stream &s = socket_of(p);
    return s.mode == sock::Mode::kKernelOnly && s.endpoint == nullptr && !program(p).dead && !s.pinned &&
           !g_world.kernel[p].reset && g_world.endpoints[p].open == false;
}

// ---- what must hold after each step

void check_counts(unsigned p)
{
    const Stream &s = socket_of(p);
    if (g_world.may_reset || program(p).dead)
        return;
    if (s.pinned && g_world.others)
        return; // what is on the kernel for good is not counted
    if (s.tx.kernel_bytes.load() != g_world.pipes[p].sent && !g_world.others)
        report("the library has not counted what it sent by the kernel");
    if (s.rx.kernel_bytes.load() != g_world.pipes[peer_of(p)].read)
        report("the library has not counted what it read by the kernel");
    if (s.pinned)
        report("the kernel's count and the library's are not the same");
    if (s.tx.position - s.tx.credit > kRing)
        report("more bytes are sent than the ring holds");
    if (s.endpoint != nullptr && !g_world.endpoints[p].open)
        report("the library goes on with an endpoint that is closed");
}

void check()
{
    check_counts(0);
    check_counts(1);
}

} // namespace

// ---- steps

const char *name_of(Do what)
{
    static constexpr const char *kNames[] = {
        "send",  "receive", "peek",          "await-input", "await-room", "deliver", "arrive",
        "tick",  "move",    "kernel-news",   "down",        "connected",  "offload", "other-sends",
        "spill", "leave",   "leave-for-all", "give-up",     "close",      "shut",    "die"};
    static_assert(std::size(kNames) == static_cast<std::size_t>(Do::kCount));
    return kNames[static_cast<std::size_t>(what)];
}

bool can(const Step &step)
{
    const unsigned p = step.who;
    const Program &own = program(p);
    const Endpoint &e = g_world.endpoints[p];
    if (step.what == Do::kMove)
        return can_move(p);
    if (own.dead)
        return false;
    switch (step.what) {
    case Do::kSend:
        return own.out.events == 0 && !own.shut && own.accepted - program(peer_of(p)).received < kMostUnread;
    case Do::kReceive:
    case Do::kPeek:
    case Do::kAwaitInput:
        return own.in.events == 0 && !own.ended;
    case Do::kAwaitRoom:
        return own.out.events == 0 && !own.shut;
    case Do::kDeliver:
        return e.open && e.arrived != 0;
    case Do::kArrive:
        return e.open && e.arrived != e.count;
    case Do::kTick:
        return e.open;
    case Do::kKernelNews:
        return has_news(p, own.in) || has_news(p, own.out);
    case Do::kDown:
        return e.down_due && !e.connecting;
    case Do::kConnected:
        return e.connecting;
    case Do::kOffload:
        return may_offload(0) && may_offload(1) && !own.shut;
    case Do::kOtherSends:
        return !g_world.between_hosts && may_other_send(p);
    case Do::kSpill:
        return own.phase == Phase::kStays && sock::offloaded(socket_of(p));
    case Do::kLeave:
    case Do::kLeaveForAll:
        return own.phase == Phase::kStays && e.open;
    case Do::kGiveUp:
        return own.phase == Phase::kLeaves && sock::is_returning(socket_of(p));
    case Do::kClose:
        return own.phase == Phase::kLeaves && !sock::is_returning(socket_of(p));
    case Do::kShut:
        return !own.shut;
    case Do::kDie:
        return !program(peer_of(p)).dead;
    case Do::kMove:
    case Do::kCount:
        break;
    }
    return false;
}

// What comes by itself, and what others do.
void let_happen(unsigned p, Do what)
{
    switch (what) {
    case Do::kDeliver:
        deliver(p);
        break;
    case Do::kArrive:
        ++g_world.endpoints[p].arrived;
        break;
    case Do::kTick:
        tick(p);
        break;
    case Do::kMove:
        move(p);
        break;
    case Do::kKernelNews:
        tell_kernel_news(p);
        break;
    case Do::kDown:
        go_down(p);
        break;
    case Do::kConnected:
        connected(p);
        break;
    case Do::kOffload:
        open_endpoints();
        break;
    case Do::kOtherSends:
        other_sends(p);
        break;
    case Do::kSpill:
        spill(p);
        break;
    default:
        break;
    }
}

void act(const Step &step)
{
    const unsigned p = step.who;
    Program &own = program(p);
    socket_of(p).operations = 0; // nobody is offloaded but by a step
    g_world.told = 0;
    switch (step.what) {
    case Do::kSend:
        send(p, step.size);
        break;
    case Do::kReceive:
        receive(p, step.size, 0);
        break;
    case Do::kPeek:
        receive(p, step.size, MSG_PEEK);
        break;
    case Do::kAwaitInput:
        lie_down(p, own.in, POLLIN);
        break;
    case Do::kAwaitRoom:
        lie_down(p, own.out, POLLOUT);
        break;
    case Do::kLeave:
        leave(p, sock::Heir::kLibrary);
        break;
    case Do::kLeaveForAll:
        leave(p, sock::Heir::kAnybody);
        break;
    case Do::kGiveUp:
    case Do::kClose:
        close_left(p);
        break;
    case Do::kShut:
        shut(p);
        break;
    case Do::kDie:
        die(p);
        break;
    default:
        let_happen(p, step.what);
        break;
    }
    get_up_if_woken(0);
    get_up_if_woken(1);
    check();
}

// ---- the beginning

void begin(const Setting &setting)
{
    drop_heap();
    memset(static_cast<void *>(&g_world), 0, sizeof g_world);
    new (&g_world.device) sock::Device;
    for (unsigned p = 0; p < 2; ++p) {
        Stream &s = *new (g_world.sockets[p]) Stream;
        s.role = p == 0 ? sock::Role::kConnector : sock::Role::kAcceptor;
        s.evaluated = true;
        s.let_go = true; // many calls are made before it is offloaded
        s.mode = sock::Mode::kKernelOnly;
        s.any_fd = fd_of(p);
        sock::table_slot(fd_of(p)).store(&s);
        s.descriptors = 1;
        s.no_wait = sock::kNonblocking;
        s.ring_bit = sock::kMainRing << p;
        s.ring = static_cast<std::uint8_t>(p);
        s.remote = setting.between_hosts;
        s.transport = setting.between_hosts ? &sock::kRemoteRing : &sock::kSharedRing;
        g_world.pipes[p].send_room = setting.send_room;
        g_world.pipes[p].receive_room = setting.receive_room;
    }
    g_world.between_hosts = setting.between_hosts;
    g_world.by_edges = setting.by_edges;
    g_world.room_refused = setting.room_refused;
    g_world.fault = setting.fault;
}

} // namespace vma::test::sim
