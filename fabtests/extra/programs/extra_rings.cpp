// SPDX-License-Identifier: BSD-2-Clause
// What a ring is asked for where there is a device for it: moderation of interrupts, registration of memory.
#include "fabtests/extra/programs/extra_api.hpp"

namespace extra_test {

namespace {

// Until a datagram has come by a device, and so one is open.
void wait_for_a_device(int fd)
{
    const time_t begin = std::time(nullptr);
    char buffer[2048];
    for (int flags = 0; (flags & MSG_VMA_ZCOPY) == 0;) {
        CHECK(!is_time_over(begin));
        flags = 0;
        CHECK(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr) > 0);
    }
}

void moderate(int ring)
{
    vma_modify_ring_attr modify = {};
    modify.comp_bit_mask = VMA_MODIFY_RING_CQ_MODERATION;
    modify.ring_fd = ring;
    modify.cq_moderation = {33, 100'000}; // more than a device takes: 65535
    CHECK(g_api->vma_modify_ring(&modify) == 0);
}

void register_memory(int ring)
{
    static char memory[2][8192];
    std::uint32_t first = 0, again = 0, other = 0;
    CHECK(g_api->register_memory_on_ring(ring, memory[0], sizeof memory[0], &first) == 0);
    CHECK(g_api->register_memory_on_ring(ring, memory[1], sizeof memory[1], &other) == 0 && other != first);
    CHECK(g_api->register_memory_on_ring(ring, memory[0], sizeof memory[0], &again) == 0 && again == first);
    FAILS(g_api->deregister_memory_on_ring(ring, memory[0], sizeof memory[0] - 1), ENOENT);
    CHECK(g_api->deregister_memory_on_ring(ring, memory[0], sizeof memory[0]) == 0);
    CHECK(g_api->deregister_memory_on_ring(ring, memory[0], sizeof memory[0]) == 0);
    FAILS(g_api->deregister_memory_on_ring(ring, memory[0], sizeof memory[0]), ENOENT);
    std::vector<char> many(300);
    std::size_t taken = 0;
    while (taken < many.size() && g_api->register_memory_on_ring(ring, &many[taken], 1, &again) == 0)
        ++taken;
    CHECK(taken == 255 && errno == ENOMEM); // with the one that is left
    while (taken != 0)
        CHECK(g_api->deregister_memory_on_ring(ring, &many[--taken], 1) == 0);
}

} // namespace

void ring()
{
    const int fd = receiver_of_numbers();
    int ring = -1;
    CHECK(g_api->get_socket_rings_fds(fd, &ring, 1) == 1);
    wait_for_a_device(fd);
    moderate(ring);
    register_memory(ring);
    ::close(fd);
    if (g_port == nullptr)
        end_peer();
}

} // namespace extra_test
