// SPDX-License-Identifier: BSD-2-Clause
// Polls the completion queues of the main ring, of shared memory and of all devices, and arms them for who sleeps.
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"

#include <poll.h>

#include <atomic>

#include "compat/src/base/helper_wake.hpp"
#include "compat/src/base/read_queue.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/ring_table.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/sink.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/signals.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr unsigned kMostPolls =
    1024; // by then all that was there at the beginning is taken; a sender may go on for ever

unsigned poll_locked();

// Until nothing is left, or so many completions were taken, at least those of one poll.
unsigned drain(unsigned most)
{
    LockGuard guard(g_engine.poll_lock);
    if (g_engine.objects.cq == nullptr)
        return 0;
    unsigned events = 0;
    for (unsigned i = 0; i < kMostPolls; ++i) {
        const unsigned n = poll_locked();
        events += n;
        if (n == 0 || events >= most)
            break;
    }
    return events;
}

} // namespace

RingMask open_rings(RingMask rings)
{
    return rings & (kMainRing | g_engine.more_rings.open.load(std::memory_order_acquire));
}

namespace {

unsigned read_queue(const Device &d)
{
    const bool is_port = d.udp != nullptr;
    return read_entries(*d.cq, [is_port](Stream &s, const fi_cq_data_entry &entry) {
        if (is_port)
            handle_port_entry(s, entry);
        else
            handle_tag(s, entry.data, entry.len);
    });
}

// The counts are for moderation.cpp.
unsigned read_remote_queue(Device &d)
{
    if (d.udp != nullptr)
        return read_queue(d);
    std::uint64_t bytes = 0;
    const unsigned n = read_entries(*d.cq, [&bytes](Stream &s, const fi_cq_data_entry &entry) {
        bytes += entry.len;
        handle_tag(s, entry.data, entry.len);
    });
    if (n != 0) {
        __atomic_store_n(&d.completions, d.completions + n, __ATOMIC_RELAXED);
        __atomic_store_n(&d.bytes, d.bytes + bytes, __ATOMIC_RELAXED);
    }
    return n;
}

// Completions, and the datagrams that were taken without one. Apart, so that who has no such device saves no registers
// for it.
[[gnu::noinline]] unsigned poll_remote()
{
    unsigned n = 0;
    each_remote_device([&n](Device &d) {
        const std::uint32_t taken = g_engine.arrivals.taken;
        unsigned found = read_remote_queue(d);
        found += g_engine.arrivals.taken - taken;
        if (found != 0)
            note_hit(d.hits, d.most, found);
        n += found;
    });
    return n;
}

unsigned poll_locked()
{
    Device &local = g_engine.objects;
    const std::uint32_t taken = g_engine.arrivals.taken;
    const unsigned n = read_queue(local) + (g_engine.arrivals.taken - taken);
    if (n != 0)
        note_hit(local.hits, local.most, n);
    return g_engine.devices.open.load(std::memory_order_relaxed) == 0 ? n : n + poll_remote();
}

template <typename Poll> unsigned poll_if_free(Poll poll)
{
    if (!g_engine.poll_lock.try_lock())
        return 1;
    g_engine.polls.store(g_engine.polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const unsigned n = g_engine.objects.cq != nullptr ? poll() : 0;
    g_engine.poll_lock.unlock();
    return n;
}

} // namespace

std::uint64_t engine_polls()
{
    return g_engine.polls.load(std::memory_order_relaxed);
}

Looks engine_looks()
{
    Looks looks = looks_at_more_rings();
    looks.polls += engine_polls();
    looks.hits += __atomic_load_n(&g_engine.objects.hits, __ATOMIC_RELAXED);
    return looks;
}

unsigned engine_poll(RingMask rings)
{
    if (rings == kMainRing) [[likely]]
        return poll_if_free(poll_locked);
    return ((rings & kMainRing) != 0 ? poll_if_free(poll_locked) : 0) + poll_more_rings(rings);
}

unsigned engine_poll_direct(udp::Direct &direct, RingMask rings)
{
    if (rings != kMainRing) [[unlikely]]
        return poll_more_rings(rings, &direct);
    return poll_if_free([&direct] {
        g_engine.arrivals.direct = &direct;
        const unsigned n = poll_locked();
        g_engine.arrivals.direct = nullptr;
        return n;
    });
}

unsigned engine_poll_sink(udp::Sink &sink, unsigned times)
{
    return poll_if_free([&sink, times] {
        udp::set_sink(&sink);
        unsigned n = 0;
        for (unsigned i = 0; n == 0 && i < times; ++i) {
            n = poll_locked();
            if (n == 0)
                cpu_relax(); // the line that is looked at is the sender's to write
        }
        udp::set_sink(nullptr);
        return n;
    });
}

unsigned engine_drain(RingMask rings)
{
    if (rings == kMainRing) [[likely]]
        return drain(UINT32_MAX);
    return ((rings & kMainRing) != 0 ? drain(UINT32_MAX) : 0) + drain_more_rings(rings, UINT32_MAX);
}

unsigned engine_drain_some()
{
    return drain(config::params().progress_most);
}

int engine_wait_fd(unsigned ring)
{
    if (ring != 0) [[unlikely]]
        return more_rings_fd(ring);
    const int all = remote_wait_fd();
    return all >= 0 ? all : g_engine.objects.cq_fd;
}

namespace {

bool arm_queues()
{
    if (g_engine.objects.cq == nullptr)
        return true;
    if (!arm(g_engine.objects, g_engine.objects.cq->fid))
        return false;
    if (g_engine.devices.open.load(std::memory_order_acquire) == 0) [[likely]]
        return true;
    const LockGuard guard(g_engine.poll_lock); // none is closed meanwhile
    return arm_remote_queues();
}

} // namespace

bool engine_arm(RingMask rings)
{
    if ((rings & kMainRing) != 0)
        g_engine.asleep.fetch_add(1, std::memory_order_seq_cst);
    count_sleepers(rings, true);
    const bool idle = (rings & kMainRing) == 0 || arm_queues();
    if (idle && arm_more_rings(rings))
        return true;
    engine_woken(rings);
    return false;
}

bool engine_rest(const Socket &s)
{
    return is_heard_of(s) && arm_queues();
}

void engine_woken(RingMask rings)
{
    if ((rings & kMainRing) != 0)
        g_engine.asleep.fetch_sub(1, std::memory_order_relaxed);
    count_sleepers(rings, false);
}

bool will_be_woken(const std::atomic<std::uint32_t> &asleep, int fd)
{
    pollfd p = {fd, POLLIN, 0};
    return asleep.load(std::memory_order_seq_cst) != 0 && libc::uncancelled::poll_now(&p, 1) <= 0;
}

bool engine_watches_itself()
{
    // A rate limit of a device's endpoint is kept by who reads its queue.
    return g_engine.devices.open.load(std::memory_order_relaxed) == 0 &&
           will_be_woken(g_engine.asleep, engine_wait_fd());
}

void engine_leave_by_jump(RingMask rings)
{
    if (libc::on_alternate_stack())
        wake_resting_helper();
    else
        engine_leave(rings);
}

void engine_leave(RingMask rings)
{
    if (rings != kMainRing) [[unlikely]]
        leave_more_rings(rings);
    if ((rings & kMainRing) == 0 || (g_engine.asleep.load(std::memory_order_seq_cst) == 0 &&
                                     g_engine.places.sleepers.load(std::memory_order_seq_cst) == 0)) [[likely]]
        return;
    while (!arm_queues())
        drain(UINT32_MAX);
}

} // namespace vma::sock
