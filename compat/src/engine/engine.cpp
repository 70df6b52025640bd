// SPDX-License-Identifier: BSD-2-Clause
// The provider's objects of this process and the polling of the completion queue. What the helper thread does is in helper_work.cpp.
#include "compat/src/engine/engine.hpp"
#include "compat/src/table/accounting.hpp"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/read_queue.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/helper_rest.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/moderation.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/sink.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr unsigned kMostPolls =
    1024; // by then all that was there at the beginning is taken; a sender may go on for ever
constexpr std::size_t kQueue = 4096;

enum class State { kNone, kRunning, kFailed };

struct Engine {
    State state = State::kNone;
    Objects objects;
    DatagramObjects datagrams;
    bool datagrams_failed = false;
    Mutex poll_lock;
    std::atomic<bool> active{false};
    std::atomic<std::uint32_t> asleep{0}; // threads that armed the queue and sleep
    std::atomic<std::uint64_t> polls{0};  // written with the poll lock held
};
constinit Engine g_engine;

int open_listener(Objects &o)
{
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int result = fi_passive_ep(o.fabric, o.info, &o.pep, nullptr);
    if (result == 0)
        result = fi_setname(&o.pep->fid, &any, sizeof any);
    if (result == 0)
        result = fi_pep_bind(o.pep, &o.eq->fid, 0);
    if (result == 0)
        result = fi_listen(o.pep);
    std::size_t size = sizeof any;
    if (result == 0)
        result = fi_getname(&o.pep->fid, &any, &size);
    o.port = ntohs(any.sin_port);
    return result;
}

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

// Whoever polls meanwhile sees none of them, or all.
void publish(const Objects &o)
{
    const LockGuard guard(g_engine.poll_lock);
    g_engine.objects = o;
}

int open_objects()
{
    Objects o;
    fi_provider *const provider = sock::provider();
    if (provider == nullptr || !open_offers())
        return -1; // said already
    int result = find_device(*provider, Want::kStreams, nullptr, o.info);
    if (result == 0)
        result = provider->fabric(o.info->fabric_attr, &o.fabric, nullptr);
    if (result == 0)
        result = fi_open_ops(&o.fabric->fid, FI_VMA_PROCESS_OPS, 0, reinterpret_cast<void **>(&o.process), nullptr);
    if (result == 0)
        introduce_provider(*o.process);
    if (result == 0)
        result = fi_domain(o.fabric, o.info, &o.domain, nullptr);
    if (result == 0)
        result = open_queues(o, kQueue);
    if (result == 0)
        result = fi_control(&o.cq->fid, static_cast<int>(FI_VMA_SLEEPERS), &g_engine.asleep);
    fi_vma_places places = {};
    if (result == 0)
        result = fi_control(&o.cq->fid, static_cast<int>(FI_VMA_PLACES), &places);
    if (result == 0)
        result = open_listener(o);
    if (result == 0) {
        publish(o);
        open_places(places);
        result = start_helper_thread(help_engine);
    }
    if (result == -FI_ENODATA)
        VMA_LOG(kWarn,
                "the provider has no device local, is it excluded by FI_VMA_DEVICE?; all connections stay on the "
                "kernel");
    else if (result != 0)
        VMA_LOG(kWarn, "cannot start on the provider: %s; all connections stay on the kernel", strerror(-result));
    return result;
}

int open_addresses(DatagramObjects &d)
{
    fi_av_attr attributes = {};
    attributes.type = FI_AV_TABLE;
    return fi_av_open(g_engine.objects.domain, &attributes, &d.av, nullptr);
}

} // namespace

int engine_open_datagrams(fid_cq &cq, udp::Arrivals &arrivals, fid_ep *&ep, std::uint16_t &port)
{
    const Objects &o = g_engine.objects;
    fi_vma_taker taker = {nullptr, &arrivals, udp::take};
    sockaddr_in any = {};
    std::size_t size = sizeof any;
    fi_info *info = nullptr;
    int result = find_device(*sock::provider(), Want::kDatagrams, nullptr, info);
    if (result == 0)
        result = fi_endpoint(o.domain, info, &ep, nullptr);
    if (result == 0)
        result = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TAKER), &taker, sizeof taker);
    if (result == 0)
        result = fi_ep_bind(ep, &g_engine.datagrams.av->fid, 0);
    if (result == 0)
        result = fi_ep_bind(ep, &cq.fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
    if (result == 0)
        result = fi_enable(ep);
    if (result == 0)
        result = fi_getname(&ep->fid, &any, &size);
    port = ntohs(any.sin_port);
    o.process->freeinfo(info);
    return result;
}

bool engine_start_datagrams()
{
    if (g_engine.datagrams.port != 0)
        return true;
    if (g_engine.datagrams_failed || !engine_start())
        return false;
    DatagramObjects &d = g_engine.datagrams;
    int result = open_addresses(d);
    if (result == 0)
        result = engine_open_datagrams(*g_engine.objects.cq, udp::g_main_arrivals, d.ep, d.port);
    if (result == 0)
        return true;
    g_engine.datagrams_failed = true;
    VMA_LOG(kWarn, "cannot open an endpoint for datagrams: %s; they go by the kernel", strerror(-result));
    return false;
}

const DatagramObjects &engine_datagrams()
{
    return g_engine.datagrams;
}

bool engine_start()
{
    if (g_engine.state == State::kNone) {
        if (!filters_allow())
            return false;
        if (loaded(Part::kProvider) == Loaded::kNotYet)
            return false;
        libc::adopt_handlers_if_bypassed();
        g_engine.state = open_objects() == 0 ? State::kRunning : State::kFailed;
    }
    return g_engine.state == State::kRunning;
}

bool engine_has_failed()
{
    return g_engine.state == State::kFailed || sandboxed();
}

namespace {

void close_object(fid *object)
{
    if (object != nullptr)
        fi_close(object);
}

// In the order in which they hold each other. What can't be closed stays open: nobody looks at it any more.
void close_objects(const Objects &o, const DatagramObjects &d)
{
    close_object(d.ep != nullptr ? &d.ep->fid : nullptr);
    close_object(d.av != nullptr ? &d.av->fid : nullptr);
    close_object(&o.pep->fid);
    close_object(&o.cq->fid);
    close_object(&o.eq->fid);
    close_object(&o.domain->fid);
    close_object(&o.fabric->fid);
}

} // namespace

void engine_end()
{
    bool ran = false;
    {
        const LockGuard guard(g_lift_lock);
        ran = g_engine.state == State::kRunning;
        g_engine.state = State::kFailed;
        if (ran)
            end_helper_soon();
    }
    if (!ran)
        return;
    engine_wake_helper();
    join_helper_thread();
    const LockGuard guard(g_lift_lock);
    close_all_retired();
    const Objects o = g_engine.objects;
    const DatagramObjects datagrams = std::exchange(g_engine.datagrams, {});
    publish({});
    if (close_places())
        close_objects(o, datagrams);
}

Device &engine_device()
{
    return g_engine.objects;
}

const Objects &engine_objects()
{
    return g_engine.objects;
}

void engine_update_active()
{
    const bool active = g_live_sockets != nullptr || udp::g_listed != nullptr;
    if (!g_engine.active.exchange(active, std::memory_order_acq_rel) && active && g_engine.objects.eq != nullptr)
        engine_wake_helper();
    wake_resting_helper();
}

void engine_wake_helper()
{
    const fi_eq_cm_entry wakes_helper = {}; // it may have gone to sleep for ever
    fi_eq_write(g_engine.objects.eq, FI_NOTIFY, &wakes_helper, sizeof wakes_helper, 0);
}

bool engine_active()
{
    return g_engine.active.load(std::memory_order_relaxed);
}

void engine_exclude_polling(bool exclude, RingMask rings)
{
    if ((rings & kMainRing) != 0 && exclude)
        g_engine.poll_lock.lock();
    exclude_polling_of_more(rings, exclude);
    if ((rings & kMainRing) != 0 && !exclude)
        g_engine.poll_lock.unlock();
}

RingMask open_rings(RingMask rings)
{
    return rings & (kMainRing | g_more_rings.open.load(std::memory_order_acquire));
}

namespace {

unsigned read_queue(const Device &d)
{
    const bool is_port = d.udp != nullptr;
    return read_entries(*d.cq, [is_port](Socket &s, const fi_cq_data_entry &entry) {
        if (is_port)
            kPort.handle_entry(s, entry);
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
    const unsigned n = read_entries(*d.cq, [&bytes](Socket &s, const fi_cq_data_entry &entry) {
        bytes += entry.len;
        handle_tag(s, entry.data, entry.len);
    });
    if (n != 0) {
        __atomic_store_n(&d.completions, d.completions + n, __ATOMIC_RELAXED);
        __atomic_store_n(&d.bytes, d.bytes + bytes, __ATOMIC_RELAXED);
    }
    return n;
}

// Completions, and the datagrams that were taken without one. Apart, so that who has no such device saves no registers for it.
[[gnu::noinline]] unsigned poll_remote()
{
    unsigned n = 0;
    each_remote_device([&n](Device &d) {
        const std::uint32_t taken = udp::g_main_arrivals.taken;
        unsigned found = read_remote_queue(d);
        found += udp::g_main_arrivals.taken - taken;
        if (found != 0)
            note_hit(d.hits, d.most, found);
        n += found;
    });
    return n;
}

unsigned poll_locked()
{
    Device &local = g_engine.objects;
    const std::uint32_t taken = udp::g_main_arrivals.taken;
    const unsigned n = read_queue(local) + (udp::g_main_arrivals.taken - taken);
    if (n != 0)
        note_hit(local.hits, local.most, n);
    return g_remote_devices.load(std::memory_order_relaxed) == 0 ? n : n + poll_remote();
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
        udp::g_main_arrivals.direct = &direct;
        const unsigned n = poll_locked();
        udp::g_main_arrivals.direct = nullptr;
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
    if (g_remote_devices.load(std::memory_order_acquire) == 0) [[likely]]
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

bool engine_rest()
{
    return arm_queues();
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
    return g_remote_devices.load(std::memory_order_relaxed) == 0 && will_be_woken(g_engine.asleep, engine_wait_fd());
}

void engine_leave(RingMask rings)
{
    if (rings != kMainRing) [[unlikely]]
        leave_more_rings(rings);
    if ((rings & kMainRing) == 0 || (g_engine.asleep.load(std::memory_order_seq_cst) == 0 &&
                                     g_at_places.load(std::memory_order_seq_cst) == 0)) [[likely]]
        return;
    while (!arm_queues())
        drain(UINT32_MAX);
}

// The parent's objects are dead here (the provider has closed their descriptors); they are left where they are.
void engine_after_fork_in_child()
{
    g_engine.state = g_engine.state == State::kFailed ? State::kFailed : State::kNone;
    g_engine.objects = Objects{};
    rings_after_fork_in_child();
    remote_devices_after_fork_in_child();
    g_engine.datagrams = {};
    g_engine.datagrams_failed = false;
    g_engine.poll_lock.reset();
    g_engine.active.store(false, std::memory_order_relaxed);
    g_engine.asleep.store(0, std::memory_order_relaxed);
    places_after_fork_in_child();
    g_engine.polls.store(0, std::memory_order_relaxed);
}

} // namespace vma::sock
