// SPDX-License-Identifier: BSD-2-Clause
// Each entry of the tables that is traced has a function here that logs, and calls what the table had.
#include "compat/src/process/call_trace.hpp"

#include <errno.h>
#include <string.h>

#include "compat/src/base/error_text.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/protocol.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

// What is traced of a protocol's table.
struct ByteCalls {
    decltype(Protocol::send) send;
    decltype(Protocol::send_to) send_to;
    decltype(Protocol::send_msg) send_msg;
    decltype(Protocol::send_file) send_file;
    decltype(Protocol::receive) receive;
    decltype(Protocol::receive_from) receive_from;
    decltype(Protocol::receive_msg) receive_msg;
};

// Written when the first level asks for it, before the tables are; they stay as they were found.
struct Traced {
    bool known = false;
    ByteCalls streams = {};
    ByteCalls datagrams = {};
    mux::WaitCalls waits = {};
};
constinit Traced g_traced;

const ByteCalls &plain(const Socket &s)
{
    return protocol(s).messages ? g_traced.datagrams : g_traced.streams;
}

// At fine. `call` stays where it is named by its kind: write() is a send().
template <typename Result> Result told(const char *call, Result result)
{
    if (result < 0)
        VMA_LOG(kFunc, "EXIT: %s() failed (errno=%d %s)", call, errno, ErrorText().text());
    else
        VMA_LOG(kFunc, "EXIT: %s() returned with %lld", call, static_cast<long long>(result));
    return result;
}

std::uint64_t by_kernel(const Socket &s, bool sends)
{
    const stats::Counters &now = record_of(s).now;
    return stats::get(sends ? now.tx.os_packets : now.rx.os_packets);
}

// At finer. Which way they went the counters tell; another thread's call at the same time may mislead it.
void tell_bytes(const Socket &s, int fd, bool sends, ssize_t n, std::uint64_t kernel_before)
{
    if (n < 0 || !config::log_enabled(config::Level::kFuncAll))
        return;
    const char *const what = sends ? "Tx" : "Rx";
    const char *const kind = protocol(s).name;
    if (by_kernel(s, sends) != kernel_before || !offloaded(s))
        VMA_LOG(kFuncAll, "fd=%d: %s %zd bytes of %s by the kernel", fd, what, n, kind);
    else if (protocol(s).way(s) == stats::Way::kLocal)
        VMA_LOG(kFuncAll, "fd=%d: %s %zd bytes of %s by shared memory", fd, what, n, kind);
    else
        VMA_LOG(kFuncAll, "fd=%d: %s %zd bytes of %s by %s", fd, what, n, kind, protocol(s).device_name(s));
}

template <typename Call> ssize_t carry(const char *name, Socket &s, int fd, bool sends, Call call)
{
    const std::uint64_t before = by_kernel(s, sends);
    const ssize_t n = call(plain(s));
    tell_bytes(s, fd, sends, n, before);
    return told(name, n);
}

ssize_t traced_send(Socket &s, int fd, const void *buf, std::size_t len, int flags)
{
    VMA_LOG(kFunc, "ENTER: send(fd=%d, nbytes=%zu, flags=%#x)", fd, len, static_cast<unsigned>(flags));
    return carry("send", s, fd, true, [&](const ByteCalls &calls) { return calls.send(s, fd, buf, len, flags); });
}

ssize_t traced_send_to(Socket &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to,
                       socklen_t to_len)
{
    VMA_LOG(kFunc, "ENTER: sendto(fd=%d, nbytes=%zu, flags=%#x)", fd, len, static_cast<unsigned>(flags));
    return carry("sendto", s, fd, true,
                 [&](const ByteCalls &calls) { return calls.send_to(s, fd, buf, len, flags, to, to_len); });
}

ssize_t traced_send_msg(Socket &s, int fd, const msghdr *msg, int flags)
{
    VMA_LOG(kFunc, "ENTER: sendmsg(fd=%d, flags=%#x)", fd, static_cast<unsigned>(flags));
    return carry("sendmsg", s, fd, true, [&](const ByteCalls &calls) { return calls.send_msg(s, fd, msg, flags); });
}

ssize_t traced_send_file(Socket &s, int fd, int in_fd, off64_t *offset, std::size_t count)
{
    VMA_LOG(kFunc, "ENTER: sendfile(fd=%d, in_fd=%d, count=%zu)", fd, in_fd, count);
    return carry("sendfile", s, fd, true,
                 [&](const ByteCalls &calls) { return calls.send_file(s, fd, in_fd, offset, count); });
}

ssize_t traced_receive(Socket &s, int fd, void *buf, std::size_t len, int flags)
{
    VMA_LOG(kFunc, "ENTER: recv(fd=%d, nbytes=%zu, flags=%#x)", fd, len, static_cast<unsigned>(flags));
    return carry("recv", s, fd, false, [&](const ByteCalls &calls) { return calls.receive(s, fd, buf, len, flags); });
}

ssize_t traced_receive_from(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from,
                            socklen_t *from_len)
{
    VMA_LOG(kFunc, "ENTER: recvfrom(fd=%d, nbytes=%zu, flags=%#x)", fd, len, static_cast<unsigned>(flags));
    return carry("recvfrom", s, fd, false,
                 [&](const ByteCalls &calls) { return calls.receive_from(s, fd, buf, len, flags, from, from_len); });
}

ssize_t traced_receive_msg(Socket &s, int fd, msghdr *msg, int flags)
{
    VMA_LOG(kFunc, "ENTER: recvmsg(fd=%d, flags=%#x)", fd, static_cast<unsigned>(flags));
    return carry("recvmsg", s, fd, false, [&](const ByteCalls &calls) { return calls.receive_msg(s, fd, msg, flags); });
}

constexpr ByteCalls kTracedBytes = {traced_send,    traced_send_to,      traced_send_msg,   traced_send_file,
                                    traced_receive, traced_receive_from, traced_receive_msg};

// ---- waits

// nullptr is for ever.
long milliseconds_of(const timespec *timeout)
{
    return timeout != nullptr ? timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000 : -1;
}

int traced_poll(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask)
{
    VMA_LOG(kFunc, "ENTER: poll(nfds=%lu, timeout=(%ld milli-sec))", static_cast<unsigned long>(count),
            milliseconds_of(timeout));
    return told("poll", g_traced.waits.poll(fds, count, timeout, mask));
}

int traced_select(int nfds, fd_set *in, fd_set *out, fd_set *err, const timespec *timeout, const sigset_t *mask,
                  timespec *left)
{
    VMA_LOG(kFunc, "ENTER: select(nfds=%d, timeout=(%ld milli-sec))", nfds, milliseconds_of(timeout));
    return told("select", g_traced.waits.select(nfds, in, out, err, timeout, mask, left));
}

int traced_epoll_wait(int epfd, epoll_event *events, int max, const timespec *timeout, const sigset_t *mask)
{
    VMA_LOG(kFunc, "ENTER: epoll_wait(epfd=%d, maxevents=%d, timeout=(%ld milli-sec))", epfd, max,
            milliseconds_of(timeout));
    return told("epoll_wait", g_traced.waits.epoll_wait(epfd, events, max, timeout, mask));
}

int traced_epoll_wait_ms(int epfd, epoll_event *events, int max, int milliseconds, const sigset_t *mask)
{
    VMA_LOG(kFunc, "ENTER: epoll_wait(epfd=%d, maxevents=%d, timeout=(%d milli-sec))", epfd, max, milliseconds);
    return told("epoll_wait", g_traced.waits.epoll_wait_ms(epfd, events, max, milliseconds, mask));
}

// ---- the tables

// Who calls meanwhile sees the old function or the new one: a pointer is written whole.
template <typename Function> void put(Function &entry, Function function)
{
    __atomic_store_n(&entry, function, __ATOMIC_RELAXED);
}

ByteCalls calls_of(const Protocol &table)
{
    return {table.send,    table.send_to,      table.send_msg,   table.send_file,
            table.receive, table.receive_from, table.receive_msg};
}

void put(Protocol &table, const ByteCalls &calls)
{
    put(table.send, calls.send);
    put(table.send_to, calls.send_to);
    put(table.send_msg, calls.send_msg);
    put(table.send_file, calls.send_file);
    put(table.receive, calls.receive);
    put(table.receive_from, calls.receive_from);
    put(table.receive_msg, calls.receive_msg);
}

void put(const mux::WaitCalls &calls)
{
    put(mux::g_wait_calls.poll, calls.poll);
    put(mux::g_wait_calls.select, calls.select);
    put(mux::g_wait_calls.epoll_wait, calls.epoll_wait);
    put(mux::g_wait_calls.epoll_wait_ms, calls.epoll_wait_ms);
}

void note_tables()
{
    if (g_traced.known)
        return;
    g_traced.streams = calls_of(storage::streams);
    g_traced.datagrams = calls_of(storage::datagrams);
    g_traced.waits = mux::g_wait_calls;
    g_traced.known = true;
}

} // namespace

[[VMA_AT_STARTUP]] void trace_calls(int level)
{
    const bool wanted = level >= static_cast<int>(config::Level::kFunc);
    if (!wanted && !g_traced.known)
        return;
    note_tables();
    put(storage::streams, wanted ? kTracedBytes : g_traced.streams);
    put(storage::datagrams, wanted ? kTracedBytes : g_traced.datagrams);
    put(wanted ? mux::WaitCalls{traced_poll, traced_select, traced_epoll_wait, traced_epoll_wait_ms} : g_traced.waits);
}

} // namespace vma::sock
