// SPDX-License-Identifier: BSD-2-Clause
// What is known of a stream on an Ethernet port while a call on it is under way: another thread that looks then, and is
// told "not yet", is not told again unless an entry comes. Over an endpoint that tells at the edge, as the provider's
// does, and calls back in each call.
#include "fabtests/unit.hpp"

#include <poll.h>
#include <sched.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "compat/src/libc/real.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/port.hpp"

using namespace vma;

namespace {

// Calls back before and after what a call does.
struct Hooks {
    void (*before)() = nullptr;
    void (*after)() = nullptr;
};

struct Port {
    fid_ep endpoint = {};
    sock::Stream socket;
    std::size_t bytes = 0; // to read
    std::size_t room = 0;
    bool read_told = false;
    bool write_told = true;
    std::size_t read_entries = 0; // in the queue
    std::size_t write_entries = 0;
    unsigned calls = 0;
    Hooks hooks;
};
Port *g_port = nullptr;
bool g_looks_ready = false; // of all looks

template <typename Do> auto call(Do what)
{
    Port &p = *g_port;
    ++p.calls;
    if (p.hooks.before != nullptr)
        p.hooks.before();
    const auto result = what(p);
    if (p.hooks.after != nullptr)
        p.hooks.after();
    return result;
}

ssize_t take(std::size_t len, bool peek)
{
    return call([=](Port &p) {
        const std::size_t n = std::min(len, p.bytes);
        p.read_told = false;
        if (n == 0)
            return ssize_t{-EAGAIN};
        p.bytes -= peek ? 0 : n;
        return static_cast<ssize_t>(n);
    });
}

ssize_t receive(fid_ep *, void *, std::size_t len, void *, fi_addr_t, void *)
{
    return take(len, false);
}

ssize_t receive_message(fid_ep *, const fi_msg *message, std::uint64_t flags)
{
    return take(message->msg_iov->iov_len, (flags & FI_PEEK) != 0);
}

ssize_t send_message(fid_ep *, const fi_msg *message, std::uint64_t)
{
    return call([=](Port &p) {
        const std::size_t len = message->msg_iov->iov_len;
        const std::size_t n = std::min(len, p.room);
        p.room -= n;
        if (n != len)
            p.write_told = false;
        return n == 0 ? ssize_t{-EAGAIN} : static_cast<ssize_t>(n);
    });
}

int lend(fid_t, int, int, void *value, std::size_t *)
{
    static fi_vma_lender lender = {};
    fi_vma_loan loan;
    std::memcpy(&loan, value, sizeof loan);
    const ssize_t n = take(loan.length, false);
    if (n < 0)
        return static_cast<int>(n);
    loan = {&lender, nullptr, static_cast<std::size_t>(n), g_port->bytes};
    std::memcpy(value, &loan, sizeof loan);
    return 0;
}

void bytes_come(std::size_t n)
{
    g_port->bytes += n;
    g_port->read_entries += std::exchange(g_port->read_told, true) ? 0 : 1;
}

void room_comes(std::size_t n)
{
    g_port->room += n;
    g_port->write_entries += std::exchange(g_port->write_told, true) ? 0 : 1;
}

void entry(std::uint64_t flag)
{
    fi_cq_data_entry entry = {};
    entry.flags = flag;
    entry.len = 1;
    sock::handle_port_entry(g_port->socket, entry);
}

// What another thread does that polls.
void poll()
{
    for (; g_port->read_entries != 0; --g_port->read_entries)
        entry(FI_RECV);
    for (; g_port->write_entries != 0; --g_port->write_entries)
        entry(FI_SEND);
}

bool readable()
{
    return (sock::ready_events_fast(g_port->socket, POLLIN) & POLLIN) != 0;
}

bool writable()
{
    return (sock::ready_events_fast(g_port->socket, POLLOUT) & POLLOUT) != 0;
}

// What another thread does that wants to read, or to send.
void look_for_bytes()
{
    g_looks_ready = g_looks_ready && readable();
}

void look_for_room()
{
    g_looks_ready = g_looks_ready && writable();
}

ssize_t read_some(std::size_t len)
{
    char bytes[64];
    assert_true(len <= sizeof bytes);
    iovec part = {bytes, len};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return sock::transport(g_port->socket).receive(g_port->socket, -1, &message, 0, 0);
}

ssize_t send_some(std::size_t len)
{
    static char bytes[64] = {};
    assert_true(len <= sizeof bytes);
    iovec part = {bytes, len};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return sock::transport(g_port->socket).send(g_port->socket, -1, &message, 0, 0);
}

int open_port(void **)
{
    static fi_ops_ep ops = {};
    static fi_ops_msg messages = {};
    ops.size = sizeof ops;
    ops.getopt = lend;
    messages.size = sizeof messages;
    messages.recv = receive;
    messages.recvmsg = receive_message;
    messages.sendmsg = send_message;
    Port &p = *(g_port = new Port);
    p.endpoint.fid.fclass = FI_CLASS_EP;
    p.endpoint.ops = &ops;
    p.endpoint.msg = &messages;
    p.socket.endpoint = &p.endpoint;
    p.socket.transport = &sock::kPort;
    p.socket.tx.path = sock::Path::kEndpoint;
    p.socket.rx.path = sock::Path::kEndpoint;
    p.socket.mode = sock::Mode::kOffloaded;
    g_looks_ready = true;
    return 0;
}

int close_port(void **)
{
    delete std::exchange(g_port, nullptr);
    return 0;
}

// ---- reading

void told_of_what_comes(void **)
{
    assert_false(readable());
    bytes_come(1);
    poll();
    assert_true(readable());
    assert_true(sock::transport(g_port->socket).confirm_input(g_port->socket));
    assert_int_equal(read_some(1), 1);
    assert_false(readable());
    bytes_come(3);
    poll();
    assert_int_equal(read_some(8), 3); // less than there was room for: that was all
    assert_false(readable());
    assert_int_equal(read_some(8), -EAGAIN);
    bytes_come(1);
    assert_false(readable());
    poll();
    assert_true(readable());
}

// Of two threads that look at the same bytes none finds nothing.
void looked_at_by_two(void **)
{
    bytes_come(1);
    poll();
    g_port->hooks = {look_for_bytes, look_for_bytes};
    assert_true(sock::transport(g_port->socket).confirm_input(g_port->socket));
    assert_int_equal(g_port->calls, 1);
    assert_true(g_looks_ready);
    assert_true(readable());
}

// What a call leaves is there while it reads.
void some_are_left(void **)
{
    bytes_come(3);
    poll();
    g_port->hooks = {look_for_bytes, look_for_bytes};
    assert_int_equal(read_some(1), 1);
    assert_true(g_looks_ready);
    assert_true(readable());
    const sock::Loan loan = sock::lend(g_port->socket, 1);
    assert_int_equal(loan.length(), 1);
    assert_true(g_looks_ready);
    assert_true(readable());
    g_port->hooks = {};
    assert_int_equal(sock::lend(g_port->socket, 1).length(), 1);
    assert_false(readable());
    assert_int_equal(sock::lend(g_port->socket, 1).length(), 0);
    assert_false(readable());
}

void bytes_come_and_are_told()
{
    g_port->hooks = {};
    bytes_come(1);
    poll();
}

// They come when a call has found none, and is not out yet.
void come_behind_a_call(void **)
{
    g_port->hooks.after = bytes_come_and_are_told;
    assert_int_equal(read_some(1), -EAGAIN);
    assert_true(readable());
    assert_int_equal(read_some(1), 1);
    g_port->hooks.after = bytes_come_and_are_told;
    assert_false(sock::transport(g_port->socket).confirm_input(g_port->socket));
    assert_true(readable());
    assert_int_equal(read_some(1), 1);
    bytes_come(1);
    poll();
    g_port->hooks.after = bytes_come_and_are_told; // one is read, then another one comes
    assert_int_equal(read_some(8), 1);
    assert_true(readable());
}

// An entry may be read after its bytes were.
void late_entry(void **)
{
    bytes_come(1);
    assert_int_equal(read_some(1), 1);
    assert_false(readable());
    poll();
    assert_true(readable());
    assert_false(sock::transport(g_port->socket).confirm_input(g_port->socket));
    assert_false(readable());
    bytes_come(1);
    poll();
    assert_true(readable());
}

// A call finds bytes of which no entry has been read.
void early_call(void **)
{
    bytes_come(2);
    assert_int_equal(read_some(1), 1);
    assert_true(readable());
    poll();
    assert_int_equal(read_some(1), 1);
    assert_false(readable());
}

// Nothing that is noted of a port's bytes is taken for the end of a span, of which a port has none: the next bytes come
// by the port, too.
void no_end_of_a_span(void **)
{
    bytes_come(3);
    assert_int_equal(sock::lend(g_port->socket, 1).length(), 1); // before an entry was read
    sock::settle(g_port->socket);
    assert_true(g_port->socket.rx.path == sock::Path::kEndpoint);
    assert_true(readable());
    assert_int_equal(read_some(8), 2);
    sock::settle(g_port->socket);
    assert_true(g_port->socket.rx.path == sock::Path::kEndpoint);
    poll();
    bytes_come(1);
    poll();
    assert_true(readable());
}

// ---- sending

void told_of_room(void **)
{
    assert_true(writable());
    assert_int_equal(send_some(1), -EAGAIN);
    assert_false(writable());
    room_comes(2);
    assert_false(writable());
    poll();
    assert_true(writable());
    assert_int_equal(send_some(3), 2); // and was refused the rest
    assert_false(writable());
    room_comes(2);
    poll();
    assert_int_equal(send_some(2), 2);
    assert_true(writable());
}

void room_comes_and_is_told()
{
    g_port->hooks = {look_for_room, look_for_room};
    room_comes(8);
    poll();
}

// Room comes when a call was refused, and is not out yet: the rest goes at once, and all the while there is room.
void room_behind_a_refusal(void **)
{
    for (const std::size_t before : {0U, 3U}) {
        g_port->room = before;
        g_port->hooks = {nullptr, room_comes_and_is_told};
        g_looks_ready = true;
        assert_int_equal(send_some(8), 8);
        assert_true(g_looks_ready);
        assert_true(writable());
    }
    assert_int_equal(g_port->calls, 4);
}

// However many entries are read late.
void many_refusals(void **)
{
    for (int i = 0; i < 100; ++i) {
        assert_int_equal(send_some(1), -EAGAIN);
        room_comes(1);
        assert_int_equal(send_some(1), 1); // who asks again finds it first
    }
    assert_int_equal(g_port->write_entries, 100);
    poll();
    assert_true(writable());
    assert_int_equal(send_some(1), -EAGAIN);
    assert_false(writable());
}

// ---- who waits

void spin_until(const std::atomic<int> &value, int wanted)
{
    for (unsigned turn = 1; value.load(std::memory_order_acquire) != wanted; ++turn)
        if (turn % 1024 == 0)
            sched_yield(); // the other one may need this processor
}

// Whoever watches sees what is true already, or hears of it: two stores, and two looks behind them. (Before there was a
// fence in notify() some of a million rounds had neither.)
void watched_or_seen(void **)
{
    static constexpr int kRounds = 200'000;
    static std::atomic<int> round{0};
    static std::atomic<int> told{0};
    static std::atomic<bool> heard{false};
    std::thread teller([] {
        for (int i = 1; i <= kRounds; ++i) {
            spin_until(round, i);
            g_port->socket.rx.written.store(static_cast<std::uint64_t>(i), std::memory_order_release);
            sock::notify(g_port->socket, POLLIN);
            told.store(i, std::memory_order_release);
        }
    });
    sock::Watcher watcher = {};
    watcher.notify = [](sock::Watcher *, std::uint32_t) { heard = true; };
    int lost = 0;
    for (int i = 1; i <= kRounds; ++i) {
        heard = false;
        round.store(i, std::memory_order_release);
        for (int pause = i % 29; pause > 0; --pause)
            sock::cpu_relax();
        sock::watch(g_port->socket, watcher);
        const bool seen = g_port->socket.rx.written.load(std::memory_order_acquire) == static_cast<std::uint64_t>(i);
        spin_until(told, i);
        lost += seen || heard ? 0 : 1;
        sock::unwatch(watcher);
    }
    teller.join();
    assert_int_equal(lost, 0);
}

} // namespace

int main()
{
    libc::resolve_real();
#define ON_PORT(test) cmocka_unit_test_setup_teardown(test, open_port, close_port)
    static const CMUnitTest tests[] = {
        ON_PORT(told_of_what_comes), ON_PORT(looked_at_by_two), ON_PORT(some_are_left),
        ON_PORT(come_behind_a_call), ON_PORT(late_entry),       ON_PORT(early_call),
        ON_PORT(no_end_of_a_span),   ON_PORT(told_of_room),     ON_PORT(room_behind_a_refusal),
        ON_PORT(many_refusals),      ON_PORT(watched_or_seen),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
