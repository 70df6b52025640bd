// SPDX-License-Identifier: BSD-2-Clause
// What a stream does besides between hosts (doc/between-hosts.md), told to two sockets of this process that the local
// device joins: the words that order two networks, closing, the reset when bytes may be lost, and loans of what has
// arrived.
#include "fabtests/unit.hpp"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/loans.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

void random_traffic_stays_whole(void **)
{
    Pair pair(true);
    random_traffic(pair);
}

void spills_and_returns_stay_whole(void **)
{
    Pair pair(true);
    spills_and_returns(pair);
}

// All that was sent before is read.
struct Offloaded : Pair {
    Offloaded() : Pair(true)
    {
        assert_true(offload(*this));
        drain(*this);
    }
};

void close_end(End &end)
{
    sock::forget(end.fd);
    ::close(end.fd);
    end.fd = -1;
}

void expect_receive(End &end, ssize_t result, int error)
{
    char byte;
    assert_int_equal(sock::receive(*end.s, end.fd, &byte, 1, 0), result);
    if (result < 0)
        assert_int_equal(errno, error);
}

// Of `from`, and it has arrived when this returns.
void send_and_arrive(End &from, const End &to, std::size_t len)
{
    const std::uint64_t before = to.s->rx.written.load();
    send_some(from, len);
    while (to.s->rx.written.load() < before + len)
        sock::engine_poll();
}

void receive_all(End &to, const End &from)
{
    while (to.received < from.sent)
        receive_some(to, from, 4096, 0);
}

void closed_peer_gives_all_bytes_then_eof(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 5000);
    close_end(pair.a);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, 0, 0);
}

void half_close_lets_the_other_half_live(void **)
{
    Offloaded pair;
    assert_int_equal(sock::shut_down(*pair.a.s, pair.a.fd, SHUT_WR), 0);
    expect_receive(pair.b, 0, 0);
    send_and_arrive(pair.b, pair.a, 3000);
    receive_all(pair.a, pair.b);
    close_end(pair.b);
    expect_receive(pair.a, 0, 0);
}

// As of a process that was killed: its last bytes may have been lost.
void end_without_a_word_is_a_reset(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 2000);
    ::shutdown(pair.a.fd, SHUT_WR);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, -1, ECONNRESET);
}

void fail_endpoint(End &end)
{
    const sock::LockGuard guard(sock::g_offload.lock);
    sock::on_down(end.s->endpoint, "a test");
}

void failed_device_resets_both_after_what_arrived(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 2000);
    fail_endpoint(pair.b);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, -1, ECONNRESET);
    expect_receive(pair.a, -1, ECONNRESET);
}

// All is said in both directions: nothing can be missing.
void failed_device_after_both_finals_does_no_harm(void **)
{
    Offloaded pair;
    send_and_arrive(pair.a, pair.b, 2000);
    for (End *end : {&pair.a, &pair.b})
        assert_int_equal(sock::shut_down(*end->s, end->fd, SHUT_WR), 0);
    for (End *end : {&pair.a, &pair.b})
        while (!end->s->rx.final_seen.load())
            sock::engine_poll();
    fail_endpoint(pair.a);
    fail_endpoint(pair.b);
    receive_all(pair.b, pair.a);
    expect_receive(pair.b, 0, 0);
    expect_receive(pair.a, 0, 0);
}

// The kernel may be faster than the START that was sent before.
void kernel_waits_until_start_is_seen(void **)
{
    Offloaded pair;
    sock::Sender &tx = pair.a.s->tx;
    pair.a.s->tx_lock.lock();
    tx.unseen.store(1); // as if the last START had no answer yet
    sock::end_transmit(*pair.a.s, false);
    pair.a.s->tx_lock.unlock();
    char byte = 0;
    assert_int_equal(sock::send(*pair.a.s, pair.a.fd, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    pair.b.s->rx_lock.lock();
    sock::kRemoteRing.start_came(*pair.b.s);
    pair.b.s->rx_lock.unlock();
    while (tx.unseen.load() != 0)
        sock::engine_poll();
    send_some(pair.a, 100);
    drain(pair);
}

// ---- loans of the ring, which is the peer's to write

struct Held {
    sock::Loan loan;
    std::uint64_t position;
};

class Holder
{
public:
    Holder(End &to, const End &from) : to_(to), from_(from) {}
    ~Holder() { give_all_back(); }

    // By a loan where that can be, else by a copy. False: there is nothing.
    bool take(std::size_t most)
    {
        const std::uint64_t before = to_.received;
        sock::Loan loan;
        sock::engine_poll();
        {
            const sock::LockGuard guard(to_.s->rx_lock);
            sock::settle(*to_.s);
            loan = sock::lend(*to_.s, most);
        }
        if (loan.lender == nullptr) {
            receive_some(to_, from_, most, 0);
            return to_.received != before;
        }
        held.push_back({loan, before});
        check(held.back());
        to_.received += loan.length();
        ++lent;
        return true;
    }
    void check(const Held &one) const
    {
        for (std::size_t i = 0; i < one.loan.length(); ++i)
            if (one.loan.data()[i] != byte_at(one.position + i, from_.key))
                UNIT_FAIL("a lent byte has changed");
    }
    void give_back(std::size_t place)
    {
        check(held[place]);
        held[place].loan.end();
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
    }
    void give_all_back()
    {
        while (!held.empty())
            give_back(held.size() / 2);
    }

    std::vector<Held> held;
    unsigned lent = 0;

private:
    End &to_;
    const End &from_;
};

void receive_rest(Holder &holder, const End &to, const End &from)
{
    const std::int64_t until = sock::now_ns() + 20'000'000'000;
    while (to.received < from.sent && sock::now_ns() < until)
        if (!holder.take(65536))
            sched_yield();
    assert_int_equal(to.received, from.sent);
}

void loans_end_in_any_order(void **)
{
    Offloaded pair;
    std::mt19937_64 random(seed());
    Holder holder(pair.b, pair.a);
    for (int step = 0; step < 5000; ++step) {
        send_some(pair.a, random_length(random));
        for (int i = 0; i < 3; ++i)
            holder.take(random_length(random));
        while (holder.held.size() > random() % 8)
            holder.give_back(random() % holder.held.size());
    }
    receive_rest(holder, pair.b, pair.a);
    assert_true(holder.lent > 100);
}

void another_thread_ends_loans(void **)
{
    Offloaded pair;
    Holder holder(pair.b, pair.a);
    std::vector<Held> out;
    sock::Mutex lock;
    std::atomic<bool> over{false};
    std::thread giver([&] {
        while (!over.load()) {
            std::vector<Held> mine;
            {
                const sock::LockGuard guard(lock);
                mine.swap(out);
            }
            for (; !mine.empty(); mine.pop_back()) {
                holder.check(mine.back());
                mine.back().loan.end();
            }
            sched_yield();
        }
    });
    const std::int64_t until = sock::now_ns() + 20'000'000'000;
    while (holder.lent < 1000 && sock::now_ns() < until) {
        send_some(pair.a, 3000);
        while (holder.take(2000)) {
        }
        sched_yield();
        const sock::LockGuard guard(lock);
        out.insert(out.end(), holder.held.begin(), holder.held.end());
        holder.held.clear();
    }
    receive_rest(holder, pair.b, pair.a);
    over.store(true);
    giver.join();
    holder.held.insert(holder.held.end(), out.begin(), out.end());
    assert_true(holder.lent >= 1000);
}

// The connection goes back to the kernel, or is reset, and what is held stays.
void loans_outlive_the_endpoint(void **)
{
    for (const bool fails : {false, true}) {
        Offloaded pair;
        Holder holder(pair.b, pair.a);
        for (int i = 0; i < 4; ++i) {
            send_and_arrive(pair.a, pair.b, 3000);
            assert_true(holder.take(3000));
        }
        assert_int_equal(holder.held.size(), 4);
        if (fails)
            fail_endpoint(pair.b);
        else
            sock::return_one(*pair.b.s, sock::Heir::kAnybody);
        const std::int64_t until = sock::now_ns() + 20'000'000'000;
        while (sock::is_offloaded(*pair.b.s) && sock::now_ns() < until) { // the helper thread closes what has failed
            char byte;
            sock::receive(*pair.b.s, pair.b.fd, &byte, 1, MSG_DONTWAIT);
            sched_yield();
        }
        assert_false(sock::is_offloaded(*pair.b.s));
        for (const Held &one : holder.held)
            holder.check(one);
        holder.give_back(2);
        if (!fails) {
            send_some(pair.a, 1000);
            receive_rest(holder, pair.b, pair.a);
        } else {
            close_end(pair.b);
        }
        holder.give_all_back();
    }
}

// Half of the ring at most is lent, and who keeps it all gets the rest by the kernel.
void who_never_gives_back_gets_the_rest(void **)
{
    constexpr std::uint64_t kBytes = 1000000;
    Offloaded pair;
    Holder holder(pair.b, pair.a);
    const std::uint64_t end = pair.a.sent + kBytes;
    std::thread sender([&pair, end] { // one that waits for room
        std::vector<std::uint8_t> bytes(5000);
        for (End &a = pair.a; a.sent != end; a.sent += bytes.size()) {
            for (std::size_t i = 0; i < bytes.size(); ++i)
                bytes[i] = byte_at(a.sent + i, a.key);
            if (sock::send(*a.s, a.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
                UNIT_FAIL("not sent");
        }
    });
    const std::int64_t until = sock::now_ns() + 20'000'000'000;
    while (pair.b.received < end && sock::now_ns() < until)
        if (!holder.take(5000))
            sched_yield();
    assert_int_equal(pair.b.received, end);
    sender.join();
    std::size_t bytes = 0;
    for (const Held &one : holder.held)
        bytes += one.loan.length();
    assert_true(bytes > 0 && bytes <= 65536 / 2 && holder.held.size() <= sock::StreamLoans::kMost);
    for (const Held &one : holder.held)
        holder.check(one);
}

// Two threads whose calls were counted at the same time come one after the other.
void a_connection_is_attempted_once_at_a_time(void **)
{
    Pair pair(true);
    sock::Socket &s = *pair.a.s;
    const sock::LockGuard guard(sock::g_offload.lock);
    sock::begin_attempt(s);
    assert_true(s.attempt.open);
    sock::begin_attempt(s);
    assert_ptr_not_equal(s.next_live, &s); // else the helper would walk it for ever
    sock::end_attempt(s);
    assert_false(sock::attempts_are_open());
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(random_traffic_stays_whole),
        cmocka_unit_test(spills_and_returns_stay_whole),
        cmocka_unit_test(closed_peer_gives_all_bytes_then_eof),
        cmocka_unit_test(half_close_lets_the_other_half_live),
        cmocka_unit_test(end_without_a_word_is_a_reset),
        cmocka_unit_test(failed_device_resets_both_after_what_arrived),
        cmocka_unit_test(failed_device_after_both_finals_does_no_harm),
        cmocka_unit_test(kernel_waits_until_start_is_seen),
        cmocka_unit_test(loans_end_in_any_order),
        cmocka_unit_test(another_thread_ends_loans),
        cmocka_unit_test(loans_outlive_the_endpoint),
        cmocka_unit_test(who_never_gives_back_gets_the_rest),
        cmocka_unit_test(a_connection_is_attempted_once_at_a_time),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
