// SPDX-License-Identifier: BSD-2-Clause
// setsockopt() on accelerated streams, before they are and while they are: each number of each level is followed as by
// the kernel's socket, or brings the stream back to the kernel; time-outs at their edges; what an accepted socket has
// of its listener.
#include "compat/test/tcp/stream_pair.hpp"

#include <linux/filter.h>
#include <poll.h>

#include <algorithm>
#include <iterator>

#include "compat/src/base/option_numbers.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr int kLevels[] = {SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP};
constexpr int kLastNumber = 200;

enum class When { kBefore, kAfter }; // it is accelerated
constexpr When kWhens[] = {When::kBefore, When::kAfter};

template <typename Value> int set(const End &end, int level, int name, const Value &value)
{
    errno = 0;
    return sock::set_option(*end.s, end.fd, level, name, &value, sizeof value);
}

// A connection of the same family that the library has never seen.
struct Plain {
    int a;
    int b;

    explicit Plain(int family)
    {
        const Listener listener(family);
        a = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(::connect(a, listener.name(), listener.length), 0);
        b = ::accept(listener.fd, nullptr, nullptr);
        ::close(listener.fd);
    }
    ~Plain()
    {
        ::close(a);
        ::close(b);
    }
    Plain(const Plain &) = delete;
    Plain &operator=(const Plain &) = delete;
};

// What Linux 6.18 has that changes nothing that a program sees of a connection within a host, or that the library does
// itself.
bool may_stay_accelerated(int level, int number)
{
    static constexpr int kSocket[] = {1,  2,  5,  6,  7,  8,  9,  11, 12, 13, 14, 15, 16, 19, 20, 21, 25, 27, 32, 33,
                                      34, 36, 40, 44, 45, 46, 47, 49, 51, 52, 53, 62, 66, 67, 68, 69, 70, 72, 73, 74};
    static constexpr int kTcp[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 12, 13, 16,
                                   17, 18, 23, 25, 27, 30, 33, 34, 36, 44, 45, 46};
    static constexpr int kIp[] = {1, 2, 8, 10, 11, 12, 13, 15, 19, 24, 32, 33, 34, 49, 51};
    static constexpr int kIpv6[] = {16, 17, 18, 19, 23, 24, 25, 26, 67, 70, 72, 75, 78};
    const auto has = [number](const auto &list) {
        return std::find(std::begin(list), std::end(list), number) != std::end(list);
    };
    return (level == SOL_SOCKET && has(kSocket)) || (level == IPPROTO_TCP && has(kTcp)) ||
           (level == IPPROTO_IP && has(kIp)) || (level == IPPROTO_IPV6 && has(kIpv6));
}

bool is_on_kernel(const End &end)
{
    return end.s->mode.load() == sock::Mode::kKernel;
}

// Of a receive with room for more bytes, and for control messages.
struct Told {
    ssize_t n = 0;
    int flags = 0;
    std::vector<int> types; // level and type of each control message
    bool operator==(const Told &other) const { return n == other.n && flags == other.flags && types == other.types; }
};

template <typename Receive> Told receive_told(const Receive &receive)
{
    char bytes[64];
    alignas(cmsghdr) char control[256];
    iovec part = {bytes, sizeof bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    Told told;
    told.n = receive(message);
    told.flags = message.msg_flags;
    for (const cmsghdr *c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, const_cast<cmsghdr *>(c)))
        told.types.insert(told.types.end(), {c->cmsg_level, c->cmsg_type});
    return told;
}

// The program's end gets ten bytes, on the kernel's connection and on ours.
void expect_same_receives(Pair &pair, const Plain &plain)
{
    constexpr std::size_t kBytes = 10;
    send_and_arrive(pair.b, pair.a, kBytes);
    assert_int_equal(::send(plain.b, "0123456789", kBytes, MSG_NOSIGNAL), kBytes);
    pollfd p = {plain.a, POLLIN, 0};
    assert_int_equal(::poll(&p, 1, patience::milliseconds()), 1);
    assert_int_equal(sock::ready_events(*pair.a.s, pair.a.fd, POLLIN), POLLIN);
    const Told kernel = receive_told([&](msghdr &message) { return ::recvmsg(plain.a, &message, MSG_DONTWAIT); });
    const Told ours =
        receive_told([&](msghdr &message) { return sock::receive_msg(*pair.a.s, pair.a.fd, &message, MSG_DONTWAIT); });
    assert_int_equal(ours.n, kBytes);
    assert_true(ours == kernel);
}

int family_of(int level)
{
    return level == IPPROTO_IPV6 ? AF_INET6 : AF_INET;
}

// On, and a rate that lets the bytes of the test go.
int value_of(int level, int number)
{
    constexpr int kFast = 1 << 30;
    return level == SOL_SOCKET && number == SO_MAX_PACING_RATE ? kFast : 1;
}

void expect_option_followed(int level, int number, When when)
{
    const int on = value_of(level, number);
    const Plain plain(family_of(level));
    Pair pair(false, family_of(level));
    if (when == When::kAfter)
        assert_true(offload(pair));
    if (when == When::kAfter)
        drain(pair);
    errno = 0;
    const int kernel = ::setsockopt(plain.a, level, number, &on, sizeof on);
    const int error = errno;
    const int ours = set(pair.a, level, number, on);
    if (ours != kernel || (ours != 0 && errno != error) ||
        is_on_kernel(pair.a) == may_stay_accelerated(level, number)) {
        print_error("level %d, option %d: %d (errno %d), of the kernel %d (%d); %s\n", level, number, ours, errno,
                    kernel, error, is_on_kernel(pair.a) ? "on the kernel" : "not on the kernel");
        UNIT_FAIL("it is not as the kernel, or on the wrong list");
    }
    if (is_on_kernel(pair.a))
        return;
    assert_true(offload(pair));
    drain(pair);
    expect_same_receives(pair, plain);
}

void need_ipv6()
{
    const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    const bool is_there = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
    ::close(fd);
    if (!is_there)
        UNIT_SKIP("this host has no IPv6");
}

void each_number(When when, bool v6)
{
    if (v6)
        need_ipv6();
    for (const int level : kLevels)
        for (int number = 0; number <= kLastNumber && (family_of(level) == AF_INET6) == v6; ++number)
            expect_option_followed(level, number, when);
}

void numbers_before(void **)
{
    each_number(When::kBefore, false);
}

void numbers_after(void **)
{
    each_number(When::kAfter, false);
}

void numbers_of_ipv6(void **)
{
    for (const When when : kWhens)
        each_number(when, true);
}

// ---- options whose value is no number

void a_filter_drops_what_comes_later(void **)
{
    sock_filter none[] = {{BPF_RET | BPF_K, 0, 0, 0}};
    const sock_fprog program = {1, none};
    for (const When when : kWhens) {
        Pair pair;
        if (when == When::kAfter)
            assert_true(offload(pair));
        drain(pair);
        if (when == When::kAfter)
            send_and_arrive(pair.b, pair.a, 5);
        const int result = set(pair.a, SOL_SOCKET, SO_ATTACH_FILTER, program);
        if (result != 0 && errno == EPERM)
            UNIT_SKIP("no right to set a socket filter");
        assert_int_equal(result, 0);
        receive_all(pair.a, pair.b); // which the filter has not seen
        use(pair);
        use(pair);
        assert_true(is_on_kernel(pair.a));
        assert_int_not_equal(pair.a.received, pair.b.sent);
        expect_receive(pair.b, 1, 0);
        assert_int_equal(set(pair.a, SOL_SOCKET, SO_DETACH_FILTER, 0), 0);
    }
}

// The bytes that are there count for the mark.
void low_water_above_what_is_there(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    send_and_arrive(pair.b, pair.a, 5);
    assert_int_equal(set(pair.a, SOL_SOCKET, SO_RCVLOWAT, 10), 0);
    assert_true(is_on_kernel(pair.a));
    pollfd p = {pair.a.fd, POLLIN, 0};
    assert_int_equal(::poll(&p, 1, 0), 0);
    send_some(pair.b, 5);
    assert_int_equal(::poll(&p, 1, patience::milliseconds()), 1);
    drain(pair);
}

// ---- TCP_INQ

struct Inq {
    ssize_t n;
    int left; // -1: not told
    int flags;
};

Inq receive_inq(const End &end, std::size_t room, bool with_control = true)
{
    std::vector<char> bytes(room);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part = {bytes.data(), room};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = with_control ? control : nullptr;
    message.msg_controllen = with_control ? sizeof control : 0;
    Inq inq = {sock::receive_msg(*end.s, end.fd, &message, MSG_DONTWAIT), -1, message.msg_flags};
    const cmsghdr *const c = CMSG_FIRSTHDR(&message);
    if (inq.n < 0 || c == nullptr)
        return inq;
    assert_int_equal(c->cmsg_level, IPPROTO_TCP);
    assert_int_equal(c->cmsg_type, option::kTcpInq);
    assert_int_equal(c->cmsg_len, CMSG_LEN(sizeof inq.left));
    memcpy(&inq.left, CMSG_DATA(c), sizeof inq.left);
    return inq;
}

void expect_inq(End &end, std::size_t room, ssize_t n, int left)
{
    const Inq inq = receive_inq(end, room);
    assert_int_equal(inq.n, n);
    assert_int_equal(inq.left, left);
    assert_int_equal(inq.flags & MSG_CTRUNC, 0);
    end.received += static_cast<std::uint64_t>(n);
}

void what_is_left_is_told(void **)
{
    for (const When when : kWhens) {
        Pair pair;
        if (when == When::kAfter)
            assert_true(offload(pair));
        assert_int_equal(set(pair.a, IPPROTO_TCP, option::kTcpInq, 1), 0);
        assert_true(offload(pair));
        drain(pair);
        send_and_arrive(pair.b, pair.a, 100);
        expect_inq(pair.a, 30, 30, 70);
        const Inq untold = receive_inq(pair.a, 10, false);
        assert_int_equal(untold.left, -1);
        assert_true((untold.flags & MSG_CTRUNC) != 0);
        pair.a.received += 10;
        expect_inq(pair.a, 100, 60, 0);
        send_and_arrive(pair.b, pair.a, 20);
        sock::return_one(*pair.b.s, sock::Heir::kLibrary);
        send_some(pair.b, 20); // by the kernel
        int there = 0;
        while (sock::bytes_readable(*pair.a.s, pair.a.fd, &there) == 0 && there < 40)
            sched_yield();
        expect_inq(pair.a, 10, 10, 30);
        expect_inq(pair.a, 30, 30, 0);
        ::shutdown(pair.b.fd, SHUT_WR);
        pollfd p = {pair.a.fd, POLLIN, 0};
        assert_int_equal(::poll(&p, 1, patience::milliseconds()), 1);
        expect_inq(pair.a, 30, 0, 1);
        assert_int_equal(set(pair.a, IPPROTO_TCP, option::kTcpInq, 0), 0);
        assert_int_equal(receive_inq(pair.a, 30).left, -1);
    }
}

void what_is_left_of_a_ring_is_told(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    assert_int_equal(set(pair.a, IPPROTO_TCP, option::kTcpInq, 1), 0);
    send_and_arrive(pair.b, pair.a, 50);
    sock::return_one(*pair.a.s, sock::Heir::kLibrary); // as at a fork
    expect_inq(pair.a, 20, 20, 30);
    expect_inq(pair.a, 30, 30, 0);
}

// ---- time-outs

struct Edge {
    std::int64_t seconds;
    std::int64_t microseconds;
    int error;
    std::int64_t us; // -1 for ever
};
constexpr std::int64_t kMillion = 1'000'000;
constexpr Edge kEdges[] = {
    {0, 0, 0, -1},
    {0, 1, 0, 1},
    {0, kMillion - 1, 0, kMillion - 1},
    {0, kMillion, EDOM, 0},
    {0, -1, EDOM, 0},
    {-1, 0, 0, 0},
    {-1, kMillion - 1, 0, 0},
    {-1, kMillion, EDOM, 0},
    {-1, -1, EDOM, 0},
    {INT64_MIN, 0, 0, 0},
    {INT32_MAX, 0, 0, INT32_MAX *kMillion},
    {INT32_MAX + INT64_C(1), 5, 0, (INT32_MAX + INT64_C(1)) * kMillion + 5},
    {INT64_C(1) << 40, 0, 0, -1},
    {INT64_MAX / kMillion, 0, 0, -1},
    {INT64_MAX, kMillion - 1, 0, -1},
};

void expect_timeout(Pair &pair, int name, const Edge &edge, std::int64_t &before)
{
    const std::int64_t value[] = {edge.seconds, edge.microseconds};
    const bool receives = name == option::kReceiveTimeoutOld || name == option::kReceiveTimeoutNew;
    assert_int_equal(set(pair.a, SOL_SOCKET, name, value), edge.error != 0 ? -1 : 0);
    if (edge.error != 0)
        assert_int_equal(errno, edge.error);
    else
        before = edge.us;
    const std::int64_t noted = receives ? pair.a.s->receive_timeout_us : pair.a.s->send_timeout_us;
    assert_int_equal(noted, before);
    const bool waits = receives ? sock::may_wait_for_input(*pair.a.s, 0) : sock::may_wait_for_room(*pair.a.s, 0);
    assert_int_equal(waits, before != 0);
    assert_true(sock::begin_wait(*pair.a.s, noted).deadline_ns >= (edge.seconds > 0 ? sock::now_ns() : 0));
    assert_false(is_on_kernel(pair.a));
}

void time_outs_at_the_edges(void **)
{
    for (const When when : kWhens) {
        Pair pair;
        if (when == When::kAfter)
            assert_true(offload(pair));
        for (const int name : {option::kReceiveTimeoutOld, option::kReceiveTimeoutNew, option::kSendTimeoutOld,
                               option::kSendTimeoutNew}) {
            const bool is_old = name == option::kReceiveTimeoutOld || name == option::kSendTimeoutOld;
            if (is_old && sizeof(long) != sizeof(std::int64_t))
                continue; // it has other fields here
            std::int64_t before = -1;
            for (const Edge &edge : kEdges)
                expect_timeout(pair, name, edge, before);
            const std::int64_t none[] = {0, 0};
            assert_int_equal(set(pair.a, SOL_SOCKET, name, none), 0);
        }
    }
}

constexpr std::int64_t kNegative[] = {-1, 0};

void a_negative_time_ends_calls_at_once(void **)
{
    for (const When when : kWhens) {
        Pair pair;
        if (when == When::kAfter)
            assert_true(offload(pair));
        for (const int name : {option::kReceiveTimeoutNew, option::kSendTimeoutNew})
            assert_int_equal(set(pair.a, SOL_SOCKET, name, kNegative), 0);
        if (when == When::kBefore)
            assert_true(offload(pair));
        drain(pair);
        expect_receive(pair.a, -1, EAGAIN);
        send_some(pair.b, 1);
        drain(pair);
        send_until_full(pair.a);
        const std::vector<std::uint8_t> big(1 << 20);
        assert_int_equal(sock::send(*pair.a.s, pair.a.fd, big.data(), big.size(), MSG_NOSIGNAL), -1);
        assert_int_equal(errno, EAGAIN);
        sock::set_nonblocking(*pair.a.s, true);
        sock::set_nonblocking(*pair.a.s, false); // changes nothing about it
        assert_false(sock::may_wait_for_input(*pair.a.s, 0));
        drain(pair);
    }
}

// ---- accepted sockets

void time_outs_of_the_listener(void **)
{
    const Listener listener(AF_INET);
    sock::track_new(listener.fd, false);
    sock::Socket &s = *sock::lookup(listener.fd);
    const std::int64_t short_time[] = {0, 1234};
    assert_int_equal(sock::set_option(s, listener.fd, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof short_time), 0);
    assert_int_equal(sock::set_option(s, listener.fd, SOL_SOCKET, SO_SNDTIMEO, &kNegative, sizeof kNegative), 0);
    {
        Pair pair(listener);
        assert_int_equal(pair.b.s->receive_timeout_us.load(), 1234);
        assert_false(sock::may_wait_for_room(*pair.b.s, 0));
        assert_true(offload(pair));
        drain(pair);
        expect_receive(pair.b, -1, EAGAIN);
    }
    sock::forget(listener.fd);
    const Pair pair(listener); // from a listener of another process
    assert_int_equal(::setsockopt(listener.fd, SOL_SOCKET, SO_RCVTIMEO, &kNegative, sizeof kNegative), 0);
    assert_true(pair.b.s->receive_timeout_us.load() > 0);
    ::close(listener.fd);
}

void options_of_the_listener(void **)
{
    const Listener listener(AF_INET);
    const int on = 1;
    const int off = 0;
    sock::track_new(listener.fd, false);
    sock::Socket &s = *sock::lookup(listener.fd);
    assert_int_equal(sock::set_option(s, listener.fd, SOL_SOCKET, SO_TIMESTAMP, &off, sizeof off), 0);
    assert_int_equal(sock::set_option(s, listener.fd, IPPROTO_TCP, 199, &on, sizeof on), -1);
    assert_int_equal(sock::set_option(s, listener.fd, IPPROTO_IPV6, IPV6_V6ONLY, nullptr, sizeof on), -1);
    for (const int name : {SO_REUSEADDR, SO_KEEPALIVE, SO_ZEROCOPY, SO_TIMESTAMP}) {
        assert_int_equal(sock::set_option(s, listener.fd, SOL_SOCKET, name, &on, sizeof on), 0);
        const Pair pair(listener);
        assert_int_equal(is_on_kernel(pair.b), name == SO_TIMESTAMP);
    }
    sock::forget(listener.fd);
    ::close(listener.fd);
}

} // namespace

int main()
{
    const StreamLibrary library;
    config::g_params.allow_privileged_sock_opt = false; // the kernel's refusals are told
    static const CMUnitTest tests[] = {
        cmocka_unit_test(numbers_before),
        cmocka_unit_test(numbers_after),
        cmocka_unit_test(numbers_of_ipv6),
        cmocka_unit_test(a_filter_drops_what_comes_later),
        cmocka_unit_test(low_water_above_what_is_there),
        cmocka_unit_test(what_is_left_is_told),
        cmocka_unit_test(what_is_left_of_a_ring_is_told),
        cmocka_unit_test(time_outs_at_the_edges),
        cmocka_unit_test(a_negative_time_ends_calls_at_once),
        cmocka_unit_test(time_outs_of_the_listener),
        cmocka_unit_test(options_of_the_listener),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
