// SPDX-License-Identifier: BSD-2-Clause
// The provider's objects of this process. How the completion queue is polled is in poll.cpp, what the helper thread
// does in helper_work.cpp.
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"
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

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/devices/moderation.hpp"
#include "compat/src/engine/helper_rest.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/engine/retired.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/libc/handlers.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

constinit Engine g_engine;

namespace {

constexpr std::size_t kQueue = 4096;

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

// Whoever polls meanwhile sees none of them, or all.
void publish(const Objects &o)
{
    const LockGuard guard(g_engine.poll_lock);
    g_engine.objects = o;
}

int open_objects()
{
    Objects o;
    bool threadless = false;
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
        threadless = result != 0;
    }
    if (threadless)
        VMA_LOG(kWarn,
                "the library can't start a thread: %s, may the user have no more (RLIMIT_NPROC)?; all connections stay "
                "on the kernel",
                strerror(-result));
    else if (result == -FI_ENODATA)
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
        result = engine_open_datagrams(*g_engine.objects.cq, g_engine.arrivals, d.ep, d.port);
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
    if (g_engine.state == EngineState::kUnstarted) {
        if (!filters_allow())
            return false;
        if (loaded(Part::kProvider) == Loaded::kNotYet)
            return false;
        libc::adopt_handlers_if_bypassed();
        g_engine.state = open_objects() == 0 ? EngineState::kRunning : EngineState::kFailed;
    }
    return g_engine.state == EngineState::kRunning;
}

bool engine_is_unstarted()
{
    return g_engine.state.load(std::memory_order_relaxed) == EngineState::kUnstarted;
}

bool engine_has_failed()
{
    return g_engine.state == EngineState::kFailed || sandboxed();
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

bool engine_stop()
{
    {
        const LockGuard guard(g_offload.lock);
        if (g_engine.state.exchange(EngineState::kFailed) != EngineState::kRunning)
            return false;
        end_helper_soon();
    }
    engine_wake_helper();
    join_helper_thread();
    return true;
}

void engine_end()
{
    if (!engine_stop())
        return;
    const LockGuard guard(g_offload.lock);
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
    const bool active = g_offload.live != nullptr || g_offload.listed != nullptr;
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

// The parent's objects are dead here (the provider has closed their descriptors); they are left where they are.
void engine_after_fork_in_child()
{
    if (g_engine.state != EngineState::kFailed)
        g_engine.state = EngineState::kUnstarted;
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
