// SPDX-License-Identifier: BSD-2-Clause
// Two threads see io_urings that can't be read. What the second one hands to its io_uring next may name any socket, so
// all are back on the kernel for it as well, though the first one is not done.
#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "compat/src/base/process_words.hpp"
#include "compat/src/table/uring.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "compat/test/udp/udp_socket.hpp"

using namespace vma;
using namespace vma::test;

namespace {

class Seer
{
public:
    explicit Seer(const sock::Socket &s)
        : thread_([this, &s] {
              tid_ = ::gettid();
              sock::ring_seen("a test");
              left_offloaded_ = sock::is_offloaded(s);
              over_ = true;
          })
    {
    }
    // For a lock that the test has, if it waits at all.
    void wait_until_it_sleeps() const
    {
        while (!over_ && !sleeps())
            ::sched_yield();
    }
    void expect_returned()
    {
        thread_.join();
        assert_false(left_offloaded_);
    }

private:
    bool sleeps() const
    {
        char name[64];
        char text[256] = {};
        std::snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid_.load());
        const int file = ::open(name, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            return false; // it has no number yet
        const ssize_t length = ::read(file, text, sizeof text - 1);
        ::close(file);
        const char *const end = length > 0 ? std::strrchr(text, ')') : nullptr;
        return end != nullptr && end[1] == ' ' && end[2] == 'S';
    }

    std::atomic<int> tid_{0};
    std::atomic<bool> over_{false};
    std::atomic<bool> left_offloaded_{true};
    std::thread thread_;
};

void expect_both_to_return(sock::Socket &s)
{
    assert_true(sock::is_offloaded(s));
    s.rx_lock.lock(); // which who gives it back needs
    Seer first(s);
    first.wait_until_it_sleeps();
    Seer second(s);
    second.wait_until_it_sleeps();
    s.rx_lock.unlock();
    second.expect_returned();
    first.expect_returned();
    sock::g_process.uring.in_use = false;
    sock::g_process.uring.returned = false;
}

void a_stream_is_back_for_both(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    expect_both_to_return(*pair.a.s);
    drain(pair);
}

void a_datagram_socket_is_back_for_both(void **)
{
    const UdpSocket to;
    const UdpSocket from;
    assert_true(accelerate(from, to));
    expect_both_to_return(*to.s);
}

// Afterwards it is a look at one word.
void the_next_one_looks_at_no_socket(void **)
{
    const Pair pair;
    sock::g_process.uring.in_use = true;
    sock::g_process.uring.returned = true;
    sock::ring_seen("a test");
    assert_true(pair.a.s->mode.load() == sock::Mode::kKernelOnly);
    sock::g_process.uring.in_use = false;
    sock::g_process.uring.returned = false;
}

// It may be the one that a thread sets up or closes now, so the next look is due again; but not for ever.
void what_is_found_meanwhile_is_no_answer(void **)
{
    constexpr int kMostUnclear = 16;
    io_uring_params made = {};
    const auto fd = static_cast<int>(::syscall(SYS_io_uring_setup, 4, &made));
    if (fd < 0)
        UNIT_SKIP("the kernel has no io_uring for us");
    sock::g_process.uring.first_looks = 100;
    assert_false(sock::meets_ring()); // none is due
    sock::g_process.uring.first_looks = 0;
    {
        const sock::RingComesOrGoes comes;
        for (int i = 0; i < kMostUnclear; ++i)
            assert_false(sock::meets_ring());
        assert_true(sock::meets_ring());
    }
    assert_true(sock::meets_ring());
    ::close(fd);
    assert_false(sock::meets_ring());
}

} // namespace

int main()
{
    const Library library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_back_for_both),
        cmocka_unit_test(a_datagram_socket_is_back_for_both),
        cmocka_unit_test(the_next_one_looks_at_no_socket),
        cmocka_unit_test(what_is_found_meanwhile_is_no_answer),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
