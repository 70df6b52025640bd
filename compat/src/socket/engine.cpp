// SPDX-License-Identifier: BSD-2-Clause
// The provider's objects of this process, the polling of the completion queue, and the helper thread.
#include "compat/src/socket/engine.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/provider_text.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/fork_handlers.hpp"
#include "compat/src/socket/helper_thread.hpp"
#include "compat/src/socket/stream.hpp"
#include "compat/src/socket/udp/state.hpp"

namespace vma::sock {

namespace {

constexpr int kTickMs = 10;
constexpr std::uint32_t kTicksPerLook = 5; // between looks whether routes of datagrams hold
constexpr unsigned kMostPolls =
    1024; // by then all that was there at the beginning is taken; a sender may go on for ever
constexpr std::size_t kBatch = 16;
constexpr std::size_t kPrivateDataMax = 256;

enum class State { kNone, kRunning, kFailed };

struct Engine {
    State state = State::kNone;
    Objects objects;
    DatagramObjects datagrams;
    bool datagrams_failed = false;
    std::atomic<std::uint32_t> tick{0};
    Mutex poll_lock;
    std::atomic<bool> active{false};
    std::atomic<std::uint32_t> asleep{0}; // threads that armed the queue and sleep
    std::atomic<std::uint32_t> polls{0};  // written with the poll lock held
};
constinit Engine g_engine;

int fail(const char *what, const char *why)
{
    VMA_LOG(kWarn, "%s: %s; all connections stay on the kernel", what, why);
    return -1;
}

fi_provider *load_provider()
{
    static fi_provider *provider = nullptr;
    if (provider != nullptr)
        return provider;
    const char *const path = config::provider_path();
    void *const library = path != nullptr ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) {
        fail("cannot load the provider libvma-fi.so",
             path != nullptr ? ::dlerror() : "not found beside libvma.so; VMA_PROVIDER can name it");
        return nullptr;
    }
    register_fork_handlers(); // the provider made its own while it was loaded
    using Entry = fi_provider *();
    auto *const entry = reinterpret_cast<Entry *>(::dlsym(library, "fi_prov_ini"));
    libc::know_provider(reinterpret_cast<const void *>(entry));
    provider = entry != nullptr ? entry() : nullptr;
    if (provider == nullptr)
        fail(path, "it has no usable fi_prov_ini");
    return provider;
}

int find_device(fi_provider &provider, fi_ep_type type, fi_info *&info)
{
    fi_tx_attr tx = {};
    fi_rx_attr rx = {};
    fi_ep_attr ep = {};
    fi_domain_attr domain = {};
    fi_fabric_attr fabric = {};
    fi_info hints = {};
    ep.type = type;
    char name[] =
        "local"; // or RDMA libraries would be loaded to ask for their devices, and FI_VMA_DEVICE might choose one
    fabric.name = name;
    domain.threading = FI_THREAD_SAFE;
    hints.caps = type == FI_EP_MSG ? FI_MSG | FI_RMA : FI_MSG;
    hints.addr_format = FI_SOCKADDR_IN;
    hints.tx_attr = &tx;
    hints.rx_attr = &rx;
    hints.ep_attr = &ep;
    hints.domain_attr = &domain;
    hints.fabric_attr = &fabric;
    return provider.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, &hints, &info);
}

int open_queues(Objects &o)
{
    fi_eq_attr eq = {};
    eq.wait_obj = FI_WAIT_FD;
    eq.flags = FI_WRITE; // engine_update_active()
    fi_cq_attr cq = {};
    cq.size = 4096;
    cq.format = FI_CQ_FORMAT_DATA;
    cq.wait_obj = FI_WAIT_FD;
    cq.flags = FI_VMA_UNTIMED; // pacing.cpp keeps time
    int result = fi_eq_open(o.fabric, &eq, &o.eq, nullptr);
    if (result == 0)
        result = fi_control(&o.eq->fid, FI_GETWAIT, &o.eq_fd);
    if (result == 0)
        result = fi_cq_open(o.domain, &cq, &o.cq, nullptr);
    if (result == 0)
        result = fi_control(&o.cq->fid, FI_GETWAIT, &o.cq_fd);
    return result;
}

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

void handle_event(std::uint32_t event, const fi_eq_cm_entry &entry, const void *data, std::size_t len)
{
    switch (event) {
    case FI_CONNREQ:
        on_connect_request(entry.info, data, len);
        g_engine.objects.process->freeinfo(entry.info);
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

void read_events()
{
    union {
        fi_eq_cm_entry entry;
        std::uint8_t room[sizeof(fi_eq_cm_entry) + kPrivateDataMax];
    } buffer;
    fid_eq *const eq = g_engine.objects.eq;
    for (;;) {
        const LockGuard guard(
            g_lift_lock); // an endpoint is closed with it held: none vanishes between event and handling
        std::uint32_t event = 0;
        const ssize_t n = fi_eq_read(eq, &event, &buffer, sizeof buffer, 0);
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

// Nothing a peer sends is stuck behind a program that computes: RETURN, END, CREDIT.
void tick_all(std::uint32_t &polls_seen)
{
    const std::uint32_t polls = g_engine.polls.load(std::memory_order_relaxed);
    if (polls == polls_seen)
        engine_drain();
    polls_seen = g_engine.polls.load(std::memory_order_relaxed);
    engine_leave();
    LockGuard guard(g_lift_lock);
    for (Socket *s = g_live_sockets; s != nullptr;) {
        Socket *const next = s->next_live;
        tick(*s);
        finish_if_done(*s);
        s = next;
    }
    for (Socket *s = udp::g_listed; s != nullptr; s = s->next_live)
        udp::tick(*s);
}

void *help(void *)
{
    std::uint32_t polls_seen = 0;
    std::uint32_t ticks = 0;
    for (;;) {
        const bool active = engine_active();
        fid *const waits[] = {&g_engine.objects.eq->fid};
        if (fi_trywait(g_engine.objects.fabric, const_cast<fid **>(waits), 1) == 0)
            sleep_and_give_turns(g_engine.objects.eq_fd, active ? kTickMs : -1);
        read_events();
        if (!engine_active())
            continue;
        if (++ticks % kTicksPerLook == 0)
            g_engine.tick.fetch_add(1, std::memory_order_relaxed);
        tick_all(polls_seen);
    }
}

config::Level level_of(int provider_level)
{
    switch (provider_level) {
    case FI_LOG_WARN:
        return config::Level::kWarn;
    case FI_LOG_INFO:
        return config::Level::kDebug;
    default:
        return config::Level::kFunc;
    }
}

int logs(int level)
{
    return config::log_enabled(level_of(level)) ? 1 : 0;
}

void log(int level, const char *subsystem, const char *text)
{
    config::log_line(level_of(level), "provider: %s: %s", subsystem, text);
}

constexpr fi_vma_log kLog = {logs, log};

void introduce(const fi_ops_vma_process &process)
{
    process.set_log(&kLog);
    process.set_directory(offers_directory()); // the program may have thrown its environment away
    libc::g_provider_owns.store(process.owns_fd, std::memory_order_release);
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
    fi_provider *const provider = load_provider();
    if (provider == nullptr || !open_offers())
        return -1; // said already
    int result = find_device(*provider, FI_EP_MSG, o.info);
    if (result == 0)
        result = provider->fabric(o.info->fabric_attr, &o.fabric, nullptr);
    if (result == 0)
        result = fi_open_ops(&o.fabric->fid, FI_VMA_PROCESS_OPS, 0, reinterpret_cast<void **>(&o.process), nullptr);
    if (result == 0)
        introduce(*o.process);
    if (result == 0)
        result = fi_domain(o.fabric, o.info, &o.domain, nullptr);
    if (result == 0)
        result = open_queues(o);
    if (result == 0)
        result = open_listener(o);
    if (result == 0) {
        publish(o);
        result = start_helper_thread(help);
    }
    return result == 0 ? 0 : fail("cannot start on the provider", strerror(-result));
}

int open_datagrams(DatagramObjects &d)
{
    const Objects &o = g_engine.objects;
    fi_provider *const provider = load_provider();
    fi_av_attr attributes = {};
    attributes.type = FI_AV_TABLE;
    fi_vma_taker taker = {udp::take, nullptr};
    sockaddr_in any = {};
    std::size_t size = sizeof any;
    fi_info *info = nullptr;
    int result = find_device(*provider, FI_EP_DGRAM, info);
    if (result == 0)
        result = fi_av_open(o.domain, &attributes, &d.av, nullptr);
    if (result == 0)
        result = fi_endpoint(o.domain, info, &d.ep, nullptr);
    if (result == 0)
        result = fi_setopt(&d.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TAKER), &taker, sizeof taker);
    if (result == 0)
        result = fi_ep_bind(d.ep, &d.av->fid, 0);
    if (result == 0)
        result = fi_ep_bind(d.ep, &o.cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
    if (result == 0)
        result = fi_enable(d.ep);
    if (result == 0)
        result = fi_getname(&d.ep->fid, &any, &size);
    d.port = ntohs(any.sin_port);
    o.process->freeinfo(info);
    return result;
}

} // namespace

bool engine_start_datagrams()
{
    if (g_engine.datagrams.port != 0)
        return true;
    if (g_engine.datagrams_failed || !engine_start())
        return false;
    const int result = open_datagrams(g_engine.datagrams);
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

std::uint32_t udp::current_tick()
{
    return g_engine.tick.load(std::memory_order_relaxed);
}

bool engine_start()
{
    if (g_engine.state == State::kNone)
        g_engine.state = open_objects() == 0 ? State::kRunning : State::kFailed;
    return g_engine.state == State::kRunning;
}

const Objects &engine_objects()
{
    return g_engine.objects;
}

void engine_update_active()
{
    const bool active = g_live_sockets != nullptr || udp::g_listed != nullptr;
    if (g_engine.active.exchange(active, std::memory_order_acq_rel) || !active || g_engine.objects.eq == nullptr)
        return;
    const fi_eq_cm_entry wakes_helper = {}; // it may have gone to sleep for ever
    fi_eq_write(g_engine.objects.eq, FI_NOTIFY, &wakes_helper, sizeof wakes_helper, 0);
}

bool engine_active()
{
    return g_engine.active.load(std::memory_order_relaxed);
}

void engine_exclude_polling(bool exclude)
{
    if (exclude)
        g_engine.poll_lock.lock();
    else
        g_engine.poll_lock.unlock();
}

namespace {

unsigned poll_locked()
{
    fi_cq_data_entry entries[kBatch];
    const std::uint32_t taken = udp::taken();
    const ssize_t n = fi_cq_read(g_engine.objects.cq, entries, kBatch);
    if (n <= 0) [[likely]] {
        if (n == -FI_EAVAIL) {
            fi_cq_err_entry error = {};
            fi_cq_readerr(g_engine.objects.cq, &error, 0); // an endpoint's end: its FI_SHUTDOWN says the rest
        }
        return udp::taken() - taken;
    }
    for (ssize_t i = 0; i < n; ++i)
        handle_tag(*static_cast<Socket *>(entries[i].op_context), entries[i].data, entries[i].len);
    return static_cast<unsigned>(n) + (udp::taken() - taken);
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

unsigned engine_poll()
{
    return poll_if_free(poll_locked);
}

unsigned engine_poll_direct(udp::Direct &direct)
{
    return poll_if_free([&direct] {
        udp::set_direct(&direct);
        const unsigned n = poll_locked();
        udp::set_direct(nullptr);
        return n;
    });
}

unsigned engine_drain()
{
    LockGuard guard(g_engine.poll_lock);
    if (g_engine.objects.cq == nullptr)
        return 0;
    unsigned events = 0;
    for (unsigned i = 0; i < kMostPolls; ++i) {
        const unsigned n = poll_locked();
        events += n;
        if (n == 0)
            break;
    }
    return events;
}

int engine_wait_fd()
{
    return g_engine.objects.cq_fd;
}

namespace {

bool arm()
{
    if (g_engine.objects.cq == nullptr)
        return true;
    fid *const waits[] = {&g_engine.objects.cq->fid};
    return fi_trywait(g_engine.objects.fabric, const_cast<fid **>(waits), 1) == 0;
}

} // namespace

bool engine_arm()
{
    g_engine.asleep.fetch_add(1, std::memory_order_seq_cst);
    if (arm())
        return true;
    engine_woken();
    return false;
}

void engine_woken()
{
    g_engine.asleep.fetch_sub(1, std::memory_order_relaxed);
}

void engine_leave()
{
    if (g_engine.asleep.load(std::memory_order_seq_cst) == 0) [[likely]]
        return;
    while (!arm())
        engine_drain();
}

// The parent's objects are dead here (the provider has closed their descriptors); they are left where they are.
void engine_after_fork_in_child()
{
    g_engine.state = g_engine.state == State::kFailed ? State::kFailed : State::kNone;
    g_engine.objects = Objects{};
    g_engine.datagrams = {};
    g_engine.datagrams_failed = false;
    g_engine.poll_lock.reset();
    g_engine.active.store(false, std::memory_order_relaxed);
    g_engine.asleep.store(0, std::memory_order_relaxed);
}

} // namespace vma::sock
