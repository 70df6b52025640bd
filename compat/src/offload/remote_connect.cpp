// SPDX-License-Identifier: BSD-2-Clause
// Attempts: the client's listeners, the server's connects, and the memory of hosts that refused.
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/base/addresses.hpp"
#include "compat/src/offload/connections.hpp"
#include "compat/src/transport/exception.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include <rdma/fi_cm.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/offload/meeting.hpp"
#include "compat/src/rendezvous/broker.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/port.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kAcceptNs = 8000 * kNsPerMs;  // longer than the other side waits for the answer
constexpr std::int64_t kConnectNs = 4000 * kNsPerMs; // librdmacm gives up before
constexpr std::int64_t kTryAfterNs[] = {20 * kNsPerMs, 100 * kNsPerMs, 500 * kNsPerMs, 2000 * kNsPerMs};
constexpr std::int64_t kLeastPauseNs = 1000 * kNsPerMs;
constexpr std::int64_t kMostPauseNs = 60000 * kNsPerMs;
constexpr std::int64_t kListenNs = kMostPauseNs + 10000 * kNsPerMs; // one of the other side's tries comes meanwhile
constexpr std::uint32_t kOperationsUntilNext = 1024;                // of a connection whose peer has refused

constexpr std::uint32_t kHelloMagic = 0x31524d56; // "VMR1"

struct Hello { // private data of the host that connects back
    std::uint32_t magic;
    in_port_t connector; // network byte order
    in_port_t acceptor;
    std::uint64_t connection; // name of the TCP connection
};

// FNV-1a over both ends, in their v4-mapped form.
std::uint64_t name_of(const sockaddr_in6 &connector, const sockaddr_in6 &acceptor)
{
    std::uint64_t hash = 0xcbf29ce484222325;
    const auto add = [&hash](const void *bytes, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            hash = (hash ^ static_cast<const std::uint8_t *>(bytes)[i]) * 0x100000001b3;
    };
    for (const sockaddr_in6 *end : {&connector, &acceptor}) {
        add(&end->sin6_addr, sizeof end->sin6_addr);
        add(&end->sin6_port, sizeof end->sin6_port);
    }
    return hash;
}

Hello hello_of(const sockaddr_in6 &connector, const sockaddr_in6 &acceptor)
{
    return {kHelloMagic, connector.sin6_port, acceptor.sin6_port, name_of(connector, acceptor)};
}

bool same_host(const in6_addr &a, const in6_addr &b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

Refusal *refusal_of(const in6_addr &host)
{
    for (Refusal &r : g_connections.refusals)
        if (r.pause_ns != 0 && same_host(r.host, host))
            return &r;
    return nullptr;
}

void remember_refusal(const in6_addr &host)
{
    Refusal *r = refusal_of(host);
    if (r == nullptr) {
        r = std::min_element(std::begin(g_connections.refusals), std::end(g_connections.refusals),
                             [](const Refusal &a, const Refusal &b) { return a.until_ns < b.until_ns; });
        *r = {host, 0, 0};
    }
    r->pause_ns = std::clamp(2 * r->pause_ns, kLeastPauseNs, kMostPauseNs);
    r->until_ns = now_ns() + r->pause_ns;
}

void pause(Stream &s)
{
    s.attempt.again_at = s.operations.load(std::memory_order_relaxed) + kOperationsUntilNext;
}

// Who had an endpoint once has a peer that can: its attempt goes on until they meet, so that the connector's listener
// is there whenever the acceptor tries, however late either of them begins.
bool peer_is_able(const Stream &s)
{
    return s.was_accelerated && config::params().remote_streams;
}

// Before the next step of an attempt: as kTryAfterNs says, then twice as long each time.
std::int64_t wait_before(std::uint32_t tries)
{
    constexpr std::uint32_t kLast = std::size(kTryAfterNs) - 1;
    constexpr std::uint32_t kMostDoublings = 5;
    if (tries <= kLast)
        return kTryAfterNs[tries];
    return std::min(kTryAfterNs[kLast] << std::min(tries - kLast, kMostDoublings), kMostPauseNs);
}

// A listener stays: who has asked may ask again.
void look_again(Stream &s)
{
    s.attempt.due_ns = now_ns() + (s.attempt.listener != nullptr ? kListenNs : wait_before(++s.attempt.tries));
}

void not_met(Stream &s, const char *why)
{
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: no endpoint yet: %s", connection_name(s, name), why);
    if (peer_is_able(s))
        return look_again(s);
    end_attempt(s);
    remember_refusal(s.addresses.peer.sin6_addr);
    pause(s);
}

int open_listener(Stream &s, Device &d, fi_info *info)
{
    sockaddr_in6 own;
    const std::size_t size = to_sockaddr(s.addresses.local, own);
    fid_pep *pep = nullptr;
    int result = fi_passive_ep(d.fabric, info, &pep, &s);
    if (result == 0)
        result = fi_setname(&pep->fid, &own, size);
    if (result == 0)
        result = fi_pep_bind(pep, &d.eq->fid, 0);
    if (result == 0)
        result = fi_listen(pep);
    if (result == 0) {
        s.attempt.listener = pep;
        s.device = &d;
        ++d.users;
    } else if (pep != nullptr) {
        fi_close(&pep->fid);
    }
    return result;
}

int connect_back(Stream &s, Device &d, fi_info *info)
{
    sockaddr_in6 peer;
    to_sockaddr(s.addresses.peer, peer);
    const Hello hello = hello_of(s.addresses.peer, s.addresses.local);
    int result = open_endpoint(s, info, d);
    if (result != 0)
        return result;
    result = fi_connect(s.endpoint, &peer, &hello, sizeof hello);
    if (result != 0)
        discard_endpoint(s);
    return result;
}

// The first step of an attempt, or its next try.
void reach(Stream &s)
{
    if (!config::params().remote_streams) {
        end_attempt(s);
        find_port(s);
        return;
    }
    fi_info *info = nullptr;
    if (find_device(*provider(), Want::kRdmaStreams, &s.addresses, info) != 0) {
        end_attempt(s);
        stay_on_kernel(s, "no RDMA device reaches the peer's host");
        return;
    }
    Device *const d = remote_device(*info);
    if (d == nullptr) {
        engine_objects().process->freeinfo(info);
        return not_met(s, "its device is not usable now");
    }
    const bool connector = s.role == Role::kConnector;
    const int result = connector ? open_listener(s, *d, info) : connect_back(s, *d, info);
    engine_objects().process->freeinfo(info);
    if (result == 0) {
        s.attempt.due_ns = now_ns() + (connector ? kListenNs : kConnectNs);
        return;
    }
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: device %s: cannot %s: %s", connection_name(s, name), d->name,
            connector ? "listen" : "connect back", strerror(-result));
    if (result != -EADDRINUSE)
        d->failed = true; // opened anew when nobody uses it any more
    not_met(s, "the device does not work");
}

void step(Stream &s)
{
    const bool waited = s.endpoint != nullptr;
    if (waited)
        discard_endpoint(s);
    if (s.pinned || s.mode.load(std::memory_order_acquire) != Mode::kKernelOnly)
        end_attempt(s); // it is not to have an endpoint any more
    else if (waited)
        not_met(s, "the peer's host does not answer");
    else if (s.attempt.listener != nullptr)
        not_met(s, "nobody connected back");
    else
        reach(s);
}

// Another network namespace of this host looks the same as another host, unless vmad has been asked.
void stay_apart(Stream &s)
{
    if (broker_fd() >= 0)
        stay_on_kernel(s, "the peer is on another host");
    else if (!config::params().other_users || config::params().broker[0] == '\0')
        stay_on_kernel(s, "the peer is on another host, or in another network namespace (vmad: not to be asked)");
    else
        stay_on_kernel(s, "the peer is on another host, or in another network namespace (vmad: not running)");
}

} // namespace

bool may_reach_host(Stream &s)
{
    if (ports_are_named() && !config::params().remote_streams)
        return true;
    if (!config::params().remote_streams)
        stay_apart(s);
    else if (!rdma_is_here())
        stay_on_kernel(s, "no RDMA device reaches the peer's host");
    else
        return true;
    return false;
}

void begin_attempt(Stream &s)
{
    if (s.attempt.open) // another thread had its turn since this one counted its call
        return;
    const Refusal *const refusal = peer_is_able(s) ? nullptr : refusal_of(s.addresses.peer.sin6_addr);
    if (refusal != nullptr && now_ns() < refusal->until_ns) {
        pause(s);
        return;
    }
    if (!engine_start()) {
        refuse_without_engine(s);
        return;
    }
    const Loaded rdma = config::params().remote_streams ? loaded(Part::kRdma) : Loaded::kTried;
    if (rdma == Loaded::kLost)
        stay_on_kernel(s, "rdma-core was being loaded when the process was copied");
    if (rdma != Loaded::kTried)
        return;
    s.attempt.open = true;
    s.attempt.tries = 0;
    const bool at_once = s.role == Role::kConnector || !config::params().remote_streams; // no listener to wait for
    s.attempt.due_ns = now_ns() + (at_once ? 0 : kTryAfterNs[0]);
    add_live(g_connections.attempts, s);
    g_connections.any_open.store(true, std::memory_order_release);
    engine_wake_helper();
}

void end_attempt(Stream &s)
{
    if (!s.attempt.open)
        return;
    end_meeting(s);
    if (s.attempt.listener != nullptr) {
        fi_close(&s.attempt.listener->fid);
        s.attempt.listener = nullptr;
        --s.device->users;
    }
    s.attempt.open = false;
    remove_live(g_connections.attempts, s);
    g_connections.any_open.store(g_connections.attempts != nullptr, std::memory_order_release);
}

void attempt_succeeded(Stream &s)
{
    if (s.guest)
        return meeting_succeeded(s);
    end_attempt(s);
    if (Refusal *const refusal = refusal_of(s.addresses.peer.sin6_addr))
        *refusal = {};
}

void attempt_failed(Stream &s)
{
    if (!s.attempt.open)
        return;
    if (s.guest)
        end_attempt(s); // once more later
    else if (s.attempt.listener != nullptr || s.attempt.tries + 1 < std::size(kTryAfterNs))
        look_again(s);
    else
        not_met(s, "the peer's host refuses");
}

bool attempts_are_open()
{
    return g_connections.any_open.load(std::memory_order_acquire);
}

void tick_attempts()
{
    const LockGuard guard(g_offload.lock);
    hear_broker();
    const std::int64_t now = now_ns();
    for (Stream *s = g_connections.attempts; s != nullptr;) {
        Stream *const next = s->next_live;
        if (now >= s->attempt.due_ns)
            s->guest ? tick_meeting(*s) : step(*s);
        s = next;
    }
    close_failed_devices();
}

void on_remote_request(fid_pep *listener, fi_info *info, const void *data, std::size_t len)
{
    auto *const s = static_cast<Stream *>(listener->fid.context);
    Hello hello = {};
    sockaddr_in6 from = {};
    if (len == sizeof hello)
        memcpy(&hello, data, sizeof hello);
    const Hello expected = hello_of(s->addresses.local, s->addresses.peer);
    const bool valid = s->attempt.open && s->attempt.listener == listener && s->endpoint == nullptr &&
                       s->mode.load(std::memory_order_acquire) == Mode::kKernelOnly && info->dest_addr != nullptr &&
                       to_v6(info->dest_addr, from) && same_host(from.sin6_addr, s->addresses.peer.sin6_addr) &&
                       memcmp(&hello, &expected, sizeof hello) == 0;
    if (!valid || open_endpoint(*s, info, *s->device) != 0) {
        fi_reject(listener, info->handle, nullptr, 0);
        return;
    }
    if (fi_accept(s->endpoint, nullptr, 0) == 0)
        s->attempt.due_ns = now_ns() + kAcceptNs;
    else
        discard_endpoint(*s);
}

void attempts_after_fork_in_child()
{
    broker_after_fork_in_child();
    g_connections.attempts = nullptr;
    g_connections.any_open.store(false, std::memory_order_relaxed);
}

} // namespace vma::sock
