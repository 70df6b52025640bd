// SPDX-License-Identifier: BSD-2-Clause
// The transport of a stream whose peer is on another host: two networks carry it that know nothing of each other's
// order, and a device can fail while the TCP connection lives (doc/between-hosts.md). Its ring is the shared ring's
// otherwise.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kTicksPerLook = 10;
constexpr std::int64_t kFinalWithinNs = 500'000'000; // after the kernel's FIN
constexpr std::int64_t kLingerNs = 60'000'000'000;   // a close that the peer does not answer is a reset

void send_if(std::atomic<bool> &due, Stream &s, Tag type)
{
    if (due.exchange(false, std::memory_order_acq_rel) && !send_tag(s, type, 0))
        due.store(true, std::memory_order_release);
}

void send_due(Stream &s)
{
    Receiver &rx = s.rx;
    for (std::uint32_t due = rx.seen_due.load(std::memory_order_acquire); due != 0;) {
        if (!rx.seen_due.compare_exchange_weak(due, due - 1, std::memory_order_acq_rel))
            continue;
        if (!send_tag(s, Tag::kSeen, 0)) {
            rx.seen_due.fetch_add(1, std::memory_order_release);
            return;
        }
        due = rx.seen_due.load(std::memory_order_acquire);
    }
    send_if(rx.here_due, s, Tag::kHere);
    send_if(rx.leave_due, s, Tag::kLeave);
}

// connect(AF_UNSPEC) sends RST, and leaves ECONNRESET for the program's next call. Some kernels refuse it while a
// thread waits in a receive, which SHUT_RD ends without a word to the peer: to the peer a FIN would be an end.
bool reset_connection(int fd)
{
    constexpr int kTries = 10; // a millisecond apart: locks may be held
    sockaddr unspecified = {};
    unspecified.sa_family = AF_UNSPEC;
    for (int i = 0; libc::real.connect(fd, &unspecified, sizeof unspecified) != 0; ++i) {
        if (errno != EBUSY || i == kTries)
            return false;
        libc::real.shutdown(fd, SHUT_RD);
        libc::uncancelled::poll(nullptr, 0, 1);
    }
    return true;
}

} // namespace

void abort_stream(Stream &s, const char *why)
{
    if (s.aborted.exchange(true, std::memory_order_acq_rel))
        return;
    const libc::NotCancelled whole; // locks may be held
    const int fd = live_fd(s, s.any_fd.load(std::memory_order_relaxed));
    char name[kNameMax];
    VMA_LOG(kWarn, "%s: connection reset: %s, and bytes may have been lost", connection_name(s, name), why);
    if (!reset_connection(fd)) {
        libc::real.shutdown(fd, SHUT_RDWR);
        s.pending_error.store(ECONNRESET, std::memory_order_relaxed);
    }
    s.endpoint_down.store(true, std::memory_order_release);
    s.kernel_news.store(true, std::memory_order_release);
    notify(s, ~0U);
}

namespace {

// Nothing is lost if the endpoint ends now.
bool is_settled(const Stream &s)
{
    const bool received =
        !s.rx.ready_sent.load(std::memory_order_acquire) || s.rx.final_seen.load(std::memory_order_acquire);
    const bool sent = !s.tx.started.load(std::memory_order_acquire) || s.tx.final_sent.load(std::memory_order_acquire);
    return received && sent;
}

bool remote_may_close(const Stream &s)
{
    if (s.aborted.load(std::memory_order_acquire) || !has_endpoint(s))
        return true;
    if (s.endpoint_down.load(std::memory_order_acquire))
        return is_settled(s);
    if (s.tx.final_sent.load(std::memory_order_acquire) && s.tx.unseen.load(std::memory_order_acquire) != 0)
        return false;
    return s.rx.final_seen.load(std::memory_order_acquire) && s.tx.final_sent.load(std::memory_order_acquire);
}

void answer_seen(Stream &s)
{
    s.rx.seen_due.fetch_add(1, std::memory_order_acq_rel);
    send_due(s);
}

void say_leave(Stream &s)
{
    s.rx.leave_due.store(!s.rx.final_seen.load(std::memory_order_acquire), std::memory_order_release);
    send_due(s);
}

// The kernel is at its end: FINAL is not here, but may come.
bool waits_for_final(Stream &s)
{
    if (s.endpoint == nullptr || s.endpoint_down.load(std::memory_order_acquire) ||
        s.rx.final_seen.load(std::memory_order_acquire) || !s.rx.ready_sent.load(std::memory_order_acquire))
        return false;
    if (s.rx.ended_at_ns.load(std::memory_order_relaxed) == 0)
        s.rx.ended_at_ns.store(now_ns(), std::memory_order_relaxed);
    return true;
}

// A program that spins on the endpoint doesn't look at the kernel, and the device's own news of a death may be lost.
void look_for_end(Stream &s)
{
    if (s.rx.final_seen.load(std::memory_order_acquire) || s.rx.ended_at_ns.load(std::memory_order_relaxed) != 0 ||
        ++s.rx.ticks % kTicksPerLook != 0)
        return;
    pollfd p = {live_fd(s, s.any_fd.load(std::memory_order_relaxed)), POLLRDHUP, 0};
    if (libc::uncancelled::poll_now(&p, 1) <= 0)
        return;
    note_kernel_events(s, static_cast<std::uint32_t>(p.revents));
    notify(s, POLLIN | POLLRDHUP);
}

void tick_remote(Stream &s)
{
    send_due(s);
    look_for_end(s);
    const std::int64_t ended = s.rx.ended_at_ns.load(std::memory_order_relaxed);
    if (ended != 0 && !s.rx.final_seen.load(std::memory_order_acquire) && now_ns() - ended > kFinalWithinNs)
        abort_stream(s, "the peer's process has ended in the middle of a span");
}

// ---- our turns

void say_here(Stream &s)
{
    s.rx.here_due.store(true, std::memory_order_release);
    send_due(s);
}

bool is_peer_here(const Stream &s)
{
    return s.rx.peer_here.load(std::memory_order_seq_cst);
}

// A tag that the peer answers with SEEN, which may be here before we are back.
ssize_t post_to_be_seen(Stream &s, Tag type, std::uint64_t value)
{
    s.tx.unseen.fetch_add(1, std::memory_order_relaxed);
    const ssize_t result = post_tag(s, type, value);
    if (result != 0)
        s.tx.unseen.fetch_sub(1, std::memory_order_relaxed);
    return result;
}

void say_final(Stream &s)
{
    Sender &tx = s.tx;
    if (tx.final_sent.load(std::memory_order_relaxed) || tx.path != Path::kKernel || tx.resend_from != kNone ||
        tx.end_pending != kNone)
        return;
    const ssize_t result = post_to_be_seen(s, Tag::kFinal, 0);
    if (result == 0)
        tx.final_sent.store(true, std::memory_order_release);
    else if (result == -FI_EAGAIN)
        s.tx_work.store(true, std::memory_order_release);
}

void end_not_told(Stream &s)
{
    abort_stream(s, "the end of a span can't be told");
}

void endpoint_failed(Stream &s)
{
    abort_stream(s, "the endpoint failed");
}

// Who knows the library's bytes keeps what is unread in the ring: LEAVE alone ends the span. The kernel may have no
// room for it before the program reads, which it doesn't while it waits here.
void start_leaving_remote(Stream &s, Heir heir)
{
    engine_drain(ring_of(s)); // an END that is already published decides instead of our RETURN
    s.tx_lock.lock();
    if (offloaded(s)) {
        end_transmit(s, true);
        finish_resend(s);
    }
    unlock_tx(s);
    const LockGuard guard(s.rx_lock);
    if (!offloaded(s)) // it has ended meanwhile: nothing of this is for the next one
        return;
    if (heir == Heir::kAnybody)
        return_receiver(s);
    else
        s.rx.leaving = true;
    say_leave(s);
}

// ---- the peer's

// The kernel may carry bytes again.
void on_seen(Stream &s)
{
    std::uint32_t unseen = s.tx.unseen.load(std::memory_order_relaxed);
    while (unseen != 0 && !s.tx.unseen.compare_exchange_weak(unseen, unseen - 1, std::memory_order_acq_rel)) {
    }
    if (s.tx.path.load(std::memory_order_relaxed) == Path::kEndpoint)
        return;
    try_tx_work(s);
    notify(s, POLLOUT);
}

bool handle_remote_tag(Stream &s, Tag tag)
{
    switch (tag) {
    case Tag::kFinal:
        s.rx.final_seen.store(true, std::memory_order_release);
        answer_seen(s);
        notify(s, POLLIN | POLLRDHUP | POLLHUP); // see with_all_before_end()
        return true;
    case Tag::kSeen:
        on_seen(s);
        return true;
    case Tag::kHere:
        s.rx.peer_here.store(true, std::memory_order_seq_cst);
        if (s.rx_lock.try_lock()) { // else a receive may have taken bytes that it has not counted yet: tick() does it
            try_ready(s);
            s.rx_lock.unlock();
        }
        return true;
    case Tag::kLeave:
        s.tx.leave.store(true, std::memory_order_release);
        s.tx_work.store(true, std::memory_order_release);
        try_tx_work(s);
        return true;
    default:
        return false;
    }
}

bool remote_peer_is_gone(Stream &s, int fd)
{
    if (s.endpoint == nullptr || s.endpoint_down.load(std::memory_order_acquire))
        return shared_ring_peer_is_gone(s, fd);
    if (kernel_ended(s, fd)) // its last bytes may still be on their way
        waits_for_final(s);
    return false;
}

void remote_went_down(Stream &s, const char *why)
{
    if (offloaded(s)) {
        engine_drain(ring_of(s));
        if (!is_settled(s))
            abort_stream(s, why);
    }
    ring_went_down(s, why);
}

} // namespace

bool may_close(const Stream &s)
{
    return transport(s).may_close(s);
}

// close() does not wait: the kernel's connection and the endpoint stay until the peer has all and says so.
bool begin_linger(Stream &s, int fd)
{
    if (!transport(s).lingers || !offloaded(s) || has_input(s)) // what is not read is answered with a reset
        return false;
    start_leaving(s, Heir::kAnybody); // the kernel's, which answers what is not read
    engine_poll(ring_of(s));
    if (may_close(s) || s.endpoint_down.load(std::memory_order_acquire))
        return false;
    s.waiters.fetch_add(1, std::memory_order_seq_cst);
    s.lingers_until_ns.store(now_ns() + kLingerNs, std::memory_order_release);
    if (keep_descriptor(s, fd))
        return true;
    s.lingers_until_ns.store(0, std::memory_order_release);
    s.waiters.fetch_sub(1, std::memory_order_seq_cst);
    return false;
}

bool linger_is_over(const Stream &s)
{
    const std::int64_t until = s.lingers_until_ns.load(std::memory_order_acquire);
    return until != 0 && s.kept_fd.load(std::memory_order_acquire) >= 0 &&
           (may_close(s) || s.endpoint_down.load(std::memory_order_acquire) || now_ns() > until);
}

void end_linger(Stream &s)
{
    constexpr std::int64_t kOver = 1; // what it is until the socket is used again
    std::int64_t until = s.lingers_until_ns.load(std::memory_order_acquire);
    if (until <= kOver || !s.lingers_until_ns.compare_exchange_strong(until, kOver, std::memory_order_acq_rel))
        return; // another thread does it, or has done it
    s.waiters.fetch_sub(1, std::memory_order_seq_cst);
    release_if_unused(s);
}

namespace {

constexpr std::size_t kLeastQueue = 16;
constexpr std::uint32_t kDefaultSends = 2048; // VMA's own: nobody has chosen it
constexpr std::uint32_t kDefaultReceives = 16000;
constexpr std::uint32_t kDefaultInline = 204;

// VMA_TX_WRE, VMA_RX_WRE, VMA_TX_MAX_INLINE; the provider takes what the device has.
void ask_queues(Stream &, fi_info &info)
{
    const config::Params &p = config::params();
    if (p.tx_wre != kDefaultSends)
        info.tx_attr->size = std::max<std::size_t>(p.tx_wre, kLeastQueue);
    if (p.rx_wre != kDefaultReceives)
        info.rx_attr->size = std::max<std::size_t>(p.rx_wre, kLeastQueue);
    if (p.tx_max_inline != kDefaultInline)
        info.tx_attr->inject_size = std::min<std::size_t>(p.tx_max_inline, info.tx_attr->inject_size);
}

// VMA_RING_DEV_MEM_TX.
int ask_device_memory(Stream &, fid_ep &endpoint)
{
    const std::size_t bytes = config::params().ring_dev_mem_tx;
    if (bytes == 0)
        return 0;
    const int result =
        fi_setopt(&endpoint.fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_DEVICE_MEMORY), &bytes, sizeof bytes);
    return result == -FI_ENOPROTOOPT ? 0 : result; // a device that knows nothing of it has none
}

bool read_device_memory(fid_ep &endpoint, fi_vma_device_memory &memory)
{
    std::size_t size = sizeof memory;
    return config::params().ring_dev_mem_tx != 0 &&
           fi_getopt(&endpoint.fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_DEVICE_MEMORY), &memory, &size) == 0;
}

void tell(Stream &s, const fi_vma_device_memory &memory)
{
    ToldMemory &told = s.told_memory;
    stats::add_device_memory(record_of(s), memory.allocated, memory.packets - told.packets, memory.bytes - told.bytes,
                             memory.out_of_buffer - told.out_of_buffer);
    told = {memory.packets, memory.bytes, memory.out_of_buffer};
}

void tell_device_memory(Stream &s)
{
    if (fi_vma_device_memory memory = {}; s.endpoint != nullptr && read_device_memory(*s.endpoint, memory))
        tell(s, memory);
}

// Its endpoint is about to end.
void log_device_memory(Stream &s)
{
    fi_vma_device_memory memory = {};
    if (!read_device_memory(*s.endpoint, memory))
        return;
    tell(s, memory);
    s.told_memory = {};
    char name[kNameMax];
    VMA_LOG(
        kDebug,
        "%s: device memory: %llu bytes allocated, %llu bytes in %llu packets sent from it, out of buffer %llu times",
        connection_name(s, name), static_cast<unsigned long long>(memory.allocated),
        static_cast<unsigned long long>(memory.bytes), static_cast<unsigned long long>(memory.packets),
        static_cast<unsigned long long>(memory.out_of_buffer));
}

} // namespace

[[VMA_STARTUP_DATA]] constinit Transport storage::remote_ring = [] {
    Transport t = ring_entries();
    t.name = "remote ring";
    t.way = stats::Way::kRdma;
    t.ordered = false;
    t.ends_with_process = true;
    t.lingers = true;
    t.wakes_sleepers = false;
    t.shrinks = false;
    t.needs_ticks = true;
    t.warm = [](Stream &, std::size_t) {};
    t.publish = tell_device_memory;
    t.prepare = ask_queues;
    t.prepared = ask_device_memory;
    t.offloaded = say_here;
    t.went_down = remote_went_down;
    t.may_close = remote_may_close;
    t.leave = log_device_memory;
    t.post_tag = post_to_be_seen;
    t.end_not_told = end_not_told;
    t.ended_for_good = say_final;
    t.endpoint_failed = endpoint_failed;
    t.handle_tag = handle_remote_tag;
    t.start_came = answer_seen;
    t.may_be_ready = is_peer_here;
    t.peer_is_gone = remote_peer_is_gone;
    t.may_bring_more = waits_for_final;
    t.start_leaving = start_leaving_remote;
    t.give_up_waiting = [](Stream &) {};
    t.tick = tick_remote;
    return t;
}();

} // namespace vma::sock
