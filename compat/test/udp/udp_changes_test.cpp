// SPDX-License-Identifier: BSD-2-Clause
// UDP sockets over the real provider that other threads close under calls, and members of a group that come and go
// while a thread sends to it: those who stay get every datagram once. And who looks whether a route still holds. Meant
// for ThreadSanitizer above all.
#include "compat/test/udp/udp_traffic.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/udp/state.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr timespec kSlice = {0, 2000000}; // a watcher looks whether it is to stop

// ---- close

// As a program's call does: it finds the socket by the descriptor, and goes on with it when that is closed in between.
bool receive_by_number(int fd, int flags, std::atomic<int> &errors, std::atomic<std::uint32_t> &received)
{
    sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr)
        return false;
    Datagram datagram;
    const ssize_t n = sock::receive(*s, fd, &datagram, sizeof datagram, flags);
    if (n >= 0) {
        errors.fetch_add(datagram.is_whole(n) ? 0 : 1);
        received.fetch_add(1);
        received.notify_all();
    }
    return true;
}

bool send_by_number(int fd, std::uint32_t number, const sockaddr_in &to)
{
    sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr)
        return false;
    Datagram datagram;
    datagram.fill(1, number);
    sock::send_to(*s, fd, &datagram, datagram.length(), 0, reinterpret_cast<const sockaddr *>(&to), sizeof to);
    return true;
}

void wait_for_some(std::atomic<std::uint32_t> &received, std::uint32_t some)
{
    for (std::uint32_t now = received.load(); now < some; now = received.load())
        received.wait(now);
}

void close_under_calls(unsigned round)
{
    UdpSocket to;
    UdpSocket from;
    const int in = to.fd;
    const int out = from.fd;
    const sockaddr_in address = to.address;
    std::atomic<bool> stop{false};
    std::atomic<int> errors{0};
    std::atomic<std::uint32_t> received{0};
    if (round % 3 != 0) // else it becomes so while they run
        assert_true(accelerate(from, to));
    to.set(SOL_SOCKET, SO_RCVTIMEO, timeval{0, 20000});
    std::thread threads[] = {
        std::thread([&] {
            while (receive_by_number(in, 0, errors, received)) {
            }
        }),
        std::thread([&] {
            while (receive_by_number(in, MSG_DONTWAIT, errors, received)) {
            }
        }),
        std::thread([&] {
            while (sock::lookup(in) != nullptr) {
                pollfd p = {in, POLLIN, 0};
                mux::poll(&p, 1, &kSlice, nullptr);
            }
        }),
        std::thread([&] {
            for (std::uint32_t number = 0; !stop.load() && send_by_number(out, number, address);)
                ++number;
        }),
    };
    wait_for_some(received, round % 3 != 0 ? 10 + round : 1 + round % 8);
    if (round % 2 == 0)
        from.close();
    to.close();
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    assert_int_equal(errors.load(), 0);
}

void close_by_another_thread(void **)
{
    for (unsigned round = 0; round < 60; ++round)
        close_under_calls(round);
    const UdpSocket to;
    const UdpSocket from;
    assert_true(accelerate(from, to));
}

// ---- groups

class Member
{
public:
    explicit Member(const sockaddr_in &group) : socket(group), group_(group)
    {
        socket.set(IPPROTO_IP, IP_MULTICAST_ALL, 0); // what others have joined is not for it
    }
    bool join() { return change(IP_ADD_MEMBERSHIP); }
    bool leave() { return change(IP_DROP_MEMBERSHIP); }

    UdpSocket socket;

private:
    bool change(int what)
    {
        const ip_mreq request = {group_.sin_addr, {htonl(INADDR_LOOPBACK)}};
        return socket.set(IPPROTO_IP, what, request) == 0;
    }
    const sockaddr_in group_;
};

bool accelerate_group(const UdpSocket &from, const sockaddr_in &group, const std::vector<Member *> &members)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    while (sock::now_ns() < until) {
        const std::uint32_t before = from.kernel_sends();
        if (!from.send_number(0, 0, group))
            return false;
        Datagram datagram;
        for (Member *const member : members)
            if (!datagram.is_whole(member->socket.receive(datagram)))
                return false;
        if (from.kernel_sends() == before)
            return true;
    }
    return false;
}

void join_and_leave(Member &member, Traffic &once, std::atomic<bool> &stop)
{
    Datagram datagram;
    while (!stop.load()) {
        once.check(member.leave());
        once.check(member.join());
        for (int i = 0; i < 50; ++i) {
            const ssize_t n = member.socket.receive(datagram, MSG_DONTWAIT);
            if (n >= 0)
                once.account(datagram, n);
        }
    }
}

void set_interface(UdpSocket &from)
{
    assert_int_equal(from.set(IPPROTO_IP, IP_MULTICAST_IF, in_addr{htonl(INADDR_LOOPBACK)}), 0);
}

void group_members_come_and_go(void **)
{
    sockaddr_in group = chosen_address();
    group.sin_addr.s_addr = htonl(0xeffe0102); // 239.254.1.2
    Member members[] = {Member(group), Member(group), Member(group)};
    UdpSocket from;
    set_interface(from);
    for (Member &member : members)
        assert_true(member.join());
    assert_true(accelerate_group(from, group, {&members[0], &members[1], &members[2]}));
    const std::uint32_t before = from.kernel_sends();
    Traffic traffic[] = {Traffic(members[0].socket, 1), Traffic(members[1].socket, 1), Traffic(members[2].socket, 1)};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i : {0, 1})
        threads.emplace_back([&receiving = traffic[i]] { receive_singly(receiving); });
    threads.emplace_back([&] { join_and_leave(members[2], traffic[2], stop); });
    threads.emplace_back([&] {
        while (!stop.load())
            set_interface(from);
    });
    for (std::uint32_t number = 0; number < kEach && traffic[0].enter(0) && traffic[1].enter(0); ++number)
        traffic[0].check(from.send_number(0, number, group));
    traffic[0].check(from.send_number(0, kEnd, group));
    threads[0].join();
    threads[1].join();
    stop = true;
    for (std::thread &thread : threads)
        if (thread.joinable())
            thread.join();
    const std::uint32_t by_kernel = from.kernel_sends() - before;
    print_message("# %u of %u by the kernel\n", by_kernel, kEach);
    assert_true(by_kernel < kEach);
    assert_true(traffic[0].all_came() && traffic[1].all_came());
    for (const Traffic &each : traffic)
        assert_int_equal(each.errors(), 0);
}

// ---- routes

// Sends that look a route up anew: the first thing that they ask is what error the socket has.
struct LookUps {
    LookUps()
    {
        g_count = 0;
        g_real = libc::real.getsockopt;
        libc::real.getsockopt = [](int fd, int level, int name, void *value, socklen_t *length) noexcept {
            g_count += level == SOL_SOCKET && name == SO_ERROR ? 1 : 0;
            return g_real(fd, level, name, value, length);
        };
    }
    ~LookUps() { libc::real.getsockopt = g_real; }
    LookUps(const LookUps &) = delete;
    LookUps &operator=(const LookUps &) = delete;

    static inline std::atomic<unsigned> g_count{0};
    static inline decltype(libc::real.getsockopt) g_real = nullptr;
};

// How many there are in some ticks.
std::uint32_t look_ups_of(const UdpSocket &from, const UdpSocket &to, std::uint32_t ticks)
{
    constexpr timespec kPause = {0, 5'000'000};
    Datagram received;
    const LookUps look_ups;
    const std::uint32_t begin = sock::udp::current_tick();
    while (sock::udp::current_tick() - begin < ticks) {
        assert_true(from.send_number(0, 1, to.address));
        assert_true(received.is_whole(to.receive(received)));
        ::nanosleep(&kPause, nullptr);
    }
    print_message("# %u look-ups in %u ticks\n", LookUps::g_count.load(), ticks);
    return LookUps::g_count;
}

// Whether it still holds the helper thread asks, in each tick. A sender that is interrupted while it has its lock may
// have to, as often as others want the processor: so it is the best of some stretches that tells.
void sends_do_not_look_routes_up(void **)
{
    constexpr std::uint32_t kTicks = 20;
    constexpr int kStretches = 20;
    const UdpSocket to;
    const UdpSocket from;
    assert_true(accelerate(from, to));
    std::uint32_t fewest = kTicks;
    for (int i = 0; i < kStretches && fewest > kTicks / 4; ++i)
        fewest = std::min(fewest, look_ups_of(from, to, kTicks));
    assert_true(fewest <= kTicks / 4);
}

// Of a socket that is connected to port 0 the kernel sends, and names no peer: getpeername() was asked at each send,
// and its ENOTCONN stood in errno behind a send that had succeeded.
void a_peer_without_a_name_is_not_asked_for_at_each_send(void **)
{
    static unsigned asked = 0;
    static const auto real = libc::real.getpeername;
    UdpSocket from;
    const sockaddr_in nowhere = loopback_address();
    assert_int_equal(
        sock::connect_datagram(*from.s, from.fd, reinterpret_cast<const sockaddr *>(&nowhere), sizeof nowhere), 0);
    libc::real.getpeername = [](int fd, sockaddr *address, socklen_t *length) noexcept {
        ++asked;
        return real(fd, address, length);
    };
    unsigned gone = 0;
    for (int i = 0; i < 2000; ++i) {
        errno = EXDEV;
        if (sock::send(*from.s, from.fd, "x", 1, 0) != 1)
            continue; // that nobody is there the kernel tells with the next one
        ++gone;
        assert_int_equal(errno, EXDEV);
    }
    libc::real.getpeername = real;
    assert_true(gone >= 1000);
    print_message("# asked %u times for %u sends\n", asked, gone);
    assert_true(asked <= gone / 2); // looks for routes ask too, once in a tick
}

} // namespace

int main()
{
    const Library library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(close_by_another_thread),
        cmocka_unit_test(group_members_come_and_go),
        cmocka_unit_test(sends_do_not_look_routes_up),
        cmocka_unit_test(a_peer_without_a_name_is_not_asked_for_at_each_send),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
