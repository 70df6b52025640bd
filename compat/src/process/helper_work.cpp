// SPDX-License-Identifier: BSD-2-Clause
// What the helper thread does: it hears of connections that come, are there and go, polls for a program that doesn't,
// and looks after the sockets that have something due. helper_thread.hpp is how it is started and sleeps.
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/devices/moderation.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/helper_rest.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/rendezvous/broker.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/idle.hpp"
#include "compat/src/transport/idle_streams.hpp"
#include "compat/src/transport/pacing.hpp"
#include "compat/src/transport/port.hpp"
#include "compat/src/udp/memberships.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kCountMs = 320; // between looks at what ports have counted of streams
constexpr std::uint32_t kLookMs = 50;   // between looks whether routes of datagrams hold
constexpr std::size_t kMostOver = 64;   // sockets released in one tick
constexpr std::size_t kPrivateDataMax = 256;

void handle_event(std::uint32_t event, const fi_eq_cm_entry &entry, const void *data, std::size_t len)
{
    switch (event) {
    case FI_CONNREQ:
        if (entry.fid == &engine_objects().pep->fid)
            on_connect_request(entry.info, data, len);
        else
            on_remote_request(reinterpret_cast<fid_pep *>(entry.fid), entry.info, data, len);
        engine_objects().process->freeinfo(entry.info);
        return;
    case FI_CONNECTED:
        on_connected(reinterpret_cast<fid_ep *>(entry.fid));
        return;
    case FI_SHUTDOWN:
        on_down(reinterpret_cast<fid_ep *>(entry.fid), "the peer left it");
        return;
    default:
        return;
    }
}

void handle_error(fid_eq *eq)
{
    fi_eq_err_entry error = {};
    if (fi_eq_readerr(eq, &error, 0) > 0 && error.fid != nullptr && error.fid->fclass == FI_CLASS_EP)
        on_down(reinterpret_cast<fid_ep *>(error.fid), strerror(error.err));
}

void read_events(fid_eq *eq)
{
    union {
        fi_eq_cm_entry entry;
        std::uint8_t room[sizeof(fi_eq_cm_entry) + kPrivateDataMax];
    } buffer;
    for (;;) {
        const LockGuard guard(
            g_offload.lock); // an endpoint is closed with it held: none vanishes between event and handling
        std::uint32_t event = 0;
        const ssize_t n = fi_eq_sread(eq, &event, &buffer, sizeof buffer, 0, 0); // FI_SHUTDOWN at once
        if (n == -FI_EAVAIL) {
            handle_error(eq);
            continue;
        }
        if (n < static_cast<ssize_t>(sizeof buffer.entry))
            return;
        handle_event(event, buffer.entry, buffer.room + sizeof buffer.entry,
                     static_cast<std::size_t>(n) - sizeof buffer.entry);
    }
}

void read_all_events()
{
    read_events(engine_objects().eq);
    if (g_engine.devices.open.load(std::memory_order_relaxed) != 0) // opened and closed by this thread alone
        each_remote_device([](Device &d) { read_events(d.eq); });
}

bool arm_events()
{
    return arm(engine_device(), engine_objects().eq->fid) &&
           (g_engine.devices.open.load(std::memory_order_relaxed) == 0 || arm_remote_events());
}

// Nothing a peer sends is stuck behind a program that computes: RETURN, END, CREDIT. Who sleeps on the queue is woken
// by it. `nudged`: a peer waits for what it has written to be seen, also by a program that has looked just before.
void drain_for_program(std::uint64_t &polls_seen, bool nudged)
{
    const bool asked = config::params().internal_thread_arm_cq;
    if (asked || !engine_watches_itself()) {
        if (asked || nudged || engine_polls() == polls_seen)
            engine_drain_some();
        polls_seen = engine_polls();
        engine_leave();
    }
    drain_unpolled_rings(config::params().progress_most, nudged);
}

bool is_live(const Stream &s)
{
    return s.endpoint != nullptr && offloaded(s);
}

// shutdown() has left the rest to this thread. Between hosts the peer leaves by itself.
bool is_to_be_closed(const Stream &s)
{
    return is_shut(s) && transport(s).ordered && transport(s).spans;
}

// Something could not be done now, or nothing tells of what there is to do.
bool is_due_again(const Stream &s)
{
    return s.tx_work.load(std::memory_order_acquire) || s.tx.slots_blocked.load(std::memory_order_acquire) ||
           s.rx.credit_due.load(std::memory_order_relaxed) || s.ready_due.load(std::memory_order_relaxed) ||
           s.endpoint_down.load(std::memory_order_acquire) ||
           (s.rx.start_at.load(std::memory_order_acquire) != kNone &&
            s.rx.path.load(std::memory_order_relaxed) == Path::kKernel) ||
           is_to_be_closed(s) || transport(s).needs_ticks || s.lingers_until_ns.load(std::memory_order_relaxed) != 0 ||
           s.ring_claim.move.load(std::memory_order_relaxed) != RingMove::kStays;
}

// True: something was due, or may be at any time.
bool tick_all(bool counts, std::uint32_t turns)
{
    Stream *over[kMostOver];
    std::size_t count = 0;
    IdleStreams idle;
    bool moved = false;
    {
        LockGuard guard(g_offload.lock);
        if (counts)
            tell_queues();
        g_due.take_each([&](std::uint32_t index) {
            moved = true;
            Stream *const stream = stream_of(*socket_by_index(index));
            if (stream == nullptr || !is_live(*stream)) // no datagram socket has an endpoint of its own
                return;
            Stream &s = *stream;
            tick(s);
            move_if_due(s);
            if (counts)
                transport(s).publish(s);
            const bool is_over = linger_is_over(s);
            if (is_over && count < kMostOver)
                over[count++] = &s;
            else if (!is_over)
                finish_if_done(s);
            if (is_to_be_closed(s))
                idle.look_at_shut(s);
            if (is_live(s) && is_due_again(s))
                g_due.add(index);
        });
        look_at_idle_rings(std::max(helper_turns_in(idle_look_ms()) / turns, 1U), g_helper.next_ring, idle);
        moved |= g_offload.listed != nullptr;
    }
    while (count != 0)
        end_linger(*over[--count]);
    idle.let_go();
    return moved;
}

// Since it was said that this thread rests.
bool is_anything_due()
{
    const LockGuard guard(g_offload.lock);
    return g_due.any() || g_offload.listed != nullptr;
}

// Something that is done once in so many turns. A sleep of several turns counts as all of them.
class Every
{
public:
    explicit Every(std::uint32_t turns) : turns_(turns) {}
    std::uint32_t times_in(std::uint32_t turns)
    {
        passed_ += turns;
        const std::uint32_t times = passed_ / turns_;
        passed_ %= turns_;
        return times;
    }

private:
    std::uint32_t turns_;
    std::uint32_t passed_ = 0;
};

class Helper
{
public:
    void take_turn();

private:
    Sleep choose_sleep(int remote) const;
    int arm_queues(Sleep sleep, RingMask rings) const;
    std::uint32_t sleep(int remote);
    void look_after_sockets(std::uint32_t turns, bool nudged);
    bool has_moved(std::uint32_t turns);

    Rests rests_;
    Every look_{helper_turns_in(kLookMs)};
    Every count_{helper_turns_in(kCountMs)};
    Every drain_{helper_turns_per_drain()};
    Looks looks_;
    std::uint64_t polls_seen_ = 0;
    std::uint32_t all_turns_ = 0;
    bool armed_ = false;        // and no event has come since
    bool queues_armed_ = false; // for the last sleep
    bool arrived_ = false;      // on a queue, which woke this thread
};

// What only its turns do is not to be waited for: of another host, of a port, or of a program that has asked for them.
Sleep Helper::choose_sleep(int remote) const
{
    const bool by_turns = remote >= 0 || attempts_are_open() || ports_are_named() || !engine_active() ||
                          config::params().internal_thread_arm_cq;
    return by_turns ? Sleep::kTurn : rests_.next();
}

// What comes wakes the helper thread, too, in a rest and with VMA_INTERNAL_THREAD_ARM_CQ. -1: it doesn't, or is there
// already.
int Helper::arm_queues(Sleep sleep, RingMask rings) const
{
    const bool wanted = sleep == Sleep::kRest || config::params().internal_thread_arm_cq;
    return wanted && engine_active() && engine_arm(rings) ? fd_of_all_rings(engine_wait_fd()) : -1;
}

// How many turns it took.
std::uint32_t Helper::sleep(int remote)
{
    enum : unsigned { kEvents = 1, kQueue = 2, kTold = 4, kKernel = 8 };
    const bool closing = close_some_retired();
    const bool active = engine_active() || attempts_are_open();
    const RingMask rings = open_rings(kAllRings);
    Sleep sleep = closing ? Sleep::kTurn : choose_sleep(remote);
    if (sleep != Sleep::kTurn && !Rests::begin())
        sleep = Sleep::kTurn;
    const int queue = arm_queues(sleep, rings);
    if ((sleep == Sleep::kRest && queue < 0) || (sleep != Sleep::kTurn && is_anything_due()))
        sleep = Sleep::kTurn;
    const std::uint32_t milliseconds = sleep == Sleep::kRest       ? kRestMs
                                       : sleep == Sleep::kLongTurn ? long_turn_ms()
                                                                   : helper_turn_ms();
    const std::int64_t begin = now_ns();
    const unsigned news = sleep_and_give_turns({remote >= 0 ? remote : engine_objects().eq_fd, queue, Rests::told_fd(),
                                                kernel_news_fd(), attempts_are_open() ? broker_fd() : -1},
                                               closing  ? 0
                                               : active ? static_cast<int>(milliseconds)
                                                        : -1);
    Rests::end((news & kTold) != 0);
    queues_armed_ = queue >= 0;
    if (queues_armed_)
        engine_woken(rings);
    arrived_ = (news & kQueue) != 0;
    if ((news & kEvents) != 0)
        armed_ = false;
    if ((news & kKernel) != 0)
        tell_kernel_news();
    if (sleep == Sleep::kTurn)
        return 1;
    if (arrived_)
        rests_.was_disturbed(); // unless it has brought something
    constexpr std::int64_t kNsPerMs = 1'000'000;
    const auto slept = static_cast<std::uint32_t>((now_ns() - begin) / kNsPerMs);
    return std::max(slept / helper_turn_ms(), 1U);
}

void Helper::look_after_sockets(std::uint32_t turns, bool nudged)
{
    libc::adopt_handlers_if_bypassed();
    if (const std::uint32_t looks = look_.times_in(turns); looks != 0) {
        udp::look_at_memberships();
        const LockGuard guard(g_offload.lock);
        udp::look_at_routes(udp::current_tick() + looks);
        g_helper.tick.fetch_add(looks, std::memory_order_relaxed);
        udp::look_after_port_groups();
        follow_device_times();
    }
    if (g_engine.devices.open.load(std::memory_order_relaxed) != 0) {
        const LockGuard guard(g_offload.lock);
        adapt_moderation(all_turns_);
    }
    stats::touch();
    stats::look_after_capture();
    // What has ended a rest is the program's, if that looks for it by the next turn.
    const bool due = drain_.times_in(turns) != 0 && !arrived_;
    if (due || nudged || (queues_armed_ && config::params().internal_thread_arm_cq))
        drain_for_program(polls_seen_, nudged);
}

// Since the last turn. A program that looks at its queues again and again, and finds nothing, would have to wake a
// resting thread each time.
bool Helper::has_moved(std::uint32_t turns)
{
    constexpr std::uint64_t kLooksATurn = 2;
    const Looks before = looks_;
    looks_ = engine_looks();
    const std::uint64_t polls = looks_.polls - before.polls;
    return looks_.hits != before.hits || polls > kLooksATurn * turns || (arrived_ && polls == 0);
}

void Helper::take_turn()
{
    const int remote = remote_event_fd(); // with the local one
    armed_ = (armed_ && remote < 0) || arm_events();
    const std::uint32_t turns = armed_ ? sleep(remote) : 1;
    const bool events = !armed_;
    if (!armed_ || remote >= 0)
        read_all_events();
    if (attempts_are_open())
        tick_attempts();
    if (ports_state() == PortsState::kAsked) {
        const LockGuard guard(g_offload.lock);
        open_named_ports();
    }
    if (!engine_active())
        return;
    all_turns_ += turns;
    look_after_sockets(turns, events); // a nudge wakes as an event does, and leaves none
    const bool due = tick_all(count_.times_in(turns) != 0, turns);
    rests_.note(has_moved(turns) || due || events, turns);
}

} // namespace

std::uint32_t udp::current_tick()
{
    return g_helper.tick.load(std::memory_order_relaxed);
}

void *help_engine(void *)
{
    Helper helper;
    while (!helper_is_to_end())
        helper.take_turn();
    return nullptr;
}

} // namespace vma::sock
