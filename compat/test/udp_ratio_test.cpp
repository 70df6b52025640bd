// SPDX-License-Identifier: BSD-2-Clause
// VMA_RX_UDP_POLL_OS_RATIO: how often the kernel's datagrams have their turn while an accelerated sender never pauses. Besides that the
// kernel has one a tick of the helper thread, however long this machine takes, so ticks are counted.
#include "compat/test/udp_socket.hpp"

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

// One by the endpoint is there before each call.
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

} // namespace

int main()
{
    const Library library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_turns),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
