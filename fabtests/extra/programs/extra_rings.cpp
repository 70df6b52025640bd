// SPDX-License-Identifier: BSD-2-Clause
// What a ring is asked for where there is a device for it: moderation of interrupts, registration of memory; and whose
// memory it receives into.
#include "fabtests/extra/programs/extra_api.hpp"

#include <map>
#include <mutex>

namespace extra_test {

namespace {

// Until a datagram has come by a device, and so one is open: that one.
Head wait_for_a_device(int fd)
{
    const time_t begin = std::time(nullptr);
    char buffer[2048];
    Head head = {};
    for (int flags = 0; (flags & MSG_VMA_ZCOPY) == 0;) {
        CHECK(!is_time_over(begin));
        flags = 0;
        CHECK(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr) > 0);
    }
    std::memcpy(head.packet(), reinterpret_cast<vma_packets_t *>(buffer)->pkts, sizeof head);
    return head;
}

// ---- the program's allocator

// Of the allocator's, with their sizes: one for each datagram that waits at a fork, too. For ever, as the library is
// there longer.
auto &g_blocks = *new std::map<const char *, std::size_t>;
std::mutex g_blocks_mutex;

bool gives_nothing()
{
    return std::getenv("OWN_FRAMES_NONE") != nullptr;
}

void *take_block(std::size_t size)
{
    if (gives_nothing())
        return nullptr;
    auto *const made = static_cast<char *>(std::malloc(size));
    CHECK(made != nullptr);
    const std::lock_guard guard(g_blocks_mutex);
    g_blocks[made] = size;
    return made;
}

void give_block(void *block)
{
    {
        const std::lock_guard guard(g_blocks_mutex);
        CHECK(g_blocks.erase(static_cast<const char *>(block)) == 1);
    }
    std::free(block);
}

bool is_ours(const void *data)
{
    const auto *const at = static_cast<const char *>(data);
    const std::lock_guard guard(g_blocks_mutex);
    auto after = g_blocks.upper_bound(at);
    return after != g_blocks.begin() && at < (--after)->first + after->second;
}

void use_own_allocator()
{
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(vma_cmsg_ioctl_user_alloc_t))] = {};
    auto *const header = reinterpret_cast<cmsghdr *>(room);
    const vma_cmsg_ioctl_user_alloc_t wanted = {VMA_IOCTL_USER_ALLOC_RX, take_block, give_block};
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = CMSG_VMA_IOCTL_USER_ALLOC;
    header->cmsg_len = CMSG_LEN(sizeof wanted);
    std::memcpy(CMSG_DATA(header), &wanted, sizeof wanted);
    CHECK(g_api->ioctl(header, header->cmsg_len) == 0);
}

// A child has none of it, and no harm comes of that.
void fork_once()
{
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child == 0) {
        std::free(std::malloc(100000));
        std::_Exit(0);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
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

// Frames of a port lie in memory of the program's allocator, if it gives some.
void own_frames()
{
    use_own_allocator();
    const int fd = receiver_of_numbers();
    Head head = wait_for_a_device(fd);
    if (gives_nothing()) {
        CHECK(!is_ours(head.part.iov_base));
        return;
    }
    CHECK(is_ours(head.part.iov_base));
    const std::uint32_t number = number_of(head.part.iov_base, head.part.iov_len);
    fork_once();
    CHECK(number_of(head.part.iov_base, head.part.iov_len) == number);
    CHECK(g_api->free_packets(fd, head.packet(), 1) == 0);
    for (int i = 0; i < 100; ++i) {
        head = wait_for_a_device(fd);
        CHECK(is_ours(head.part.iov_base) && g_api->free_packets(fd, head.packet(), 1) == 0);
    }
    ::close(fd);
}

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
