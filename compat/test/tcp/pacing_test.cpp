// SPDX-License-Identifier: BSD-2-Clause
// SO_MAX_PACING_RATE over the real provider: what a socket that is too early says, who hears when it is due, what the
// kernel's socket has, and that the rate stays. No time is measured: what must not go has a rate of a byte a second.
#include "fabtests/unit.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#include <rdma/fi_ext_vma.h>

#include "compat/src/transport/pacing.hpp"
#include "compat/test/tcp/stream_pair.hpp"
#include "compat/test/udp/udp_socket.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

void set_rate(sock::Socket &s, int fd, std::uint64_t rate)
{
    assert_int_equal(sock::set_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate), 0);
}

std::uint64_t kernel_rate(int fd)
{
    std::uint64_t rate = 0;
    socklen_t size = sizeof rate;
    assert_int_equal(::getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size), 0);
    return rate;
}

void give_send_timeout(sock::Socket &s, int fd, int ms)
{
    const timeval time = {ms / 1000, static_cast<suseconds_t>(ms % 1000) * 1000};
    assert_int_equal(sock::set_option(s, fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time), 0);
}

bool has_room(sock::Socket &s, int fd)
{
    const bool fast = (sock::ready_events_fast(s, POLLOUT) & POLLOUT) != 0;
    assert_int_equal((sock::ready_events(s, fd, POLLOUT) & POLLOUT) != 0, fast);
    return fast;
}

// Told by the helper thread.
struct Listener : sock::Watcher {
    std::atomic<bool> heard{false};

    Listener()
    {
        notify = [](sock::Watcher *self, std::uint32_t events) {
            if ((events & POLLOUT) != 0)
                static_cast<Listener *>(self)->heard = true;
        };
    }
    bool hears() const
    {
        const std::int64_t until = sock::now_ns() + patience::nanoseconds();
        while (!heard && sock::now_ns() < until)
            sched_yield();
        return heard;
    }
};

void all_forms_of_the_option(sock::Socket &s, int fd)
{
    const sock::VmaRateLimit wanted = {8000, 5000, 700};
    assert_int_equal(sock::set_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &wanted, sizeof wanted), 0);
    assert_int_equal(kernel_rate(fd), 1'000'000);
    sock::VmaRateLimit got = {};
    socklen_t size = sizeof got;
    assert_int_equal(sock::get_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &got, &size), 0);
    assert_int_equal(size, sizeof got);
    assert_int_equal(got.rate, 8000);
    assert_int_equal(got.max_burst, 5000);
    assert_int_equal(got.typical_packet, 700);

    std::uint32_t narrow = 2'000'000;
    assert_int_equal(sock::set_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &narrow, sizeof narrow), 0);
    assert_int_equal(kernel_rate(fd), 2'000'000);
    size = sizeof got;
    assert_int_equal(sock::get_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &got, &size), 0);
    assert_int_equal(got.rate, 16'000);
    assert_int_equal(got.max_burst, 0);
    size = sizeof narrow;
    assert_int_equal(sock::get_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &narrow, &size), 0);
    assert_int_equal(narrow, 2'000'000);

    assert_int_equal(sock::set_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, nullptr, sizeof wanted), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(kernel_rate(fd), 2'000'000);
    const sock::VmaRateLimit none = {};
    assert_int_equal(sock::set_option(s, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &none, sizeof none), 0);
    assert_true(kernel_rate(fd) == kNone);
    assert_false(s.pacing.limited);
}

void forms(void **)
{
    Pair pair;
    all_forms_of_the_option(*pair.a.s, pair.a.fd);
    assert_true(offload(pair));
    all_forms_of_the_option(*pair.a.s, pair.a.fd);
    drain(pair);
    const UdpSocket socket;
    all_forms_of_the_option(*socket.s, socket.fd);
}

// Its endpoint has the rate, whenever it was set, and after the stream has been on the kernel.
std::uint64_t endpoint_rate(Stream &s)
{
    fi_vma_rate_limit limit = {};
    std::size_t size = sizeof limit;
    const sock::LockGuard guard(s.tx_lock);
    assert_true(sock::has_endpoint(s));
    assert_int_equal(
        fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_RATE_LIMIT), &limit, &size), 0);
    return limit.rate;
}

void the_rate_follows_the_stream(void **)
{
    Pair pair;
    set_rate(*pair.a.s, pair.a.fd, 123'456'789);
    const std::uint64_t inherited = 987'654'321; // as by accept(), behind our back
    assert_int_equal(::setsockopt(pair.b.fd, SOL_SOCKET, SO_MAX_PACING_RATE, &inherited, sizeof inherited), 0);
    assert_true(offload(pair));
    assert_int_equal(endpoint_rate(*pair.a.s), 123'456'789);
    assert_int_equal(endpoint_rate(*pair.b.s), inherited);
    drain(pair);
    sock::return_one(*pair.a.s, sock::Heir::kAnybody);
    drain(pair);
    assert_int_equal(kernel_rate(pair.a.fd), 123'456'789);
    assert_true(offload(pair));
    assert_int_equal(endpoint_rate(*pair.a.s), 123'456'789);
    set_rate(*pair.a.s, pair.a.fd, kNone);
    assert_int_equal(endpoint_rate(*pair.a.s), 0);
    drain(pair);
}

void a_stream_that_is_too_early(void **)
{
    Pair pair;
    assert_true(offload(pair));
    drain(pair);
    Stream &s = *pair.a.s;
    const int fd = pair.a.fd;
    set_rate(s, fd, 1);
    const std::uint64_t before = pair.a.sent;
    send_some(pair.a, 60'000);
    assert_in_range(pair.a.sent - before, 1, 3000);
    assert_false(has_room(s, fd));
    const std::uint64_t then = pair.a.sent;
    send_some(pair.a, 1);
    assert_int_equal(pair.a.sent, then);
    const char byte = 0;
    give_send_timeout(s, fd, 20);
    assert_int_equal(sock::send(s, fd, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    drain(pair); // what was taken is there, without another call of the sender

    Listener listener;
    sock::watch(s, listener);
    set_rate(s, fd, 100'000'000);
    assert_true(listener.hears());
    assert_true(has_room(s, fd));
    listener.heard = false;
    set_rate(s, fd, 50'000);
    while (has_room(s, fd)) {
        send_some(pair.a, 10'000);
        receive_some(pair.b, pair.a, 65536, 0);
    }
    assert_true(listener.hears());
    sock::unwatch(listener);
    give_send_timeout(s, fd, 0);
    set_rate(s, fd, 3'000'000);
    std::vector<std::uint8_t> bytes(40'000);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = byte_at(pair.a.sent + i, pair.a.key);
    assert_int_equal(sock::send(s, fd, bytes.data(), bytes.size(), 0), bytes.size()); // waits for its turns
    pair.a.sent += bytes.size();
    drain(pair);
    set_rate(s, fd, kNone);
    assert_true(has_room(s, fd));
}

// They leave at the same rate, and before those of the endpoint.
void bytes_that_the_kernel_has_not_sent(void **)
{
    Pair pair;
    Stream &s = *pair.a.s;
    const int fd = pair.a.fd;
    int unsent = 0;
    while (unsent < 300'000) {
        send_some(pair.a, 65536);
        assert_int_equal(::ioctl(fd, SIOCOUTQNSD, &unsent), 0);
    }
    set_rate(s, fd, 5'000); // a minute for these; the kernel waits behind each 64 KiB that it sends, also without it
    assert_true(offload(pair));
    const std::uint64_t then = pair.a.sent;
    assert_false(has_room(s, fd));
    send_some(pair.a, 1);
    assert_int_equal(pair.a.sent, then);
    set_rate(s, fd, kNone);
    assert_true(has_room(s, fd));
    send_some(pair.a, 1);
    assert_int_equal(pair.a.sent, then + 1);
    drain(pair);
}

void datagrams_that_are_too_early(void **)
{
    const UdpSocket from;
    const UdpSocket to;
    assert_true(accelerate(from, to));
    sock::Socket &s = *from.s;
    set_rate(s, from.fd, 1);
    Datagram datagram;
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    // By the kernel, at any rate, until a look finds that the engine is nobody's: the helper may be at work in each.
    for (std::uint32_t i = 0; sock::now_ns() < until && !(sock::is_offloaded(s) && !has_room(s, from.fd)); ++i) {
        datagram.fill(1, i);
        if (from.send(datagram, to.address, MSG_DONTWAIT) < 0)
            assert_int_equal(errno, EAGAIN);
        else
            assert_true(datagram.is_whole(to.receive(datagram)));
    }
    assert_false(has_room(s, from.fd));
    const std::uint32_t by_kernel = from.kernel_sends();
    mmsghdr messages[3] = {};
    iovec part = {&datagram, sizeof datagram}; // not shorter than what was refused
    for (mmsghdr &message : messages) {
        message.msg_hdr.msg_iov = &part;
        message.msg_hdr.msg_iovlen = 1;
        message.msg_hdr.msg_name = const_cast<sockaddr_in *>(&to.address);
        message.msg_hdr.msg_namelen = sizeof to.address;
    }
    assert_int_equal(sock::send_messages(s, from.fd, messages, 3, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    give_send_timeout(s, from.fd, 20);
    assert_int_equal(from.send(datagram, to.address), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(from.kernel_sends(), by_kernel); // what is too early is not left to the kernel

    Listener listener;
    sock::watch(s, listener);
    set_rate(s, from.fd, 100'000);
    assert_true(listener.hears());
    sock::unwatch(listener);
    give_send_timeout(s, from.fd, 0);
    part.iov_len = 1000;
    set_rate(s, from.fd, 1);
    set_rate(s, from.fd, kNone);
    const sock::VmaRateLimit few = {1, 4000, 0}; // 125 bytes a second: two of three are within half a burst
    assert_int_equal(sock::set_option(s, from.fd, SOL_SOCKET, SO_MAX_PACING_RATE, &few, sizeof few), 0);
    assert_int_equal(sock::send_messages(s, from.fd, messages, 3, MSG_DONTWAIT), 2);
    set_rate(s, from.fd, 1'000'000);
    for (std::uint32_t i = 0; i < 10; ++i) // these wait
        assert_true(from.send_number(1, i, to.address));
    for (int received = 0; received < 2 + 10; ++received)
        assert_true(to.receive(datagram) > 0);
}

// Each eighth datagram looks whether the rate can be kept: if another thread has the lock then, it is each next one.
void a_look_that_found_the_lock_taken(void **)
{
    const UdpSocket from;
    const UdpSocket to;
    assert_true(accelerate(from, to));
    sock::Socket &s = *from.s;
    const std::atomic<bool> &due = sock::udp::state_of(s).look_is_due;
    set_rate(s, from.fd, 1'000'000);
    Datagram datagram;
    const auto send_one = [&] { assert_true(from.send_number(1, 0, to.address)); };
    const auto receive_one = [&] { assert_true(to.receive(datagram) > 0); };
    constexpr int kEighth = 8;
    sock::g_offload.lock.lock(); // so that the helper thread, by which a receive may wait, stands still
    for (int i = 0; i < kEighth; ++i)
        send_one();
    const bool found = due;
    sock::g_offload.lock.unlock();
    for (int i = 0; i < kEighth; ++i)
        receive_one();
    assert_true(found);
    for (; due; receive_one()) // the helper thread may have it
        send_one();
    assert_true(sock::is_offloaded(s));
}

} // namespace

int main()
{
    const Library library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(the_rate_follows_the_stream),
        cmocka_unit_test(a_stream_that_is_too_early),
        cmocka_unit_test(bytes_that_the_kernel_has_not_sent),
        cmocka_unit_test(datagrams_that_are_too_early),
        cmocka_unit_test(a_look_that_found_the_lock_taken),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
