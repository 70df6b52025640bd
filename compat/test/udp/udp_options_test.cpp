// SPDX-License-Identifier: BSD-2-Clause
// setsockopt() on UDP sockets, before and while they are accelerated: each number of each level is followed as by the
// kernel's socket, or leaves the socket to the kernel; time-outs at their edges.
#include "compat/test/udp/udp_socket.hpp"

#include <linux/net_tstamp.h>
#include <netinet/udp.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "compat/src/base/option_numbers.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr int kLevels[] = {SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP};
constexpr int kLastNumber = 200;
constexpr int kSome = 4; // of the first datagrams of a socket some go by the kernel

enum class When { kBefore, kAfter }; // it is accelerated
constexpr When kWhens[] = {When::kBefore, When::kAfter};

bool is_on_kernel(const UdpSocket &socket)
{
    return socket.s->mode.load() == sock::Mode::kKernel;
}

// What a receive tells besides the bytes.
struct Told {
    ssize_t n = 0;
    int flags = 0;
    socklen_t name = 0;
    std::vector<std::pair<int, int>> controls; // level and type
    bool operator==(const Told &other) const
    {
        return n == other.n && flags == other.flags && name == other.name && controls == other.controls;
    }
};

template <typename Receive> Told receive_told(const Receive &receive)
{
    Datagram datagram;
    sockaddr_in6 name = {};
    alignas(cmsghdr) char control[512];
    iovec part = {&datagram, sizeof datagram};
    msghdr message = {};
    message.msg_name = &name;
    message.msg_namelen = sizeof name;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    Told told;
    told.n = receive(message);
    told.flags = message.msg_flags;
    told.name = message.msg_namelen;
    for (cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c))
        told.controls.emplace_back(c->cmsg_level, c->cmsg_type);
    std::sort(told.controls.begin(), told.controls.end());
    return told;
}

// Past the library, though it knows them.
Told receive_by_kernel(const UdpSocket &from, const UdpSocket &to, const Datagram &datagram)
{
    ::sendto(from.fd, &datagram, datagram.length(), 0, reinterpret_cast<const sockaddr *>(&to.address),
             sizeof to.address);
    return receive_told([&](msghdr &message) { return ::recvmsg(to.fd, &message, 0); });
}

Told receive_by_library(const UdpSocket &from, const UdpSocket &to, const Datagram &datagram)
{
    assert_int_equal(from.send(datagram, to.address), datagram.length());
    return receive_told([&](msghdr &message) { return sock::receive_msg(*to.s, to.fd, &message, 0); });
}

int value_of(int level, int number)
{
    constexpr int kFast = 1 << 30;
    const bool socket = level == SOL_SOCKET;
    if (socket && (number == SO_TIMESTAMPING || number == option::kTimestampingNew))
        return SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    return socket && number == SO_MAX_PACING_RATE ? kFast : 1;
}

// Linux 6.18's that the library follows, or that only say how the socket itself sends.
bool may_stay_accelerated(int level, int number)
{
    static constexpr int kSocket[] = {2,  4,  5,  6,  7,  8,  9,  11, 12, 13, 15, 20, 21, 29,
                                      32, 33, 35, 36, 37, 40, 46, 47, 49, 60, 61, 66, 67};
    static constexpr int kIp[] = {1, 2, 4, 8, 10, 11, 12, 13, 14, 15, 24, 50};
    const auto has = [number](const auto &list) {
        return std::find(std::begin(list), std::end(list), number) != std::end(list);
    };
    const bool is_of_groups = number >= IP_MULTICAST_IF && number <= IP_MULTICAST_ALL;
    return (level == SOL_SOCKET && has(kSocket)) || (level == IPPROTO_IP && (has(kIp) || is_of_groups)) ||
           (level == IPPROTO_UDP && (number == UDP_CORK || number == UDP_SEGMENT));
}

void expect_option_followed(int level, int number, When when)
{
    const int value = value_of(level, number);
    Datagram datagram;
    datagram.fill(3, 1);
    const UdpSocket plain_from;
    UdpSocket plain;
    const UdpSocket from;
    UdpSocket to;
    if (when == When::kAfter)
        assert_true(accelerate(from, to));
    errno = 0;
    const int kernel = ::setsockopt(plain.fd, level, number, &value, sizeof value);
    const int error = errno;
    errno = 0;
    const int ours = to.set(level, number, value);
    const bool is_same = ours == kernel && (ours == 0 || errno == error);
    if (is_same && level != IPPROTO_IPV6 && !is_on_kernel(to) != may_stay_accelerated(level, number)) {
        print_error("level %d, option %d: %s\n", level, number, is_on_kernel(to) ? "on the kernel" : "accelerated");
        UNIT_FAIL("it is on the wrong list");
    }
    for (int i = 0; is_same && i < kSome && !is_on_kernel(to); ++i) {
        const Told kernels = receive_by_kernel(plain_from, plain, datagram);
        const Told told = receive_by_library(from, to, datagram);
        if (!(told == kernels)) {
            print_error(
                "level %d, option %d, datagram %d: %zd (%#x) with %zu control messages, of the kernel %zd (%#x) "
                "with %zu\n",
                level, number, i, told.n, static_cast<unsigned>(told.flags), told.controls.size(), kernels.n,
                static_cast<unsigned>(kernels.flags), kernels.controls.size());
            UNIT_FAIL("a receive differs from the kernel's");
        }
    }
    if (!is_same)
        print_error("level %d, option %d: %d, of the kernel %d (%d)\n", level, number, ours, kernel, error);
    assert_true(is_same);
}

void numbers_before(void **)
{
    for (const int level : kLevels)
        for (int number = 0; number <= kLastNumber; ++number)
            expect_option_followed(level, number, When::kBefore);
}

void numbers_after(void **)
{
    for (const int level : kLevels)
        for (int number = 0; number <= kLastNumber; ++number)
            expect_option_followed(level, number, When::kAfter);
}

void a_negative_time_ends_a_receive_at_once(void **)
{
    const std::int64_t negative[] = {-1, 0};
    const std::int64_t wrong[] = {-1, 1'000'000};
    for (const When when : kWhens)
        for (const int name : {option::kReceiveTimeoutOld, option::kReceiveTimeoutNew}) {
            if (name == option::kReceiveTimeoutOld && sizeof(long) != sizeof(std::int64_t))
                continue; // it has other fields here
            const UdpSocket from;
            UdpSocket to;
            Datagram datagram;
            if (when == When::kAfter)
                assert_true(accelerate(from, to));
            assert_int_equal(to.set(SOL_SOCKET, name, wrong), -1);
            assert_int_equal(errno, EDOM);
            assert_true(to.s->receive_timeout_us.load() > 0);
            if (when == When::kBefore)
                assert_true(accelerate(from, to));
            assert_int_equal(to.set(SOL_SOCKET, name, negative), 0);
            assert_false(sock::may_wait_for_input(*to.s, 0));
            assert_int_equal(to.receive(datagram), -1);
            assert_int_equal(errno, EAGAIN);
            assert_true(to.takes_by_endpoint());
        }
}

// The kernel begins to take the time some moments after the first socket wants to know it, for all sockets.
void wait_for_stamps(const UdpSocket &socket)
{
    const int how = value_of(SOL_SOCKET, SO_TIMESTAMPING);
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    ::setsockopt(socket.fd, SOL_SOCKET, SO_TIMESTAMPING, &how, sizeof how);
    Datagram datagram;
    datagram.fill(3, 0);
    while (receive_by_kernel(socket, socket, datagram).controls.empty() && sock::now_ns() < until) {
    }
}

} // namespace

int main()
{
    const Library library;
    config::g_params.allow_privileged_sock_opt = false; // the kernel's refusals are told
    const UdpSocket stamped;
    wait_for_stamps(stamped);
    static const CMUnitTest tests[] = {
        cmocka_unit_test(numbers_before),
        cmocka_unit_test(numbers_after),
        cmocka_unit_test(a_negative_time_ends_a_receive_at_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
