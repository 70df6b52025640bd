// SPDX-License-Identifier: BSD-2-Clause
// The completion queues of rings: opening, polling, sleeping. Who is on which is in ring_choice.cpp.
#include "compat/src/engine/rings.hpp"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include <algorithm>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/read_queue.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ring_table.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr unsigned kMostPolls = 1024; // as the engine's
constexpr std::size_t kQueue = 1024;  // at first; what doesn't fit waits with its sender

template <typename Take> void each_ring(RingMask rings, Take take)
{
    for (RingMask left = rings & g_engine.more_rings.open.load(std::memory_order_acquire); left != 0; left &= left - 1)
        take(g_engine.rings[__builtin_ctzll(left)]);
}

unsigned read_ring(Ring &r)
{
    const std::uint32_t taken = r.arrivals.taken;
    unsigned n =
        read_entries(*r.cq, [](Stream &s, const fi_cq_data_entry &entry) { handle_tag(s, entry.data, entry.len); });
    n += r.arrivals.taken - taken;
    if (n != 0)
        note_hit(r.hits, r.most, n);
    return n;
}

unsigned poll_ring(Ring &r, udp::Direct *direct)
{
    if (!r.poll_lock.try_lock())
        return 1;
    r.polls.store(r.polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    r.arrivals.direct = direct;
    const unsigned n = read_ring(r);
    r.arrivals.direct = nullptr;
    r.poll_lock.unlock();
    return n;
}

unsigned drain_ring(Ring &r, unsigned most)
{
    const LockGuard guard(r.poll_lock);
    unsigned events = 0;
    for (unsigned i = 0; i < kMostPolls; ++i) {
        const unsigned n = read_ring(r);
        events += n;
        if (n == 0 || events >= most)
            break;
    }
    return events;
}

bool arm_ring(const Ring &r)
{
    fid *waits[] = {&r.cq->fid};
    return fi_trywait(engine_objects().fabric, waits, 1) == 0;
}

void leave_ring_armed(Ring &r)
{
    if (r.asleep.load(std::memory_order_seq_cst) == 0) [[likely]]
        return;
    while (!arm_ring(r))
        drain_ring(r, UINT32_MAX);
}

bool join(int set, int fd)
{
    epoll_event event = {};
    event.events = EPOLLIN;
    return libc::real.epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

} // namespace

int open_ring(Ring &r, bool for_guests)
{
    const Objects &o = engine_objects();
    fi_cq_attr attributes = {};
    attributes.size = kQueue;
    attributes.format = FI_CQ_FORMAT_DATA;
    attributes.wait_obj = FI_WAIT_FD;
    attributes.flags = for_guests ? 0 : FI_VMA_UNTIMED; // pacing.cpp keeps time; a guest's bell joins a set
    fid_cq *cq = nullptr;
    int result = fi_cq_open(o.domain, &attributes, &cq, nullptr);
    if (result == 0)
        result = fi_control(&cq->fid, FI_GETWAIT, &r.fd);
    if (result == 0)
        result = fi_control(&cq->fid, static_cast<int>(FI_VMA_SLEEPERS), &r.asleep);
    if (result != 0) {
        if (cq != nullptr)
            fi_close(&cq->fid);
        return result;
    }
    r.cq = cq;
    r.takes_guests = for_guests;
    g_engine.more_rings.open.fetch_or(RingMask{1} << (&r - g_engine.rings), std::memory_order_release);
    return 0;
}

unsigned poll_more_rings(RingMask rings, udp::Direct *direct)
{
    unsigned n = 0;
    each_ring(rings, [&n, direct](Ring &r) { n += poll_ring(r, direct); });
    return n;
}

unsigned drain_more_rings(RingMask rings, unsigned most)
{
    unsigned n = 0;
    each_ring(rings, [&n, most](Ring &r) { n += drain_ring(r, most); });
    return n;
}

bool arm_more_rings(RingMask rings)
{
    bool idle = true;
    each_ring(rings, [&idle](const Ring &r) { idle &= arm_ring(r); });
    return idle;
}

void count_sleepers(RingMask rings, bool more)
{
    each_ring(rings, [more](Ring &r) {
        if (more)
            r.asleep.fetch_add(1, std::memory_order_seq_cst);
        else
            r.asleep.fetch_sub(1, std::memory_order_relaxed);
    });
}

void leave_more_rings(RingMask rings)
{
    each_ring(rings, leave_ring_armed);
}

void exclude_polling_of_more(RingMask rings, bool exclude)
{
    each_ring(rings, [exclude](Ring &r) {
        if (exclude)
            r.poll_lock.lock();
        else
            r.poll_lock.unlock();
    });
}

void drain_unpolled_rings(unsigned most, bool all)
{
    each_ring(kAllRings, [most, all](Ring &r) {
        const bool asked = config::params().internal_thread_arm_cq;
        if (!asked && will_be_woken(r.asleep, r.fd))
            return;
        if (asked || all || r.polls.load(std::memory_order_relaxed) == r.polls_seen)
            drain_ring(r, most);
        r.polls_seen = r.polls.load(std::memory_order_relaxed);
        leave_ring_armed(r);
    });
}

Looks looks_at_more_rings()
{
    Looks looks;
    each_ring(kAllRings, [&looks](const Ring &r) {
        looks.polls += r.polls.load(std::memory_order_relaxed);
        looks.hits += __atomic_load_n(&r.hits, __ATOMIC_RELAXED);
    });
    return looks;
}

int more_rings_fd(unsigned ring)
{
    return g_engine.rings[ring].fd;
}

// By the helper thread alone.
int fd_of_all_rings(int first)
{
    if (g_engine.more_rings.open.load(std::memory_order_relaxed) == 0)
        return first;
    int set = g_engine.more_rings.all_fd.load(std::memory_order_relaxed);
    if (set < 0) {
        set = libc::make_private(libc::real.epoll_create1(EPOLL_CLOEXEC));
        if (set < 0)
            return first; // the others are looked at in its turns
        g_engine.more_rings.all_fd.store(set, std::memory_order_relaxed);
    }
    join(set, first);
    each_ring(kAllRings, [set](const Ring &r) { join(set, r.fd); });
    return set;
}

// The parent's queues are left where they are: the provider has closed their descriptors.
void rings_after_fork_in_child()
{
    g_engine.more_rings.open.store(0, std::memory_order_relaxed);
    for (Ring &r : g_engine.rings) {
        r.cq = nullptr;
        r.fd = -1;
        r.datagrams = nullptr;
        r.datagram_port = 0;
        r.arrivals.direct = nullptr;
        r.users = 0;
        r.key = {};
        r.poll_lock.reset();
        r.asleep.store(0, std::memory_order_relaxed);
        r.polls.store(0, std::memory_order_relaxed);
        r.hits = r.most = r.polls_seen = 0;
    }
    if (const int set = g_engine.more_rings.all_fd.exchange(-1, std::memory_order_relaxed); set >= 0)
        libc::close_private(set);
}

} // namespace vma::sock
