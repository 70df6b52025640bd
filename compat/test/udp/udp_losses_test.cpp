// SPDX-License-Identifier: BSD-2-Clause
// What SO_RXQ_OVFL tells (socket(7)) never goes back while the socket is the same: whichever way the datagrams come by,
// whenever the library asks the kernel for its count, before and after the socket is accelerated.
#include "compat/test/udp/udp_socket.hpp"

#include <linux/sock_diag.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "compat/src/udp/losses.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// ---- the count itself

void older_counts_change_nothing(void **)
{
    sock::udp::Losses losses;
    losses.add(2);
    losses.learn(7); // SO_MEMINFO
    losses.learn(3); // a datagram that was queued before that
    assert_int_equal(losses.all(), 9);
    assert_int_equal(losses.beside(3), 9);
    assert_int_equal(losses.beside(0), 9);
    assert_int_equal(losses.beside(8), 10);
    assert_int_equal(losses.all(), 9); // beside() has learnt nothing
    losses.learn(8);
    losses.add(1);
    assert_int_equal(losses.all(), 11);
    assert_int_equal(losses.ours(), 3);
    losses.clear();
    assert_int_equal(losses.all(), 0);
}

void counts_that_go_round(void **)
{
    sock::udp::Losses losses;
    losses.learn(0xffff'fff0); // the first: later than none
    assert_int_equal(losses.all(), 0xffff'fff0U);
    losses.learn(5);
    assert_int_equal(losses.all(), 5);
    losses.learn(0xffff'fff8);
    assert_int_equal(losses.all(), 5);
    losses.learn(0); // nobody's count goes back to none
    assert_int_equal(losses.all(), 5);
}

// ---- a socket that tells

constexpr std::uint32_t kPlain = 9; // a sender without the library

class Teller
{
public:
    Teller() : plain_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0))
    {
        const int on = 1;
        assert_int_equal(to.set(SOL_SOCKET, SO_RXQ_OVFL, on), 0);
        assert_int_equal(to.set(SOL_SOCKET, SO_RCVBUF, 1), 0); // a few of the kernel's, and the rest is lost
    }
    ~Teller() { ::close(plain_); }
    Teller(const Teller &) = delete;
    Teller &operator=(const Teller &) = delete;

    void send_by_kernel() const
    {
        Datagram datagram;
        datagram.fill(kPlain, 0);
        assert_int_equal(::sendto(plain_, &datagram, datagram.length(), 0,
                                  reinterpret_cast<const sockaddr *>(&to.address), sizeof to.address),
                         datagram.length());
    }
    std::uint32_t kernels_drops() const
    {
        std::uint32_t info[SK_MEMINFO_VARS] = {};
        socklen_t size = sizeof info;
        assert_int_equal(::getsockopt(to.fd, SOL_SOCKET, SO_MEMINFO, info, &size), 0);
        return info[SK_MEMINFO_DROPS];
    }
    // Until its queue is full and so many more were lost.
    void overrun(std::uint32_t count = 3) const
    {
        const std::uint32_t before = kernels_drops();
        const std::int64_t until = sock::now_ns() + patience::nanoseconds();
        while (kernels_drops() - before < count) {
            send_by_kernel();
            assert_true(sock::now_ns() < until);
        }
    }
    void read_one_past_the_library() const
    {
        char byte = 0;
        assert_int_equal(::recv(to.fd, &byte, 1, MSG_DONTWAIT), 1);
    }
    // All that is there, whichever way; each tells as much as the one before at least. How many there were.
    std::uint32_t read_all(bool at_once = false)
    {
        std::uint32_t count = 0;
        while (receive(at_once))
            ++count;
        return count;
    }
    bool receive(bool at_once = false)
    {
        Datagram datagram;
        alignas(cmsghdr) std::uint8_t control[CMSG_SPACE(sizeof(std::uint32_t))];
        iovec part = {&datagram, sizeof datagram};
        mmsghdr message = {};
        message.msg_hdr.msg_iov = &part;
        message.msg_hdr.msg_iovlen = 1;
        message.msg_hdr.msg_control = control;
        message.msg_hdr.msg_controllen = sizeof control;
        sock::udp::state_of(*to.s).kernel_look = 0; // so it looks at the kernel
        const bool got = at_once ? sock::receive_messages(*to.s, to.fd, &message, 1, MSG_DONTWAIT, nullptr) == 1
                                 : sock::receive_msg(*to.s, to.fd, &message.msg_hdr, MSG_DONTWAIT) >= 0;
        if (got)
            note(message.msg_hdr);
        return got;
    }

    // Those of one recvmmsg(). How many there were.
    std::uint32_t receive_several()
    {
        constexpr unsigned kMost = 16;
        struct Place {
            Datagram datagram;
            alignas(cmsghdr) std::uint8_t control[CMSG_SPACE(sizeof(std::uint32_t))];
        } places[kMost];
        iovec parts[kMost];
        mmsghdr messages[kMost] = {};
        for (unsigned i = 0; i < kMost; ++i) {
            parts[i] = {&places[i].datagram, sizeof places[i].datagram};
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
            messages[i].msg_hdr.msg_control = places[i].control;
            messages[i].msg_hdr.msg_controllen = sizeof places[i].control;
        }
        const int got = sock::receive_messages(*to.s, to.fd, messages, kMost, MSG_DONTWAIT, nullptr);
        for (int i = 0; i < got; ++i)
            note(messages[i].msg_hdr);
        return static_cast<std::uint32_t>(std::max(got, 0));
    }

    UdpSocket from;
    UdpSocket to;
    std::uint32_t told = 0;

private:
    void note(const msghdr &msg)
    {
        std::uint32_t now = 0; // no message: nothing is lost
        const cmsghdr *const head = CMSG_FIRSTHDR(&msg);
        assert_int_equal(msg.msg_flags & MSG_CTRUNC, 0);
        if (head != nullptr) {
            assert_int_equal(head->cmsg_type, SO_RXQ_OVFL);
            std::memcpy(&now, CMSG_DATA(head), sizeof now);
        }
        if (now < told)
            UNIT_FAIL("SO_RXQ_OVFL went back");
        told = now;
    }

    int plain_;
};

std::function<void()> g_before_count; // runs once, as the library asks the kernel for its count

int get_option_for_library(int fd, int level, int name, void *value, socklen_t *length) noexcept
{
    if (level == SOL_SOCKET && name == SO_MEMINFO && g_before_count)
        std::exchange(g_before_count, nullptr)();
    return ::getsockopt(fd, level, name, value, length);
}

// The fault that a test of traffic met once in 30 runs: between the look that found nothing and the question, datagrams
// came, some of which were lost.
void datagrams_that_come_before_the_question(void **)
{
    Teller teller;
    assert_true(accelerate(teller.from, teller.to));
    teller.send_by_kernel();
    assert_true(teller.receive());
    g_before_count = [&] {
        teller.overrun();
        teller.read_one_past_the_library();
        teller.send_by_kernel(); // is queued with the count of now
        teller.overrun();
    };
    assert_false(teller.receive());
    assert_true(g_before_count == nullptr);
    assert_true(teller.from.send_number(1, 1, teller.to.address));
    assert_in_range(teller.read_all(), 2, 1000);
    assert_int_equal(teller.told, teller.kernels_drops());
}

// A program that was told by the kernel, before its socket is accelerated.
void what_the_kernel_told_before(void **)
{
    Teller teller;
    teller.overrun();
    teller.read_one_past_the_library();
    teller.send_by_kernel();
    assert_in_range(teller.read_all(), 1, 1000);
    const std::uint32_t by_kernel = teller.told;
    assert_in_range(by_kernel, 3, 1000);
    assert_true(accelerate(teller.from, teller.to));
    assert_true(teller.from.send_number(1, 1, teller.to.address));
    assert_true(teller.receive());
    assert_int_equal(teller.told, by_kernel);
    sock::udp::state_of(*teller.to.s).losses.add(1);
    assert_true(teller.from.send_number(1, 2, teller.to.address));
    assert_true(teller.receive());
    assert_int_equal(teller.told, by_kernel + 1);
}

// And one that was told by both, when the kernel alone serves it again: by recvmsg() and recvmmsg().
void what_was_lost_in_a_better_time(void **)
{
    for (const bool at_once : {false, true}) {
        Teller teller;
        assert_true(accelerate(teller.from, teller.to));
        sock::udp::state_of(*teller.to.s).losses.add(5);
        assert_true(teller.from.send_number(1, 1, teller.to.address));
        assert_true(teller.receive(at_once));
        assert_int_equal(teller.told, 5);
        sock::fall_back(*teller.to.s, true);
        assert_false(sock::is_offloaded(*teller.to.s));
        teller.send_by_kernel();
        assert_true(teller.receive(at_once));
        assert_int_equal(teller.told, 5);
        teller.overrun();
        teller.read_one_past_the_library();
        teller.send_by_kernel();
        assert_in_range(teller.read_all(at_once), 1, 1000);
        assert_int_equal(teller.told, 5 + teller.kernels_drops());
    }
}

// All of one call's messages, also where the program wants to be told only since the kernel alone serves the socket:
// nobody has told the library that it does.
void one_call_for_several_messages(void **)
{
    Teller teller;
    const int off = 0;
    const int on = 1;
    assert_int_equal(teller.to.set(SOL_SOCKET, SO_RXQ_OVFL, off), 0);
    assert_true(accelerate(teller.from, teller.to));
    sock::udp::State &u = sock::udp::state_of(*teller.to.s);
    teller.send_by_kernel();
    assert_true(teller.receive());
    assert_true(u.kernel_brings);
    u.losses.add(5);
    sock::fall_back(*teller.to.s, true);
    assert_false(sock::is_offloaded(*teller.to.s));
    u.arrival_tick = sock::udp::current_tick() - sock::udp::kMixedTicks; // as a second later
    assert_int_equal(teller.to.set(SOL_SOCKET, SO_RXQ_OVFL, on), 0);
    teller.overrun();
    teller.read_one_past_the_library();
    teller.read_one_past_the_library();
    teller.send_by_kernel(); // with a count of the kernel's
    teller.send_by_kernel();
    const std::uint32_t there = teller.receive_several();
    assert_in_range(there, 2, 1000);
    assert_int_equal(teller.told, 5 + teller.kernels_drops());
}

} // namespace

int main()
{
    const Library library;
    libc::real.getsockopt = get_option_for_library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(older_counts_change_nothing),
        cmocka_unit_test(counts_that_go_round),
        cmocka_unit_test(datagrams_that_come_before_the_question),
        cmocka_unit_test(what_the_kernel_told_before),
        cmocka_unit_test(what_was_lost_in_a_better_time),
        cmocka_unit_test(one_call_for_several_messages),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
