// SPDX-License-Identifier: BSD-2-Clause
// What parameters change for accelerated UDP sockets: how often the kernel's datagrams have their turn, and how much
// waits for a reader.
#include "compat/test/udp/udp_socket.hpp"

#include <algorithm>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint32_t kByKernel = 60; // that wait there
constexpr std::uint32_t kPlain = 9;     // their sender
constexpr std::uint32_t kRounds = 3000;

struct Counts {
    std::uint32_t by_kernel = 0;
    std::uint32_t by_endpoint = 0; // from the first by the kernel on
    std::uint32_t ticks = 0;
};

void send_by_kernel(const sockaddr_in &to)
{
    const int plain = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (std::uint32_t i = 0; i < kByKernel; ++i) {
        Datagram datagram;
        datagram.fill(kPlain, i);
        assert_int_equal(
            ::sendto(plain, &datagram, datagram.length(), 0, reinterpret_cast<const sockaddr *>(&to), sizeof to),
            datagram.length());
    }
    ::close(plain);
}

// VMA_RX_UDP_POLL_OS_RATIO: one by the endpoint is there before each call, and so many calls are between two by the
// kernel. Besides that the kernel has a turn a tick of the helper thread, however long this machine takes, so ticks are
// counted.
Counts receive_both(std::uint32_t ratio)
{
    config::g_params.rx_udp_poll_os_ratio = ratio;
    const UdpSocket from;
    const UdpSocket to;
    assert_true(accelerate(from, to));
    send_by_kernel(to.address);
    Counts counts;
    std::uint32_t began = 0;
    bool waits = false;
    for (std::uint32_t number = 0; counts.by_kernel < kByKernel && counts.by_endpoint < kRounds; ++number) {
        waits = waits || from.send_number(1, number, to.address);
        Datagram datagram;
        assert_true(datagram.is_whole(to.receive(datagram)));
        if (datagram.sender == kPlain) {
            assert_int_equal(datagram.number, counts.by_kernel);
            if (counts.by_kernel++ == 0)
                began = sock::udp::current_tick();
        } else {
            waits = false;
            counts.by_endpoint += counts.by_kernel != 0 ? 1 : 0;
        }
    }
    counts.ticks = sock::udp::current_tick() - began;
    print_message("# ratio %u: %u by the kernel, %u by the endpoint, %u ticks\n", ratio, counts.by_kernel,
                  counts.by_endpoint, counts.ticks);
    return counts;
}

void the_kernels_turns(void **)
{
    for (const std::uint32_t ratio : {1U, 8U, 1000000U}) {
        const Counts counts = receive_both(ratio);
        assert_in_range(counts.by_kernel, 1, counts.by_endpoint / ratio + counts.ticks + 3);
        if (ratio < 100) {
            assert_int_equal(counts.by_kernel, kByKernel);
            assert_in_range(counts.by_endpoint, 0, 2 * ratio * kByKernel + 10);
        }
    }
}

// VMA_RX_BYTES_MIN: how many of a thousand datagrams are there for a reader who has asked for the shortest queue.
std::uint32_t kept_of_thousand(std::uint32_t least)
{
    config::g_params.rx_bytes_min = least;
    const UdpSocket from;
    UdpSocket to;
    assert_int_equal(to.set(SOL_SOCKET, SO_RCVBUF, 1), 0);
    assert_true(accelerate(from, to));
    for (std::uint32_t number = 1; number <= 1000; ++number) {
        assert_true(from.send_number(1, number, to.address));
        sock::engine_drain(); // into the socket's queue
    }
    std::uint32_t kept = 0;
    for (Datagram datagram; to.receive(datagram, MSG_DONTWAIT) >= 0; ++kept) {
    }
    print_message("# at least %u bytes: %u of 1000 are kept\n", least, kept);
    return kept;
}

void the_least_that_waits(void **)
{
    const std::uint32_t few = kept_of_thousand(1);
    const std::uint32_t some = kept_of_thousand(100'000);
    const std::uint32_t all = kept_of_thousand(10'000'000);
    assert_in_range(few, 1, 20);
    assert_in_range(some, few + 20, 999);
    assert_int_equal(all, 1000);
}

} // namespace

int main()
{
    const Library library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_turns),
        cmocka_unit_test(the_least_that_waits),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
