// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/offload/meeting.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/offload/connections.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/offload/stream.hpp"
#include "compat/src/rendezvous/broker.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rendezvous/peer.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/exception.hpp"
#include "vma/strangers.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kMeetNs = 1'000'000'000;      // a name is there for so long, and a request waits for its answer
constexpr std::int64_t kIntroduceNs = 5'000'000'000; // longer than vmad waits
constexpr unsigned kNames = 8;                       // of a socket's: others may have taken some of them
// Attempts at a time that listen or wait for an answer, and that vmad was asked about. What each holds is one
// descriptor and an entry of a list: one user may have half of them. In a container all whom it talks to may have one
// address.
constexpr unsigned kMostAtOnce = 64;
constexpr unsigned kMostAskedAtOnce = 128;
constexpr const char *kLeftTooMuch = "other users have left too much in sockets of this process";
constexpr const char *kTooMany = "too many meetings at a time";
constexpr const char *kNamesTaken = "another user has taken the names by which the peer would find us";
constexpr int kBacklog = 16;
constexpr std::uint32_t kHelloMagic = 0x31474d56; // "VMG1"

struct Hello { // private data of the acceptor
    std::uint32_t magic;
    std::uint32_t reserved;
    std::uint64_t cookie; // SO_COOKIE of the connector's socket
};

struct Name {
    sockaddr_un address = {};
    socklen_t length = 0;
};

// Of a connection's, by the connector's socket. Cookies and inode numbers are counters, so who wanted to have the names
// of a connection that is yet to come would need them for each port that the kernel may choose for it.
Name name_of(const Peer &connector, const sockaddr_in6 &from, const sockaddr_in6 &to, unsigned number)
{
    Name name;
    name.address.sun_family = AF_UNIX;
    char *const text = name.address.sun_path + 1;
    const int n = snprintf(text, sizeof name.address.sun_path - 1, "vma4/t%llx.%x.%u.%u.%u",
                           static_cast<unsigned long long>(connector.cookie), connector.inode, ntohs(from.sin6_port),
                           ntohs(to.sin6_port), number);
    name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
    return name;
}

// Whose share of the places an attempt has: the peer's user, who is not known before vmad has answered. Until then it
// is the peer's address, which is a container's.
bool is_one_party(const Stream &a, const Stream &b)
{
    return a.by_broker ? IN6_ARE_ADDR_EQUAL(&a.addresses.peer.sin6_addr, &b.addresses.peer.sin6_addr)
                       : a.peer_user == b.peer_user;
}

// Nobody gets as many as are free, so that there is something left for whoever comes next.
bool has_place(const Stream &s)
{
    unsigned open = 0;
    unsigned same = 0;
    for (const Stream *other = g_connections.attempts; other != nullptr; other = other->next_live) {
        if (!other->guest || other->by_broker != s.by_broker)
            continue;
        ++open;
        same += is_one_party(*other, s) ? 1 : 0;
    }
    return open + same < (s.by_broker ? kMostAskedAtOnce : kMostAtOnce);
}

// What is in the way may be gone soon. Vmad answers most within a millisecond, so that an attempt which found no place
// there is none that failed.
void stay_for_now(Stream &s, const char *reason)
{
    constexpr std::uint32_t kMostDoublings = 7; // of the calls until the next attempt
    constexpr std::uint32_t kSoon = 16;
    if (s.by_broker)
        s.attempt.again_at = s.operations.load(std::memory_order_relaxed) + kSoon;
    else
        try_later(s, kMostDoublings);
    if (s.kernel_reason == reason)
        return;
    s.kernel_reason = reason;
    tell_way(s);
}

void forget_what_was_in_the_way(Stream &s)
{
    if (s.kernel_reason != kTooMany && s.kernel_reason != kNamesTaken)
        return;
    s.kernel_reason = nullptr;
    tell_way(s);
}

void begin_waiting(Stream &s, std::int64_t patience_ns)
{
    s.attempt.open = true;
    s.attempt.due_ns = now_ns() + patience_ns;
    add_live(g_connections.attempts, s);
    g_connections.any_open.store(true, std::memory_order_release);
    engine_wake_helper();
}

StrangersCalls strangers_calls()
{
    return {libc::real.getsockopt, libc::real.setsockopt, libc::real.shutdown, libc::real.recvmsg};
}

// Whoever has the other end may have sent into it.
void let_go(int socket)
{
    if (socket < 0 || is_safe_to_close(socket, strangers_calls()))
        libc::close_private(socket);
    else
        g_sockets_left_open.fetch_add(1, std::memory_order_relaxed);
}

// And whoever has connected to one that listens.
void let_go_of_listener(int socket)
{
    libc::real.shutdown(socket, SHUT_RDWR); // who connects from here on is refused
    for (;;) {
        const int one = libc::real.accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (one >= 0)
            let_go(one);
        else if (errno != EINTR && errno != ECONNABORTED)
            break;
    }
    libc::close_private(socket);
}

// 0, and its socket is the provider's; or a negative fi_errno, and it is ours still: -FI_EACCES, strangers have left
// too much in the provider's sockets.
int give_link(fid_t fid, const fi_vma_link &link)
{
    libc::disown_private(link.socket);
    return fi_setopt(fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_LINK), &link, sizeof link);
}

// The stream's endpoint, which is open, asks the peer at the link's other end. False: neither is there any more.
bool connect_over(Stream &s, const fi_vma_link &link, std::uint64_t cookie)
{
    const Hello hello = {kHelloMagic, 0, cookie};
    if (give_link(&s.endpoint->fid, link) != 0)
        let_go(link.socket);
    else if (fi_connect(s.endpoint, nullptr, &hello, sizeof hello) == 0)
        return true;
    discard_endpoint(s);
    return false;
}

// -1: errno says why.
int listen_for(const Peer &own, const Addresses &addresses)
{
    const int fd = libc::make_private(libc::real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    for (unsigned number = 0; number < kNames; ++number) {
        const Name name = name_of(own, addresses.local, addresses.peer, number);
        if (libc::real.bind(fd, reinterpret_cast<const sockaddr *>(&name.address), name.length) == 0) {
            if (libc::real.listen(fd, kBacklog) == 0)
                return fd;
            break;
        }
        if (errno != EADDRINUSE)
            break;
    }
    const int error = errno;
    libc::close_private(fd);
    errno = error;
    return -1;
}

bool is_of(int socket, uid_t user)
{
    ucred peer = {};
    socklen_t size = sizeof peer;
    return libc::real.getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == user;
}

// The connector's listener. All names are tried, past those that somebody else has taken: of one who doesn't listen at
// his the kernel says the same as of a name that nobody has. -1: it isn't there.
int reach(const Stream &s)
{
    const Peer connector = {s.peer_cookie, s.peer_inode, s.peer_user};
    int fd = -1;
    for (unsigned number = 0; number < kNames; ++number) {
        if (fd < 0)
            fd = libc::make_private(libc::real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (fd < 0)
            return -1;
        let_rights_in(fd, false, strangers_calls());
        const Name name = name_of(connector, s.addresses.peer, s.addresses.local, number);
        if (libc::real.connect(fd, reinterpret_cast<const sockaddr *>(&name.address), name.length) != 0)
            continue; // with the same socket
        if (is_of(fd, s.peer_user)) {
            let_rights_in(fd, true, strangers_calls());
            return fd;
        }
        let_go(std::exchange(fd, -1));
    }
    if (fd >= 0)
        libc::close_private(fd);
    return -1;
}

void offer_a_name(Stream &s, int fd)
{
    Peer own = {};
    if (!identify_own(fd, own))
        return try_later(s);
    const int socket = listen_for(own, s.addresses);
    if (socket < 0)
        return errno == EADDRINUSE ? stay_for_now(s, kNamesTaken) : try_later(s);
    if (const int error = give_link(&engine_objects().pep->fid, {socket, 0, s.index}); error != 0) {
        let_go_of_listener(socket);
        return error == -FI_EACCES ? stay_on_kernel(s, kLeftTooMuch) : try_later(s);
    }
    s.attempt.cookie = own.cookie;
    s.attempt.listens = true;
    try_later(s);
    begin_waiting(s, kMeetNs);
}

void go_to_the_name(Stream &s, int fd)
{
    const int socket = reach(s);
    try_later(s);
    if (socket < 0)
        return;
    const bool opened = open_endpoint(s, engine_objects().info, engine_device()) == 0;
    if (!opened || !stand_beside(s, fd)) {
        let_go(socket);
        if (opened)
            discard_endpoint(s);
    } else if (connect_over(s, {socket, 0, 0}, s.peer_cookie)) {
        begin_waiting(s, kMeetNs);
    }
}

} // namespace

bool find_peer(Stream &s, int fd)
{
    Peer peer = {};
    switch (ask_for_peer(s.addresses, peer)) {
    case PeerAnswer::kUnknown:
        return true;
    case PeerAnswer::kNotYet:
        return false;
    case PeerAnswer::kNotHere:
        s.by_broker = config::params().other_users && broker_is_there();
        s.guest = s.by_broker;
        s.remote = s.remote && !s.by_broker;
        tell_by_vmad(s, s.by_broker);
        return true;
    case PeerAnswer::kHere:
        break;
    }
    s.remote = false;
    s.guest = peer.user != ::geteuid();
    s.peer_user = peer.user;
    s.peer_cookie = peer.cookie;
    s.peer_inode = peer.inode;
    if (!s.guest)
        return true;
    tell_peer_user(s, peer.user);
    Peer own = {};
    if (!config::params().other_users)
        stay_on_kernel(s, "the peer is another user's (VMA_OTHER_USERS=0)");
    else if (identify_own(fd, own) && own.user != ::geteuid())
        stay_on_kernel(s, "the socket was made by another user than this process's, so no other can believe it");
    return true;
}

namespace {

// vmad answers in tick_attempts().
void ask_to_be_introduced(Stream &s, int fd)
{
    std::uint32_t &questions = g_connections.questions;
    const std::uint32_t id = ++questions != 0 ? questions : ++questions;
    try_later(s);
    s.attempt.is_whole = has_other_end(fd);
    if (!ask_broker(id, fd))
        return;
    s.attempt.asked = id;
    begin_waiting(s, kIntroduceNs);
}

// One number for all connections with a process, if vmad can tell it from others; its user's is the upper half.
std::uint64_t number_of(const broker::Answer &a)
{
    constexpr std::uint32_t kNoProcess = 0x80000000; // which no process has
    const auto process = static_cast<std::uint32_t>(a.process);
    return std::uint64_t{a.user} << 32 | (process != 0 ? process : static_cast<std::uint32_t>(a.pair) | kNoProcess);
}

// The other end asks by it, with descriptors; where nobody waits for that it is refused.
bool give_to_listener(const fi_vma_link &link)
{
    const bool given = give_link(&engine_objects().pep->fid, link) == 0;
    if (!given)
        let_go(link.socket);
    return given;
}

// Nobody waits any more for whom we are introduced to.
void turn_away(const BrokerAnswer &answer)
{
    if (answer.what.role == broker::Role::kConnector && answer.socket >= 0 && engine_objects().pep != nullptr)
        (void)give_to_listener({answer.socket, FI_VMA_LINK_INTRODUCED, number_of(answer.what)});
    else
        let_go(answer.socket);
}

void introduced(Stream &s, BrokerAnswer &answer)
{
    const broker::Answer &a = answer.what;
    s.peer_user = a.user;
    if (a.user != ::geteuid())
        tell_peer_user(s, a.user);
    claim_ring_for_guests(s);
    s.attempt.cookie = a.pair;
    s.attempt.listens = a.role == broker::Role::kConnector;
    const fi_vma_link link = {answer.socket, FI_VMA_LINK_INTRODUCED, number_of(a)};
    if (s.attempt.listens) {
        if (!give_to_listener(link))
            end_attempt(s);
    } else if (open_endpoint(s, engine_objects().info, engine_device()) != 0) {
        let_go(answer.socket);
        end_attempt(s);
    } else if (!connect_over(s, link, a.pair)) {
        end_attempt(s);
    }
}

void not_introduced(Stream &s, broker::Result result)
{
    end_attempt(s);
    switch (result) {
    case broker::Result::kRemote:
        if (!s.attempt.is_whole) // the other end may have been too late for vmad
            return;
        [[fallthrough]];
    case broker::Result::kNotTcp:
        s.by_broker = false;
        tell_by_vmad(s, false);
        s.guest = false;
        s.remote = !on_this_host(s.addresses);
        s.transport.store(s.remote ? &kRemoteRing : &kSharedRing, std::memory_order_relaxed);
        if (s.remote)
            may_reach_host(s);
        return;
    case broker::Result::kRefused:
        return stay_on_kernel(s, "vmad's rules keep the two processes apart");
    default:
        return; // it may be otherwise at the next try
    }
}

} // namespace

void hear_broker()
{
    BrokerAnswer answer;
    while (read_broker(answer)) {
        Stream *s = g_connections.attempts;
        while (s != nullptr && s->attempt.asked != answer.what.header.id)
            s = s->next_live;
        const bool waits =
            s != nullptr && s->endpoint == nullptr && s->mode.load(std::memory_order_acquire) == Mode::kKernelOnly;
        if (s != nullptr)
            s->attempt.asked = 0;
        if (waits && answer.what.result == broker::Result::kMet && answer.socket >= 0) {
            introduced(*s, answer);
            continue;
        }
        turn_away(answer);
        if (waits)
            not_introduced(*s, answer.what.result);
    }
}

void meet(Stream &s, int fd)
{
    if (too_many_left_open())
        return stay_on_kernel(s, kLeftTooMuch);
    if (s.attempt.open)
        return try_later(s);
    if (!has_place(s))
        return stay_for_now(s, kTooMany);
    forget_what_was_in_the_way(s);
    if (!engine_start())
        return refuse_without_engine(s);
    claim_ring_for_guests(s);
    if (s.by_broker)
        ask_to_be_introduced(s, fd);
    else if (s.role == Role::kConnector)
        offer_a_name(s, fd);
    else
        go_to_the_name(s, fd);
}

void end_meeting(Stream &s)
{
    if (s.attempt.asked != 0)
        cancel_question(std::exchange(s.attempt.asked, 0));
    const bool listens = std::exchange(s.attempt.listens, false);
    if (!listens || s.by_broker || engine_objects().pep == nullptr)
        return;
    const fi_vma_link link = {-1, 0, s.index};
    fi_setopt(&engine_objects().pep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_UNLINK), &link, sizeof link);
}

void tick_meeting(Stream &s)
{
    const bool was_asked = s.endpoint != nullptr;
    end_attempt(s);
    if (was_asked)
        discard_endpoint(s);
    char name[kNameMax];
    const char *const what = was_asked ? "does not answer" : "did not come: it may not have the library";
    if (s.by_broker)
        VMA_LOG(kDebug, "%s: vmad introduced nobody, or the peer %s", connection_name(s, name), what);
    else
        VMA_LOG(kDebug, "%s: the peer, of user %u, %s", connection_name(s, name), s.peer_user, what);
}

void meeting_succeeded(Stream &s)
{
    end_attempt(s);
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: the peer is user %u's%s", connection_name(s, name), s.peer_user,
            s.by_broker ? ", introduced by vmad" : "");
}

Stream *met_by(const void *data, std::size_t len)
{
    Hello hello;
    if (len != sizeof hello)
        return nullptr;
    memcpy(&hello, data, sizeof hello);
    if (hello.magic != kHelloMagic)
        return nullptr;
    for (Stream *s = g_connections.attempts; s != nullptr; s = s->next_live)
        if (s->attempt.listens && s->attempt.cookie == hello.cookie && s->endpoint == nullptr &&
            s->mode.load(std::memory_order_acquire) == Mode::kKernelOnly)
            return s;
    return nullptr;
}

} // namespace vma::sock
