// SPDX-License-Identifier: BSD-2-Clause
// How a socket gets its endpoint: offers, attaching (endpoint.cpp: opened and closed; endpoint_news.cpp: what happens
// to it meanwhile). One offload lock guards all of it; it is rare work.
#include <errno.h>
#include <string.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/bounds.hpp"
#include "compat/src/base/probes.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/offload/connections.hpp"
#include "compat/src/offload/first_byte.hpp"
#include "compat/src/offload/meeting.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/offload/stream.hpp"
#include "compat/src/offload/turn.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/table/uring.hpp"
#include "compat/src/transport/exception.hpp"
#include "compat/src/transport/kernel_counts.hpp"
#include "compat/src/transport/port.hpp"

namespace vma::sock {

constinit Offload g_offload;
constinit Connections g_connections;

namespace {

constexpr std::uint32_t kHelloMagic = 0x324d4156; // "VAM2"
constexpr const char *kNoRoom = "too many connections are accelerated";

struct Hello { // private data of the attaching side
    std::uint32_t magic;
    std::uint32_t socket;
    std::uint64_t cookie;
};

bool is_candidate(Stream &s, int fd)
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
    if (!find_peer(s, fd))
        return false;
    tell_addresses(s);
    s.transport.store(s.remote ? &kRemoteRing : &kSharedRing, std::memory_order_relaxed);
    if (s.remote && !may_reach_host(s))
        return false;
    s.evaluated = true;
    return s.mode.load(std::memory_order_relaxed) != Mode::kKernel;
}

} // namespace

void stay_on_kernel(Socket &s, const char *reason)
{
    probe::fallback(s.any_fd.load(std::memory_order_relaxed), reason, false);
    s.kernel_reason = reason;
    s.mode.store(Mode::kKernel, std::memory_order_release);
    tell_way(s);
}

namespace {

void make_offer(Stream &s)
{
    if (s.cookie != 0)
        return;
    s.cookie = random_cookie();
    if (!publish_offer(s.addresses, {engine_objects().port, s.index, s.cookie})) {
        s.cookie = 0;
        refuse_offload(s, "no offer could be left");
    }
}

} // namespace

// From here on only a process that has the connection's other end can be at the endpoint's.
bool stand_beside(const Stream &s, int fd)
{
    const fi_vma_tcp_socket socket = {fd, 0, s.addresses.network, s.addresses.local, s.addresses.peer};
    const std::size_t size = socket.network != 0 ? sizeof socket : sizeof fd;
    const int error =
        fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP_SOCKET), &socket, size);
    if (error == 0)
        return true;
    const bool gone = error == -ENOENT || error == -ENOTCONN || error == -EBADF; // the peer's process, or the socket
    if (gone)
        VMA_LOG(kDebug, "fd=%d: the kernel knows nobody at the other end: %s", fd, strerror(-error));
    else if (config::is_first(config::Once::kNoPeer))
        VMA_LOG(kWarn,
                "fd=%d: cannot ask the kernel who has the other end: %s; this and later such connections stay on the "
                "kernel",
                fd, strerror(-error));
    return false;
}

namespace {

// The offer stays, and no other one may come that would have it looked at again.
void look_again_later(Stream &s)
{
    s.seen_offers = offers_generation() - 1;
    try_later(s);
}

void attach(Stream &s, int fd, const Offer &offer)
{
    withdraw_offer(s); // of accept()
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(offer.port);
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fi_info info = *engine_objects().info;
    info.dest_addr = &peer; // whoever has it keeps memory for us, perhaps
    info.dest_addrlen = sizeof peer;
    const int result = open_endpoint(s, &info, engine_device());
    if (result != 0) {
        if (config::is_first(config::Once::kNoEndpoint))
            VMA_LOG(kWarn, "fd=%d: cannot open an endpoint: %s; this and later such connections stay on the kernel", fd,
                    strerror(-result));
        refuse_offload(s, "no endpoint could be opened");
        return;
    }
    if (!stand_beside(s, fd)) {
        discard_endpoint(s);
        look_again_later(s);
        return;
    }
    const Hello hello = {kHelloMagic, offer.socket, offer.cookie};
    const int error = fi_connect(s.endpoint, &peer, &hello, sizeof hello);
    if (error == 0)
        return;
    VMA_LOG(kDebug, "fd=%d: cannot connect an endpoint: %s", fd, strerror(-error));
    discard_endpoint(s);
    look_again_later(s);
}

// The engine starts only when there is somebody to attach to.
void look_for_offer(Stream &s, int fd)
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

Stream *offered_socket(const void *data, std::size_t len)
{
    Hello hello;
    if (len != sizeof hello)
        return nullptr;
    memcpy(&hello, data, sizeof hello);
    Socket *const named = hello.magic == kHelloMagic ? socket_by_index(hello.socket) : nullptr;
    Stream *const s = named != nullptr ? stream_of(*named) : nullptr;
    const bool valid = s != nullptr && s->cookie != 0 && s->cookie == hello.cookie && s->endpoint == nullptr &&
                       s->mode.load(std::memory_order_acquire) == Mode::kKernelOnly;
    return valid ? s : nullptr;
}

} // namespace

namespace {

void offload(Stream &s, int fd, Offerer offerer) // a candidate; offload lock held
{
    if (offerer == Offerer::kAcceptor && (s.port != nullptr || s.remote || s.guest))
        return;
    const bool looks = (s.role == Role::kAcceptor) != (offerer == Offerer::kAcceptor);
    if (s.port != nullptr)
        offload_to_port(s, fd);
    else if (s.remote)
        begin_attempt(s);
    else if (!room_for_stream(g_connections.room, engine_device().users))
        stay_on_kernel(s, kNoRoom);
    else if (s.guest)
        meet(s, fd);
    else if (claim_ring(s); looks)
        look_for_offer(s, fd);
    else if (engine_start())
        make_offer(s);
    else
        refuse_without_engine(s);
}

// By which nobody tells when they can: it is asked again after some sends and receives.
bool sets_follow(Stream &s)
{
    if (kMultiplexers.may_follow(s)) {
        if (s.kernel_reason == kSetIsShared)
            s.kernel_reason = nullptr;
        return true;
    }
    try_later(s, kMostDoublingsForSets);
    s.kernel_reason = kSetIsShared;
    tell_way(s);
    return false;
}

// On a deep stack, with the offload lock held. True: it stays as it is, as Turn::kStaysAsIs.
bool offload_if_fit(Stream &s, int fd, Offerer offerer)
{
    if (!hold_alone(s) || !sets_follow(s) || !is_candidate(s, fd))
        return false;
    if (meets_ring())
        return true;
    offload(s, fd, offerer);
    return false;
}

Turn offload_in_turn(Stream &s, int fd, Offerer offerer)
{
    if (rings_keep(s) || sandboxed())
        return Turn::kTaken;
    if (!g_offload.lock.try_lock())
        return Turn::kNotNow;
    if (!g_forks.gate.try_lock()) {
        g_offload.lock.unlock();
        return Turn::kNotNow;
    }
    note_socket(s.index);
    bool stays = false;
    if (s.mode.load(std::memory_order_acquire) == Mode::kKernelOnly && s.endpoint == nullptr && !s.pinned) {
        stays = meets_filter(); // first: all else makes more calls, the change of stacks too
        if (!stays)
            g_engine_tables.stack.run([&] { stays = offload_if_fit(s, fd, offerer); });
    }
    g_forks.gate.unlock();
    g_offload.lock.unlock();
    return stays ? Turn::kStaysAsIs : Turn::kTaken;
}

} // namespace

bool try_offload(Stream &s, int fd, Offerer offerer)
{
    if (is_loading(Part::kProvider) || (s.remote && is_loading(Part::kRdma))) [[unlikely]]
        return false;
    Turn turn = offload_in_turn(s, fd, offerer); // which finds out whether it is remote
    // Between hosts it takes more than a call, whoever waits.
    if (load_what_is_wanted(s.remote ? Patience::kGoesOn : patience_asked_for())) [[unlikely]]
        turn = offload_in_turn(s, fd, offerer);
    if (turn == Turn::kStaysAsIs) [[unlikely]] {
        const int saved = errno;
        if (sandboxed())
            stay_in_sandbox();
        else
            ring_seen("/proc/self/fd");
        errno = saved;
    }
    return turn != Turn::kNotNow;
}

// Offloading takes some ten microseconds: after a send they pass while the peer works, after a receive they would delay
// what the program does with it. Who only receives is offloaded a few calls later.
void count_operation(Stream &s, int fd, bool received)
{
    constexpr std::uint32_t kReceivesMore = 4;
    const std::uint32_t wanted = calls_before_offload(s) + (received ? kReceivesMore : 0);
    const std::uint32_t operations = s.operations.fetch_add(1, std::memory_order_relaxed) + 1;
    if (operations < wanted || s.pinned.load(std::memory_order_relaxed))
        return;
    if (may_be_shared(s) && !may_ask_for_holders(s, operations)) [[unlikely]]
        return;
    if (operations < s.attempt.again_at)
        return;
    if (s.remote || s.guest) {
        if (s.attempt.open)
            return;
    } else if (s.role == Role::kAcceptor ? s.evaluated && s.seen_offers == offers_generation() : s.cookie != 0)
        return;
    (void)try_offload(s, fd, Offerer::kConnector); // or at the next call
}

// By the helper thread with the offload lock held.
void on_connect_request(fi_info *info, const void *data, std::size_t len)
{
    Stream *const met = met_by(data, len);
    Stream *const s = met != nullptr ? met : offered_socket(data, len);
    const bool room = room_for_stream(g_connections.room, engine_device().users);
    if (s != nullptr && !room) {
        withdraw_offer(*s);
        end_attempt(*s);
        stay_on_kernel(*s, kNoRoom);
    }
    if (s == nullptr || !room || open_endpoint(*s, info, engine_device()) != 0) {
        fi_reject(engine_objects().pep, info->handle, nullptr, 0);
        return;
    }
    const bool proved = s->by_broker || stand_beside(*s, s->any_fd.load(std::memory_order_relaxed));
    if (!proved || fi_accept(s->endpoint, nullptr, 0) != 0) {
        discard_endpoint(*s); // the offer stays: another one may come for it
        return;
    }
    withdraw_offer(*s);
    end_attempt(*s);
}

void attaching_was_refused(Stream &s)
{
    if (s.role == Role::kAcceptor && !s.remote && !s.guest)
        look_again_later(s);
}

void add_live(Stream *&list, Stream &s)
{
    s.prev_live = nullptr;
    s.next_live = list;
    if (s.next_live != nullptr)
        s.next_live->prev_live = &s;
    list = &s;
}

void remove_live(Stream *&list, Stream &s)
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
    protocol(s).try_ready(s);
}

// Behind CREDIT for all that was used. That finds out without a system call that the peer has cut, or that no slot is
// free.
void tcp::try_ready(Stream &s)
{
    if (s.rx.credit_due.load(std::memory_order_relaxed) || s.blocked_receivers.load(std::memory_order_seq_cst) != 0 ||
        s.blocked_polls.load(std::memory_order_seq_cst) != 0 || !transport(s).may_be_ready(s) ||
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

} // namespace vma::sock
