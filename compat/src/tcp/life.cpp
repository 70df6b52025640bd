// SPDX-License-Identifier: BSD-2-Clause
// The life of a stream's socket outside its endpoint: made, connected, listening, accepted, closed, and what the log
// says of it then.
#include <netinet/in.h>

#include <cstdio>

#include "compat/src/base/addresses.hpp"
#include "compat/src/base/probes.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/offload/early.hpp"
#include "compat/src/offload/first_byte.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rules/rules.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/table/fd_table.hpp"
#include "compat/src/table/timeouts.hpp"
#include "compat/src/tcp/calls.hpp"

namespace vma::sock {

namespace {

// Bytes that arrived on the endpoint and were never read: TCP answers such a close with RST. Another process that holds
// the socket may read the last of them, and drop them, between two looks: whether there are any is asked again once
// nobody else can take them. What is set here would be that one's as well, and its end a reset behind all bytes.
void reset_if_unread(Stream &s, int fd)
{
    if (!offloaded(s) || !transport(s).spans || !has_input(s) ||
        s.lingers_until_ns.load(std::memory_order_relaxed) != 0 || !may_reset(s) || !has_input(s))
        return;
    const linger abort_now = {1, 0};
    libc::real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
}

bool listens(int fd)
{
    int on = 0;
    socklen_t size = sizeof on;
    return libc::real.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on != 0;
}

// Nothing to accelerate about itself.
void explain_listener(Stream &s)
{
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    char text[kAddressText];
    if (!listens(fd))
        return;
    read_addresses(fd, s.addresses);
    VMA_LOG(kDebug, "fd=%d listened on %s: the connections that it accepted have lines of their own", fd,
            print_address(s.addresses.local, text));
}

} // namespace

bool tcp::has_to_explain(Stream &s)
{
    if (s.role == Role::kUnknown) {
        explain_listener(s);
        return false;
    }
    if (!s.evaluated)
        read_addresses(s.any_fd.load(std::memory_order_relaxed), s.addresses);
    return true;
}

namespace {

// A burst that is over sooner than its port was found and opened, which takes some ms for the first connection.
void blame_port(Stream &s)
{
    if (s.evaluated && s.remote && !s.told && s.kernel_reason == nullptr && ports_are_named() &&
        !config::params().remote_streams)
        s.kernel_reason = "closed before its Ethernet port was open";
}

} // namespace

void tcp::end(Stream &s, int fd)
{
    blame_port(s);
    reset_if_unread(s, fd);
    if (s.evaluated)
        sock::stop_offloading(s);
    if (offloaded(s)) {
        start_leaving(s, Heir::kLibrary); // what the peer writes from now on is the kernel's to refuse
        reset_if_unread(s, fd);           // what it wrote since
    }
    if (transport(s).lingers && s.lingers_until_ns.load(std::memory_order_relaxed) == 0) {
        wait_returned(s, return_deadline()); // a device's writes die with the endpoint
        reset_if_unread(s, fd);
    }
    explain(s);
    if (s.evaluated)
        sock::fall_back(s, false);
    note_end_of_stream(s);
    leave_holders(s);
}

const char *tcp::print_name(const Stream &s, char (&out)[kNameMax])
{
    char local[kAddressText];
    char peer[kAddressText];
    std::snprintf(out, sizeof out, "fd=%d %s -> %s", s.any_fd.load(std::memory_order_relaxed),
                  print_address(s.addresses.local, local), print_address(s.addresses.peer, peer));
    return out;
}

namespace {

bool read_destination(const sockaddr *to, socklen_t length, sockaddr_in6 &out)
{
    const std::size_t least = to->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    return length >= least && to_v6(to, out);
}

bool rule_for_listener(int fd)
{
    sockaddr_in6 local = {};
    return read_address(fd, Side::kLocal, local) && rules::says_kernel(rules::Role::kTcpServer, local);
}

void follow_rules(Socket &s, int fd, const sockaddr_in6 &remote)
{
    if (s.kernel_reason == rules::kReason && !s.pinned) { // of an earlier try
        s.kernel_reason = nullptr;
        s.mode.store(Mode::kKernelOnly, std::memory_order_release);
    }
    sockaddr_in6 local = {};
    if (s.mode.load(std::memory_order_acquire) == Mode::kKernelOnly &&
        rules::says_kernel(rules::Role::kTcpClient, remote, read_address(fd, Side::kLocal, local) ? &local : nullptr))
        stay_on_kernel(s, rules::kReason);
}

} // namespace

namespace {

// In the kernel an accepted socket has what was set on the listener. True: only the kernel can follow it.
bool inherit_options(Stream &s, int fd, const Socket *listener)
{
    if (listener == nullptr) {
        read_timeouts(s, fd);
        read_inq(s, fd);
        return false;
    }
    inherit_timeouts(s, *listener);
    const Stream *const stream = stream_of(*listener);
    s.receive_extras = listener->receive_extras & kTellsInq;
    if (stream == nullptr || !stream->kernel_options)
        return false;
    stay_on_kernel(s, "an option of the socket that listened");
    return true;
}

} // namespace

// Those that are accepted follow the listener, who was asked for when it began to listen; or it was there before us.
void track_accepted(int listener, int fd, bool nonblocking)
{
    Socket *const s = track(fd, Role::kAcceptor, nonblocking);
    probe::connection(fd, probe::Made::kAccepted);
    if (s == nullptr)
        return;
    const Socket *const from = lookup(listener);
    if (rules::exist() && (from != nullptr ? from->kernel_reason == rules::kReason : rule_for_listener(listener)))
        return stay_on_kernel(*s, rules::kReason);
    if (inherit_options(as_stream(*s), fd, from))
        return;
    offer_at_accept(as_stream(*s), fd);
    open_early(as_stream(*s), fd);
}

void connecting(Socket &s, int fd, const sockaddr *to, socklen_t length)
{
    as_stream(s).role = Role::kConnector;
    sockaddr_in6 remote = {};
    if (to == nullptr || !read_destination(to, length, remote))
        return;
    if (rules::exist())
        follow_rules(s, fd, remote);
    attach_in_connect(as_stream(s), fd, remote.sin6_port);
    open_early(as_stream(s), fd, &remote);
}

void disconnected(Socket &socket)
{
    Stream &s = as_stream(socket);
    drop_rest(s);
    const LockGuard guard(s.rx_lock);
    s.pending_error.store(0, std::memory_order_relaxed);
    s.aborted.store(false, std::memory_order_relaxed);
    s.rx.kernel_owes.store(0, std::memory_order_relaxed);
    s.rx.kernel_bytes.store(0, std::memory_order_relaxed);
}

void listening(Socket &s, int fd)
{
    if (rules::exist() && rule_for_listener(fd))
        s.kernel_reason = rules::kReason;
    else
        begin_listening(fd);
}

} // namespace vma::sock
