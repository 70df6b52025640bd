// SPDX-License-Identifier: BSD-2-Clause
// Loans of what has arrived in a stream's ring, which is the peer's to write: given back in any order, by any thread,
// after the endpoint, or never; and the capture, which shows them. Two sockets of this process that the local device
// joins act as if between hosts.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/stats/capture.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/loans.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

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
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
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
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
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
        const std::int64_t until = sock::now_ns() + patience::nanoseconds();
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
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
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

// ---- the capture (doc/capture.md)

// The ring of this process, whose listener is the test itself.
class Capture
{
public:
    Capture()
    {
        stats::CaptureWords words = {};
        words.number = 1;
        words.ring_size = 64U << 20; // more than is written
        words.most = stats::kMostPayload;
        stats::answer_capture(words);
        assert_int_equal(words.error, 0);
        file_ = ::open(("/proc/self/fd/" + std::to_string(words.fd)).c_str(), O_RDWR | O_CLOEXEC);
        struct flock lock = {};
        lock.l_type = F_WRLCK;
        assert_int_equal(::fcntl(file_, F_OFD_SETLK, &lock), 0);
    }
    ~Capture()
    {
        stats::end_capture();
        ::close(file_);
    }
    Capture(const Capture &) = delete;
    Capture &operator=(const Capture &) = delete;

    // Each record that is there, in order.
    template <typename Look> void look(Look look) const
    {
        const auto *at = reinterpret_cast<const std::uint8_t *>(stats::g_capture.mapped) + stats::kCaptureStart;
        assert_int_equal(stats::g_capture.mapped->dropped, 0);
        for (;;) {
            const auto *const record = reinterpret_cast<const stats::CaptureRecord *>(at);
            if (record->size == 0)
                return;
            look(*record, at + sizeof *record);
            at += record->size;
        }
    }

private:
    int file_ = -1;
};

// One direction at one end: what it has shown so far.
struct Shown {
    std::uint16_t port = 0; // of the end
    bool out = false;
    std::uint64_t key = 0; // of the bytes
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

void take(Shown &one, const stats::CaptureRecord &record, const std::uint8_t *bytes)
{
    if (record.local_port != one.port || ((record.flags & stats::kCaptureOut) != 0) != one.out)
        return;
    if (one.end == 0)
        one.begin = one.end = record.before;
    assert_int_equal(record.before, one.end);
    assert_int_equal(record.copied, record.length);
    for (std::uint32_t i = 0; i < record.length; ++i)
        if (bytes[i] != byte_at(record.before + i, one.key))
            UNIT_FAIL("a captured byte differs");
    one.end += record.length;
}

// All that goes by the remote ring, at both ends: what is sent, copied out, and lent.
void a_capture_shows_all_bytes(void **)
{
    Pair pair(true);
    const Capture capture;
    assert_true(offload(pair));
    std::mt19937_64 random(seed());
    Holder holder(pair.b, pair.a);
    for (int step = 0; step < 1000; ++step) {
        send_some(pair.a, random_length(random));
        send_some(pair.b, random_length(random));
        receive_some(pair.a, pair.b, random_length(random), step % 4 == 0 ? MSG_PEEK : 0);
        if (step % 2 == 0)
            holder.take(random_length(random));
        else
            receive_some(pair.b, pair.a, random_length(random), 0);
        if (step % 8 == 0)
            holder.give_all_back();
    }
    holder.give_all_back();
    drain(pair);
    assert_true(holder.lent > 100);
    std::vector<Shown> all;
    for (const End *end : {&pair.a, &pair.b}) {
        const End &other = end == &pair.a ? pair.b : pair.a;
        const std::uint16_t port = sock::record_of(*end->s).facts.local_port;
        all.push_back({port, true, end->key});
        all.push_back({port, false, other.key});
    }
    capture.look([&all](const stats::CaptureRecord &record, const std::uint8_t *bytes) {
        for (Shown &one : all)
            take(one, record, bytes);
    });
    assert_int_equal(all[0].end, pair.a.sent);
    assert_int_equal(all[1].end, pair.a.received);
    assert_int_equal(all[2].end, pair.b.sent);
    assert_int_equal(all[3].end, pair.b.received);
    for (const Shown &one : all)
        assert_true(one.end - one.begin > 100000);
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(loans_end_in_any_order),     cmocka_unit_test(another_thread_ends_loans),
        cmocka_unit_test(loans_outlive_the_endpoint), cmocka_unit_test(who_never_gives_back_gets_the_rest),
        cmocka_unit_test(a_capture_shows_all_bytes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
