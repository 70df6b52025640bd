// SPDX-License-Identifier: BSD-2-Clause
// How a socket gets its endpoint and loses it: offers, attaching, tearing down (endpoint_news.cpp: what happens to it meanwhile). One lift lock
// guards all of it; it is rare work.
#include <errno.h>
#include <poll.h>
#include <string.h>

#include <algorithm>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/socket/accounting.hpp"
#include "compat/src/socket/bounds.hpp"
#include "compat/src/socket/engine.hpp"
#include "compat/src/socket/engine_objects.hpp"
#include "compat/src/socket/exception.hpp"
#include "compat/src/socket/fork_handlers.hpp"
#include "compat/src/socket/kernel_counts.hpp"
#include "compat/src/socket/loading.hpp"
#include "compat/src/socket/port_stream.hpp"
#include "compat/src/socket/reach.hpp"
#include "compat/src/socket/retired.hpp"
#include "compat/src/socket/rings.hpp"
#include "compat/src/socket/sandbox.hpp"
#include "compat/src/socket/socket_sets.hpp"
#include "compat/src/socket/stash.hpp"
#include "compat/src/socket/stream.hpp"
#include "compat/src/socket/stream_loans.hpp"
#include "compat/src/socket/udp/state.hpp"
#include "compat/src/socket/uring.hpp"

namespace vma::sock {

constinit Mutex g_lift_lock;
constinit Socket *g_live_sockets = nullptr;

namespace {

constexpr std::uint32_t kHelloMagic = 0x314d4156; // "VAM1"
constexpr const char *kNoRoom = "too many connections are accelerated";

struct Hello { // private data of the attaching side
    std::uint32_t magic;
    std::uint32_t socket;
    std::uint64_t cookie;
};

bool is_candidate(Socket &s, int fd)
{
    if (s.evaluated)
        return true;
    if (s.role == Role::kUnknown) {
        stay_on_kernel(s, "neither connected nor accepted by this process");
        return false;
    }
    if (!read_addresses(fd, s.addresses))
        return false; // not connected (any more): ask again later
    s.remote = !on_this_host(s.addresses);
    tell_addresses(s);
    if (s.remote && !may_reach_host(s))
        return false;
    s.evaluated = true;
    return true;
}

void clear_transmit(Socket &s) // tx_lock, rx_lock, poll lock held
{
    put_endpoint(s, nullptr);
    s.connecting = false;
    s.tx.path = Path::kKernel;
    s.tx.final = false;
    s.tx.peer_ready = false;
    s.tx.position = 0;
    s.tx.credit = 0;
    s.tx.slots_left = 0;
    s.tx.told_full = false;
    s.tx.slots_blocked = false;
    s.tx.resend_from = kNone;
    s.tx.guarded = false;
    s.tx.end_pending = kNone;
    s.tx.return_at = kNone;
    s.tx.forget_remote();
    forget_pacing_turn(s);
    s.ready_due = false;
    s.tx_work = false;
}

void clear_receive(Socket &s)
{
    s.rx.path = Path::kKernel;
    s.rx.final = false;
    s.rx.written = 0;
    s.rx.consumed = 0;
    s.rx.credited = 0;
    s.rx.uncredited_writes = 0;
    s.rx.start_at = kNone;
    s.rx.end_at = kNone;
    s.rx.returning = false;
    s.rx.credit_due = false;
    s.rx.leaving = false;
    s.rx.cut = false;
    s.rx.forget_remote();
    forget_unread(s);
    drop_stash(s);
    s.kernel_news = false;
    s.kernel_state = 0;
}

// What a call that came too late has left behind, while there was no endpoint, is not the next one's.
void begin_anew(Socket &s)
{
    s.tx_lock.lock();
    s.rx_lock.lock();
    engine_exclude_polling(true, ring_of(s));
    clear_transmit(s);
    clear_receive(s);
    engine_exclude_polling(false, ring_of(s));
    s.rx_lock.unlock();
    s.tx_lock.unlock();
}

} // namespace

void stay_on_kernel(Socket &s, const char *reason)
{
    s.kernel_reason = reason;
    s.mode.store(Mode::kKernel, std::memory_order_release);
    tell_way(s);
}

// Opens, binds and enables an endpoint with a region. 0, or the provider's negative error with nothing left open.
int open_endpoint(Socket &s, fi_info *info, Device &device)
{
    fid_ep *ep = nullptr;
    if (is_remote(s))
        ask_queues(*info);
    int result = fi_endpoint(device.domain, info, &ep, &s);
    if (result != 0)
        return result;
    const std::size_t ring = config::params().stream_ring;
    fi_vma_region region = {};
    std::size_t size = sizeof region;
    result = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &ring, sizeof ring);
    if (result == 0 && is_remote(s))
        result = ask_device_memory(*ep);
    if (result == 0)
        result = fi_ep_bind(ep, &device.eq->fid, 0);
    const bool local = &device == &engine_device();
    fid_cq *const cq = local ? queue_of_ring(engine_objects(), enter_ring(s)) : device.cq;
    if (result == 0)
        result = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
    if (result == 0)
        result = fi_enable(ep);
    if (result == 0)
        result = fi_getopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &region, &size);
    if (result != 0) {
        fi_close(&ep->fid);
        if (local)
            leave_ring(s);
        return result;
    }
    begin_anew(s);
    s.rx.base = static_cast<const std::uint8_t *>(region.base);
    s.rx.ring = region.len;
    put_endpoint(s, ep);
    s.connecting = true;
    s.endpoint_down = false;
    s.device = &device;
    ++device.users;
    const LockGuard guard(s.tx_lock);
    adopt_pacing_rate(s, s.any_fd.load(std::memory_order_relaxed));
    return 0;
}

namespace {

void make_offer(Socket &s)
{
    if (s.cookie != 0)
        return;
    s.cookie = random_cookie();
    if (!publish_offer(s.addresses, {engine_objects().port, s.index, s.cookie})) {
        s.cookie = 0;
        refuse_offload(s, "no offer could be left");
    }
}

// From here on only a process that has the connection's other end can be at the endpoint's.
bool stand_beside(const Socket &s, int fd)
{
    const int error =
        fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP_SOCKET), &fd, sizeof fd);
    if (error == 0)
        return true;
    static constinit std::atomic<bool> said{false};
    const bool gone = error == -ENOENT || error == -ENOTCONN || error == -EBADF; // the peer's process, or the socket
    if (!gone && !said.exchange(true))
        VMA_LOG(kWarn,
                "fd=%d: cannot ask the kernel who has the other end: %s; this and later such connections stay on the "
                "kernel",
                fd, strerror(-error));
    return false;
}

void attach(Socket &s, int fd, const Offer &offer)
{
    const int result = open_endpoint(s, engine_objects().info, engine_device());
    if (result != 0) {
        static constinit std::atomic<bool> said{false};
        if (!said.exchange(true))
            VMA_LOG(kWarn, "fd=%d: cannot open an endpoint: %s; this and later such connections stay on the kernel", fd,
                    strerror(-result));
        refuse_offload(s, "no endpoint could be opened");
        return;
    }
    if (!stand_beside(s, fd)) {
        discard_endpoint(s);
        return;
    }
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(offer.port);
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const Hello hello = {kHelloMagic, offer.socket, offer.cookie};
    if (fi_connect(s.endpoint, &peer, &hello, sizeof hello) != 0)
        discard_endpoint(s);
}

// The engine starts only when there is somebody to attach to.
void look_for_offer(Socket &s, int fd)
{
    if (!open_offers()) {
        refuse_offload(s, "the directory of offers can't be used");
        return;
    }
    const std::uint32_t generation = offers_generation();
    Offer offer;
    if (generation == s.seen_offers)
        return;
    s.seen_offers = generation;
    if (!find_offer(s.addresses, offer))
        return;
    if (engine_start())
        attach(s, fd, offer);
    else {
        s.seen_offers = generation - 1; // looks again when the provider is loaded
        refuse_without_engine(s);
    }
}

Socket *offered_socket(const void *data, std::size_t len)
{
    Hello hello;
    if (len != sizeof hello)
        return nullptr;
    memcpy(&hello, data, sizeof hello);
    Socket *const s = hello.magic == kHelloMagic ? socket_by_index(hello.socket) : nullptr;
    const bool valid = s != nullptr && s->cookie != 0 && s->cookie == hello.cookie && s->endpoint == nullptr &&
                       s->mode.load(std::memory_order_acquire) == Mode::kPlain;
    return valid ? s : nullptr;
}

// lift lock held. `keep_unread`: the program will go on reading.
void close_endpoint(Socket &s, bool keep_unread, Closing closing = Closing::kNow)
{
    const bool was_dual = dual(s);
    if (s.endpoint == nullptr && (!was_dual || (keep_unread && holds_stash(s))))
        return; // nothing is open, or another call has closed it and the rest is still to be read
    if (was_dual && !may_close(s)) {
        VMA_LOG(kDebug, "ending: FINAL sent %d, seen %d, %u tags unanswered, endpoint %s", s.tx.final_sent.load(),
                s.rx.final_seen.load(), s.tx.unseen.load(), s.endpoint_down.load() ? "down" : "up");
        abort_stream(s, "the peer does not answer");
    }
    tell_port(s);
    s.tx_lock.lock();
    s.rx_lock.lock();
    fid_ep *const ep = s.endpoint;
    const bool by_port = ep != nullptr && s.on_port;
    if (keep_unread && ep != nullptr && !by_port && was_dual)
        finish_resend(s);
    const RingMask rings = ring_of(s);
    engine_exclude_polling(true, rings);
    part_from_loans(s);
    const bool stashed = ep != nullptr && !by_port && was_dual && keep_unread && stash_unread(s);
    if (by_port)
        land(s);
    const bool later = closing == Closing::kBehindFork && !stashed && s.rx.cut && ep != nullptr && retire(s, *ep);
    clear_transmit(s);
    if (!stashed) {
        clear_receive(s);
        if (was_dual)
            s.mode.store(mode_without_endpoint(s), std::memory_order_release);
    }
    if (ep != nullptr && !later) {
        if (is_remote(s) && !by_port)
            log_device_memory(s, *ep);
        fi_close(&ep->fid);
        --s.device->users;
    }
    engine_exclude_polling(false, rings);
    if (ep != nullptr && s.device == &engine_device())
        leave_ring(s);
    s.rx_lock.unlock();
    s.tx_lock.unlock();
    if (!was_dual)
        return;
    if (!stashed)
        tell_migration(s);
    if (ep != nullptr)
        remove_live(g_live_sockets, s);
    engine_update_active();
    s.operations.store(0, std::memory_order_relaxed);
    s.ask_holders_after.store(0, std::memory_order_relaxed);
    s.attempt.again_at = 0;
    if (stashed)
        notify(s, POLLIN | POLLOUT);
    else
        mux::became_plain(s);
}

} // namespace

void discard_endpoint(Socket &s)
{
    close_endpoint(s, true);
}

namespace {

// Lift lock held: no other endpoint comes.
bool is_left(Socket &s)
{
    s.tx_lock.lock();
    s.rx_lock.lock();
    const bool left = s.endpoint == nullptr || !dual(s) || s.on_port || (s.tx.final && s.rx.leaving);
    s.rx_lock.unlock();
    unlock_tx(s);
    return left;
}

void lift(Socket &s, int fd) // a candidate; lift lock held
{
    if (s.port != nullptr)
        lift_to_port(s, fd);
    else if (s.remote)
        begin_attempt(s);
    else if (!room_for_stream(engine_device().users))
        stay_on_kernel(s, kNoRoom);
    else if (claim_ring(s); s.role == Role::kAcceptor)
        look_for_offer(s, fd);
    else if (engine_start())
        make_offer(s);
    else
        refuse_without_engine(s);
}

// Unless another thread lifts, or forks. True: the socket stays as it is, beside a ring of io_uring or under a filter of system calls that was
// not seen before.
bool lift_in_turn(Socket &s, int fd)
{
    if (ring_in_use() || sandboxed() || !g_lift_lock.try_lock())
        return false;
    if (!g_fork_gate.try_lock()) {
        g_lift_lock.unlock();
        return false;
    }
    note_socket(s.index);
    bool beside_ring = false;
    if (s.mode.load(std::memory_order_acquire) == Mode::kPlain && s.endpoint == nullptr && !s.pinned) {
        beside_ring = meets_filter(); // first: the other looks make more calls
        if (!beside_ring && hold_alone(s) && is_candidate(s, fd)) {
            beside_ring = meets_ring();
            if (!beside_ring)
                lift(s, fd);
        }
    }
    g_fork_gate.unlock();
    g_lift_lock.unlock();
    return beside_ring;
}

} // namespace

// Lifting takes some ten microseconds: after a send they pass while the peer works, after a receive they would delay what the
// program does with it. Who only receives is lifted a few calls later.
void count_operation(Socket &s, int fd, bool received)
{
    constexpr std::uint32_t kReceivesMore = 4;
    const std::uint32_t wanted = config::params().lift_after + (received ? kReceivesMore : 0);
    const std::uint32_t operations = s.operations.fetch_add(1, std::memory_order_relaxed) + 1;
    if (operations < wanted || s.pinned.load(std::memory_order_relaxed))
        return;
    if (may_be_shared(s) && !may_ask_for_holders(s, operations)) [[unlikely]]
        return;
    if (s.remote) {
        if (s.attempt.open || operations < s.attempt.again_at)
            return;
    } else if (s.role == Role::kAcceptor ? s.evaluated && s.seen_offers == offers_generation() : s.cookie != 0)
        return;
    bool beside_ring = lift_in_turn(s, fd);
    if (load_what_is_wanted()) [[unlikely]]
        beside_ring = lift_in_turn(s, fd);
    if (beside_ring) [[unlikely]] {
        const int saved = errno;
        if (sandboxed())
            stay_in_sandbox();
        else
            ring_seen("/proc/self/fd");
        errno = saved;
    }
}

// By the helper thread with the lift lock held.
void on_connect_request(fi_info *info, const void *data, std::size_t len)
{
    Socket *const s = offered_socket(data, len);
    const bool room = room_for_stream(engine_device().users);
    if (s != nullptr && !room) {
        withdraw_offer(*s);
        stay_on_kernel(*s, kNoRoom);
    }
    if (s == nullptr || !room || open_endpoint(*s, info, engine_device()) != 0) {
        fi_reject(engine_objects().pep, info->handle, nullptr, 0);
        return;
    }
    if (!stand_beside(*s, s->any_fd.load(std::memory_order_relaxed)) || fi_accept(s->endpoint, nullptr, 0) != 0) {
        close_endpoint(*s, true); // the offer stays: another one may come for it
        return;
    }
    withdraw_offer(*s);
}

void add_live(Socket *&list, Socket &s)
{
    s.prev_live = nullptr;
    s.next_live = list;
    if (s.next_live != nullptr)
        s.next_live->prev_live = &s;
    list = &s;
}

void remove_live(Socket *&list, Socket &s)
{
    if (s.next_live != nullptr)
        s.next_live->prev_live = s.prev_live;
    if (s.prev_live != nullptr)
        s.prev_live->next_live = s.next_live;
    else if (list == &s)
        list = s.next_live;
    s.next_live = s.prev_live = nullptr;
}

void try_ready(Socket &s)
{
    if (is_udp(s)) {
        udp::publish_if_due(s);
        return;
    }
    if (s.bare_receivers.load(std::memory_order_seq_cst) != 0 || s.bare_polls.load(std::memory_order_seq_cst) != 0 ||
        !s.ready_due.exchange(false, std::memory_order_acq_rel))
        return;
    if (!kernel_agrees_on_read(s, s.rx.kernel_bytes.load(std::memory_order_relaxed))) {
        note_uncounted(s); // and READY never goes out
        return;
    }
    const bool before = s.rx.ready_sent.exchange(true, std::memory_order_acq_rel);
    if (!send_tag(s, Tag::kReady, 0)) {
        s.rx.ready_sent.store(before, std::memory_order_release);
        s.ready_due.store(true, std::memory_order_release);
    }
}

void stop_lifting(Socket &s)
{
    LockGuard guard(g_lift_lock);
    if (dual(s) || is_udp(s))
        return;
    withdraw_offer(s);
    end_attempt(s);
    close_endpoint(s, true);
}

namespace {

void tear_down_locked(Socket &s, bool keep_unread, Closing closing)
{
    if (is_udp(s)) {
        udp::unlift(s, keep_unread);
        return;
    }
    withdraw_offer(s);
    end_attempt(s);
    close_endpoint(s, keep_unread, closing);
}

} // namespace

void tear_down(Socket &s, bool keep_unread)
{
    const LockGuard guard(g_lift_lock);
    tear_down_locked(s, keep_unread, Closing::kNow);
}

bool close_left(Socket &s, Closing closing)
{
    const LockGuard guard(g_lift_lock);
    if (!is_udp(s) && !is_left(s))
        return false;
    tear_down_locked(s, true, closing);
    return true;
}

bool discard_left(Socket &s)
{
    const bool left = is_left(s);
    if (left)
        discard_endpoint(s);
    return left;
}

void drop_rest(Socket &s)
{
    const LockGuard guard(g_lift_lock);
    if (s.endpoint == nullptr) // another thread may have done it, and the socket have been lifted again
        tear_down_locked(s, false, Closing::kNow);
}

} // namespace vma::sock
