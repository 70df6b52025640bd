// SPDX-License-Identifier: BSD-2-Clause
// The extra API as a program sees it: extra_api SCENARIO [PORT], extra_api send|send_stream ADDRESS PORT. Each runs
// with libvma.so, makes its own peer where it needs one, and ends with 0, or 1 and a line that says what was not so.
#include "fabtests/extra/programs/extra_api.hpp"
#include "fabtests/patience.hpp"

namespace extra_test {

vma_api_t *g_api = nullptr;
pid_t g_peer = 0;
const char *g_port = nullptr;

namespace {

void table()
{
    static const std::size_t kMask = offsetof(vma_api_t, vma_extra_supported_mask);
    for (std::size_t at = 0; at < sizeof *g_api; at += sizeof(void *)) {
        void *entry = nullptr;
        std::memcpy(&entry, reinterpret_cast<char *>(g_api) + at, sizeof entry);
        CHECK(at == kMask || entry != nullptr);
    }
    CHECK(vma_get_api() == g_api);
    const std::uint64_t always = VMA_EXTRA_API_REGISTER_RECV_CALLBACK | VMA_EXTRA_API_RECVFROM_ZCOPY |
                                 VMA_EXTRA_API_FREE_PACKETS | VMA_EXTRA_API_THREAD_OFFLOAD;
    CHECK((g_api->vma_extra_supported_mask & always) == always);
    CHECK((g_api->vma_extra_supported_mask & ~UINT64_C(0x377fff)) == 0);
    CHECK((g_api->vma_extra_supported_mask & VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS) == 0);
    void *got = nullptr;
    socklen_t size = 4; // too little room: the kernel's answer
    FAILS(::getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &got, &size), EBADF);
    size = 16;
    CHECK(::getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &got, &size) == 0 && size == 8 && got == g_api);
    FAILS(::getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, nullptr, &size), EBADF);
}

// A profile is one that there is, and is set once.
void profiles(int fd, vma_ring_alloc_logic_attr logic)
{
    vma_ring_type_attr profile = {};
    vma_ring_alloc_logic_attr got = {};
    socklen_t size = sizeof got;
    int first = 0, second = 0;
    logic.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY;
    logic.ring_profile_key = 12345;
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic), EINVAL);
    CHECK(g_api->vma_add_ring_profile(&profile, &first) == 0);
    profile.ring_type = VMA_RING_EXTERNAL_MEM;
    CHECK(g_api->vma_add_ring_profile(&profile, &second) == 0 && first != second);
    logic.ring_profile_key = static_cast<std::uint32_t>(first);
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == 0);
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == 0);
    CHECK(::getsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &got, &size) == 0 &&
          got.ring_profile_key == logic.ring_profile_key && got.ring_alloc_logic == logic.ring_alloc_logic);
    logic.ring_profile_key = static_cast<std::uint32_t>(second);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic), EINVAL);
    logic.comp_mask = VMA_RING_ALLOC_MASK_RING_USER_ID;
    logic.user_id = 77;
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == 0);
    CHECK(::getsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &got, &size) == 0 && got.user_id == 77 &&
          got.ring_profile_key == static_cast<std::uint32_t>(first));
    for (const int value : {2, 9, 12, 21, 32, -1}) { // no logic
        std::memcpy(reinterpret_cast<char *>(&logic) + offsetof(vma_ring_alloc_logic_attr, ring_alloc_logic), &value,
                    sizeof value);
        FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic), EINVAL);
    }
    size = sizeof got - 1;
    FAILS(::getsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &got, &size), EINVAL);
}

void more_options(int fd)
{
    std::uint32_t tag = 0;
    std::uint64_t data = 0;
    socklen_t size = sizeof tag;
    CHECK(::getsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, &size) == 0 && tag == 7);
    FAILS(::getsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, nullptr, &size), EFAULT);
    FAILS(::getsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, nullptr), EFAULT);
    FAILS(::getsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, &size), EINVAL); // 4 bytes
    FAILS(::setsockopt(fd, SOL_SOCKET, 2815, &tag, sizeof tag), ENOPROTOOPT);    // none of libvma's
    FAILS(::getsockopt(fd, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, &tag, &size), ENOPROTOOPT);
    iovec memory = {&tag, sizeof tag};
    iovec got = {};
    size = sizeof got;
    CHECK(::getsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &got, &size) == 0 && got.iov_len != 0);
    memory.iov_len = 0;
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &memory, sizeof memory), EINVAL);
    memory = {};
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &memory, sizeof memory) == 0);
    CHECK(::getsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &got, &size) == 0 && got.iov_len == 0);
}

void options()
{
    sockaddr_in here = {};
    const int fd = bound(SOCK_DGRAM, here);
    std::uint64_t data = 0;
    socklen_t size = sizeof data;
    CHECK(::getsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, &size) == 0 && data == static_cast<std::uint64_t>(fd));
    data = 0x1234567890abcdef;
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, sizeof data) == 0);
    data = 0;
    CHECK(::getsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, &size) == 0 && data == 0x1234567890abcdef);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, 4), EINVAL);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, nullptr, 8), EFAULT);
    vma_ring_alloc_logic_attr logic = {};
    logic.ring_alloc_logic = RING_LOGIC_PER_SOCKET;
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic), EINVAL); // no mask
    logic.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS;
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic) == 0);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic - 1), EINVAL);
    logic.comp_mask = 16;
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &logic, sizeof logic), EINVAL);
    profiles(fd, logic);
    iovec memory = {&logic, sizeof logic};
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &memory, sizeof memory) == 0);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &memory, 8), EINVAL);
    const std::uint32_t tag = 7;
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, 2), EINVAL);
    more_options(fd);
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, nullptr, 0) == 0);
    char byte = 0;
    CHECK(::recv(fd, &byte, 1, 0) == 0);
    ::close(fd);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag), EBADF);
}

void calls_of_packets(int fd)
{
    int flags = 0;
    char buffer[64] = "";
    vma_packet_t none = {};
    none.packet_id = &none;
    FAILS(g_api->free_packets(-1, &none, 1), EINVAL);
    FAILS(g_api->free_packets(fd, nullptr, 1), EINVAL);
    FAILS(g_api->free_packets(fd, &none, 1), ENOENT);
    FAILS(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, nullptr, nullptr, nullptr), EINVAL);
    FAILS(g_api->recvfrom_zcopy(fd, nullptr, sizeof buffer, &flags, nullptr, nullptr), EFAULT);
    FAILS(g_api->recvfrom_zcopy(fd, buffer, 39, &flags, nullptr, nullptr), ENOBUFS);
    flags = MSG_DONTWAIT;
    FAILS(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr), EAGAIN);
    flags = 0;
    FAILS(g_api->recvfrom_zcopy(-1, buffer, sizeof buffer, &flags, nullptr, nullptr), EBADF);
}

void calls_of_ring_profiles()
{
    int key = 0;
    vma_ring_type_attr profile = {};
    profile.ring_type = VMA_RING_EXTERNAL_MEM;
    CHECK(g_api->vma_add_ring_profile(&profile, &key) == 0 && key > 0);
    int same = 0, other = 0;
    CHECK(g_api->vma_add_ring_profile(&profile, &same) == 0 && same == key);
    profile.ring_type = VMA_RING_PACKET;
    CHECK(g_api->vma_add_ring_profile(&profile, &other) == 0 && other > 0 && other != key);
    std::memset(&profile.ring_type, 7, sizeof profile.ring_type);
    FAILS(g_api->vma_add_ring_profile(&profile, &other), EINVAL);
    profile.ring_type = VMA_RING_PACKET;
    FAILS(g_api->vma_add_ring_profile(nullptr, &key), EINVAL);
    FAILS(g_api->vma_add_ring_profile(&profile, nullptr), EINVAL);
}

void calls_of_rings(int fd)
{
    int ring = -1;
    char buffer[64] = "";
    CHECK(g_api->get_socket_rings_num(fd) == 1 && g_api->get_socket_rings_fds(fd, &ring, 1) == 1 && ring >= 0);
    CHECK(g_api->get_socket_tx_ring_fd(fd, nullptr, 0) == ring);
    FAILS(g_api->get_socket_rings_num(-1), EINVAL);
    FAILS(g_api->get_socket_rings_num(1 << 30), EINVAL);
    FAILS(g_api->get_socket_rings_fds(fd, nullptr, 1), EINVAL);
    FAILS(g_api->get_socket_rings_fds(fd, &ring, 0), EINVAL);
    FAILS(g_api->get_socket_tx_ring_fd(-5, nullptr, 0), EINVAL);
    vma_modify_ring_attr modify = {};
    modify.ring_fd = -1;
    FAILS(g_api->vma_modify_ring(nullptr), EINVAL);
    modify.comp_bit_mask = VMA_MODIFY_RING_CQ_MODERATION;
    FAILS(g_api->vma_modify_ring(&modify), EINVAL);
    modify.ring_fd = ring;
    modify.cq_moderation = {48, 50};
    CHECK(g_api->vma_modify_ring(&modify) == 0); // as libvma on a NIC that has none
    modify.comp_bit_mask = 0;
    FAILS(g_api->vma_modify_ring(&modify), EINVAL);
    modify.comp_bit_mask = 8;
    FAILS(g_api->vma_modify_ring(&modify), EINVAL);
    modify.comp_bit_mask = VMA_MODIFY_RING_CQ_ARM;
    FAILS(g_api->vma_modify_ring(&modify), EOPNOTSUPP);
    std::uint32_t lkey = 0;
    FAILS(g_api->register_memory_on_ring(ring, nullptr, 1, &lkey), EINVAL);
    FAILS(g_api->register_memory_on_ring(ring, buffer, 0, &lkey), EINVAL);
    FAILS(g_api->register_memory_on_ring(ring, buffer, 1, nullptr), EINVAL);
    FAILS(g_api->register_memory_on_ring(fd, buffer, 1, &lkey), EINVAL);
    FAILS(g_api->register_memory_on_ring(ring, buffer, 1, &lkey), EOPNOTSUPP);
    FAILS(g_api->deregister_memory_on_ring(ring, buffer, 1), ENOENT);
    FAILS(g_api->deregister_memory_on_ring(-1, buffer, 1), EINVAL);
    FAILS(g_api->get_ring_direct_descriptors(ring, nullptr), EINVAL);
    vma_mlx_hw_device_data registers = {};
    FAILS(g_api->get_ring_direct_descriptors(ring, &registers), EOPNOTSUPP);
}

// What the kernel brings is a plain receive, or an error that takes nothing.
void calls_of_the_kernels_bytes(int fd, sockaddr_in &here)
{
    char buffer[64] = "";
    int flags = MSG_VMA_ZCOPY_FORCE;
    CHECK(::sendto(fd, "hello", 5, 0, generic(here), sizeof here) == 5);
    pollfd p = {fd, POLLIN, 0};
    CHECK(::poll(&p, 1, patience::milliseconds()) == 1);
    FAILS(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr), EIO);
    flags = 0;
    CHECK(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr) == 5 && flags == 0);
    CHECK(std::memcmp(buffer, "hello", 5) == 0);
}

void calls()
{
    sockaddr_in here = {};
    const int fd = bound(SOCK_DGRAM, here);
    char buffer[64] = "";
    calls_of_rings(fd);
    calls_of_packets(fd);
    calls_of_ring_profiles();
    FAILS(g_api->register_recv_callback(-1, nullptr, nullptr), EINVAL);
    CHECK(g_api->register_recv_callback(fd, nullptr, nullptr) == 0);
    FAILS(g_api->add_conf_rule(nullptr), EINVAL);
    FAILS(g_api->dump_fd_stats(-1, 3), EINVAL);
    FAILS(g_api->dump_fd_stats(fd, 9), EINVAL);
    CHECK(g_api->dump_fd_stats(fd, 5) == 0 && g_api->dump_fd_stats(0, 5) == 0);
    std::uint16_t room = 100;
    FAILS(g_api->get_socket_network_header(fd, nullptr, nullptr), EINVAL);
    FAILS(g_api->get_socket_network_header(-1, buffer, &room), EINVAL);
    FAILS(g_api->get_socket_network_header(fd, buffer, &room), ENOTCONN);
    FAILS(g_api->ioctl(nullptr, 0), EINVAL);
    FAILS(::send(fd, buffer, 4, VMA_SND_FLAGS_DUMMY), EINVAL); // it is not accelerated
    FAILS(::sendto(1, buffer, 4, VMA_SND_FLAGS_DUMMY, nullptr, 0), EINVAL);
    calls_of_the_kernels_bytes(fd, here);
}

void *allocated(std::size_t size)
{
    return std::malloc(size);
}

void allocator()
{
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(vma_cmsg_ioctl_user_alloc_t))] = {};
    auto *const header = reinterpret_cast<cmsghdr *>(room);
    vma_cmsg_ioctl_user_alloc_t wanted = {VMA_IOCTL_USER_ALLOC_RX, allocated, std::free};
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = CMSG_VMA_IOCTL_USER_ALLOC;
    header->cmsg_len = CMSG_LEN(sizeof wanted);
    std::memcpy(CMSG_DATA(header), &wanted, sizeof wanted);
    CHECK(g_api->ioctl(header, header->cmsg_len) == 0);
    FAILS(g_api->ioctl(header, header->cmsg_len - 1), EINVAL);
    wanted.flags = 0;
    std::memcpy(CMSG_DATA(header), &wanted, sizeof wanted);
    FAILS(g_api->ioctl(header, header->cmsg_len), EINVAL);
    ::close(::socket(AF_INET, SOCK_STREAM, 0));
    wanted.flags = VMA_IOCTL_USER_ALLOC_TX;
    std::memcpy(CMSG_DATA(header), &wanted, sizeof wanted);
    FAILS(g_api->ioctl(header, header->cmsg_len), EINVAL); // there was a socket
}

void threads()
{
    CHECK(g_api->thread_offload(0, ::pthread_self()) == 0);
    const int kernel = ::socket(AF_INET, SOCK_DGRAM, 0);
    FAILS(g_api->get_socket_rings_num(kernel), EINVAL);
    CHECK(g_api->thread_offload(1, ::pthread_self()) == 0);
    const int ours = ::socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(g_api->get_socket_rings_num(ours) == 1);
}

struct Scenario {
    const char *name;
    void (*run)();
};

constexpr Scenario kScenarios[] = {
    {"table", table},
    {"options", options},
    {"calls", calls},
    {"allocator", allocator},
    {"threads", threads},
    {"udp_zcopy", udp_zcopy},
    {"tcp_zcopy", tcp_zcopy},
    {"udp_callback", udp_callback},
    {"tcp_held_over_fork", tcp_held_over_fork},
    {"callback_waits", callback_waits},
    {"callback_header", callback_header},
    {"dummies", dummies},
    {"header", header},
    {"ring", ring},
    {"own_frames", own_frames},
    {"xtreme", xtreme},
    {"xtreme_many", xtreme_many},
    {"xtreme_flood", xtreme_flood},
    {"xtreme_threads", xtreme_threads},
    {"xtreme_full", xtreme_full},
    {"xtreme_end", xtreme_end},
    {"tcp_kept", tcp_kept},
    {"tcp_callback", tcp_callback},
    {"tcp_callback_stream", tcp_callback_stream},
    {"udp_callback_faults", udp_callback_faults},
    {"tcp_callback_faults", tcp_callback_faults},
    {"matrix", matrix},
};

// EXTRA_GATE names a file: nothing begins until it is there. Meanwhile the process uses a socket, so that vma_dump
// finds it and is answered: there is no helper thread yet.
void await_gate()
{
    const char *const gate = std::getenv("EXTRA_GATE");
    if (gate == nullptr)
        return;
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    for (char byte = 0; ::access(gate, F_OK) != 0; ::usleep(1000))
        CHECK(::recv(fd, &byte, 1, MSG_DONTWAIT) < 0);
    ::close(fd);
}

} // namespace

} // namespace extra_test

using namespace extra_test;

int main(int argc, char **argv)
{
    if (argc > 3 && std::strncmp(argv[1], "send", 4) == 0) {
        g_port = argv[3];
        sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[3])));
        CHECK(::inet_pton(AF_INET, argv[2], &to.sin_addr) == 1);
        if (std::strcmp(argv[1], "send") == 0)
            send_numbers(to);
        send_stream(to);
        return 0;
    }
    g_port = argc > 2 ? argv[2] : nullptr;
    g_api = vma_get_api();
    if (g_api == nullptr) {
        std::fputs("no extra API\n", stderr);
        return 1;
    }
    await_gate();
    for (const Scenario &scenario : kScenarios)
        if (argc > 1 && std::strcmp(argv[1], scenario.name) == 0) {
            scenario.run();
            return 0;
        }
    std::fputs("which scenario?\n", stderr);
    return 2;
}
