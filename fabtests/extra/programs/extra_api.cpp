// SPDX-License-Identifier: BSD-2-Clause
// The extra API as a program sees it: extra_api SCENARIO [PORT], extra_api send ADDRESS PORT. Each runs with libvma.so, makes its own peer where it needs one, and ends with 0,
// or 1 and a line that says what was not so.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include <mellanox/vma_extra.h>

namespace {

vma_api_t *g_api = nullptr;
pid_t g_peer = 0;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno,          \
                         std::strerror(errno));                                                                        \
            std::_Exit(1);                                                                                             \
        }                                                                                                              \
    } while (false)

template <typename Call> void fails(Call call, int error, int line)
{
    errno = 0;
    const long result = call();
    if (result >= 0 || errno != error) {
        std::fprintf(stderr, "line %d: %ld with errno %d, not -1 with %d (%s)\n", line, result, errno, error,
                     std::strerror(error));
        std::_Exit(1);
    }
}
#define FAILS(call, error) fails([&] { return static_cast<long>(call); }, error, __LINE__)

sockaddr *generic(sockaddr_in &a)
{
    return reinterpret_cast<sockaddr *>(&a);
}

// The peer is made before the sockets that it is not to inherit; `way` carries addresses.
template <typename Peer> int start_peer(Peer peer)
{
    int way[2];
    CHECK(::pipe(way) == 0);
    g_peer = ::fork();
    CHECK(g_peer >= 0);
    if (g_peer == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(way[1]);
        sockaddr_in to = {};
        CHECK(::read(way[0], &to, sizeof to) == sizeof to);
        peer(to);
        std::_Exit(0);
    }
    ::close(way[0]);
    return way[1];
}

void end_peer()
{
    ::kill(g_peer, SIGKILL);
    ::waitpid(g_peer, nullptr, 0);
}

int bound(int type, sockaddr_in &here)
{
    const int fd = ::socket(AF_INET, type, 0);
    socklen_t size = sizeof here;
    here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && ::bind(fd, generic(here), sizeof here) == 0 && ::getsockname(fd, generic(here), &size) == 0);
    return fd;
}

// Numbered datagrams of several lengths, some 200,000 a second.
void send_numbers(sockaddr_in to)
{
    static unsigned char bytes[1472];
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    for (std::uint32_t number = 0;; ++number) {
        const std::size_t length = 8 + number * 2654435761U % (sizeof bytes - 8);
        std::memset(bytes, static_cast<int>(number & 0xff), length);
        std::memcpy(bytes, &number, sizeof number);
        ::send(fd, bytes, length, 0);
        if (number % 64 == 63) {
            const timespec pause = {0, 200000};
            ::nanosleep(&pause, nullptr);
        }
    }
}

std::uint32_t number_of(const void *data, std::size_t length)
{
    const auto *const bytes = static_cast<const unsigned char *>(data);
    std::uint32_t number = 0;
    CHECK(length >= 8);
    std::memcpy(&number, bytes, sizeof number);
    CHECK(length == 8 + number * 2654435761U % (1472 - 8));
    for (std::size_t i = sizeof number; i < length; ++i)
        CHECK(bytes[i] == (number & 0xff));
    return number;
}

bool is_time_over(time_t begin)
{
    return std::time(nullptr) - begin > 40;
}

// ---- scenarios

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
    iovec memory = {&logic, sizeof logic};
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &memory, sizeof memory) == 0);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_RING_USER_MEMORY, &memory, 8), EINVAL);
    const std::uint32_t tag = 7;
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, 2), EINVAL);
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, nullptr, 0) == 0);
    char byte = 0;
    CHECK(::recv(fd, &byte, 1, 0) == 0);
    ::close(fd);
    FAILS(::setsockopt(fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag), EBADF);
}

void calls()
{
    sockaddr_in here = {};
    const int fd = bound(SOCK_DGRAM, here);
    int ring = -1, flags = 0, key = 0;
    char buffer[64] = "";
    vma_packet_t none = {};
    none.packet_id = &none;
    CHECK(g_api->get_socket_rings_num(fd) == 1 && g_api->get_socket_rings_fds(fd, &ring, 1) == 1 && ring >= 0);
    CHECK(g_api->get_socket_tx_ring_fd(fd, nullptr, 0) == ring);
    FAILS(g_api->get_socket_rings_num(-1), EINVAL);
    FAILS(g_api->get_socket_rings_num(1 << 30), EINVAL);
    FAILS(g_api->get_socket_rings_fds(fd, nullptr, 1), EINVAL);
    FAILS(g_api->get_socket_rings_fds(fd, &ring, 0), EINVAL);
    FAILS(g_api->get_socket_tx_ring_fd(-5, nullptr, 0), EINVAL);
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
    FAILS(g_api->register_recv_callback(-1, nullptr, nullptr), EINVAL);
    CHECK(g_api->register_recv_callback(fd, nullptr, nullptr) == 0);
    FAILS(g_api->add_conf_rule(nullptr), EINVAL);
    FAILS(g_api->dump_fd_stats(-1, 3), EINVAL);
    FAILS(g_api->dump_fd_stats(fd, 9), EINVAL);
    CHECK(g_api->dump_fd_stats(fd, 5) == 0 && g_api->dump_fd_stats(0, 5) == 0);
    vma_ring_type_attr profile = {};
    profile.ring_type = VMA_RING_EXTERNAL_MEM;
    CHECK(g_api->vma_add_ring_profile(&profile, &key) == 0 && key > 0);
    FAILS(g_api->vma_add_ring_profile(nullptr, &key), EINVAL);
    FAILS(g_api->vma_add_ring_profile(&profile, nullptr), EINVAL);
    vma_modify_ring_attr modify = {};
    modify.ring_fd = -1;
    FAILS(g_api->vma_modify_ring(nullptr), EINVAL);
    FAILS(g_api->vma_modify_ring(&modify), EINVAL);
    std::uint32_t lkey = 0;
    FAILS(g_api->register_memory_on_ring(ring, nullptr, 1, &lkey), EINVAL);
    FAILS(g_api->deregister_memory_on_ring(-1, buffer, 1), EINVAL);
    FAILS(g_api->get_ring_direct_descriptors(ring, nullptr), EINVAL);
    FAILS(g_api->get_socket_network_header(fd, nullptr, nullptr), EINVAL);
    FAILS(g_api->ioctl(nullptr, 0), EINVAL);
    FAILS(::send(fd, buffer, 4, VMA_SND_FLAGS_DUMMY), EINVAL); // it is not accelerated
    FAILS(::sendto(1, buffer, 4, VMA_SND_FLAGS_DUMMY, nullptr, 0), EINVAL);
    // What the kernel brings is a plain receive, or an error that takes nothing.
    CHECK(::sendto(fd, "hello", 5, 0, generic(here), sizeof here) == 5);
    pollfd p = {fd, POLLIN, 0};
    CHECK(::poll(&p, 1, 20000) == 1);
    flags = MSG_VMA_ZCOPY_FORCE;
    FAILS(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr), EIO);
    flags = 0;
    CHECK(g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, nullptr, nullptr) == 5 && flags == 0);
    CHECK(std::memcmp(buffer, "hello", 5) == 0);
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

// A vma_packet_t of one part.
struct Head {
    void *id = nullptr;
    std::size_t parts = 1;
    iovec part = {};
    vma_packet_t *packet() { return reinterpret_cast<vma_packet_t *>(this); }
};
static_assert(sizeof(Head) == sizeof(vma_packet_t) + sizeof(iovec));

struct Held {
    Head head;
    std::uint32_t number;
};

const char *g_port = nullptr; // of this host, for a sender elsewhere

int receiver_of_numbers()
{
    sockaddr_in here = {};
    if (g_port == nullptr) {
        const int way = start_peer(send_numbers);
        const int fd = bound(SOCK_DGRAM, here);
        CHECK(::write(way, &here, sizeof here) == sizeof here);
        return fd;
    }
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    here.sin_family = AF_INET;
    here.sin_port = htons(static_cast<std::uint16_t>(std::atoi(g_port)));
    CHECK(fd >= 0 && ::bind(fd, generic(here), sizeof here) == 0);
    return fd;
}

// Datagrams are held, in all orders, while others come and are freed at once.
void udp_zcopy()
{
    const int fd = receiver_of_numbers();
    const unsigned enough = g_port == nullptr ? 100000 : 20000;
    sockaddr_in here = {};
    const time_t begin = std::time(nullptr);
    std::vector<Held> held;
    char buffer[2048];
    unsigned lent = 0, copied = 0;
    std::uint32_t last = 0;
    while (lent < enough && !is_time_over(begin)) {
        int flags = 0;
        sockaddr_in from = {};
        socklen_t size = sizeof from;
        const int n = g_api->recvfrom_zcopy(fd, buffer, sizeof buffer, &flags, generic(from), &size);
        CHECK(n > 0 && size == sizeof from && from.sin_family == AF_INET && from.sin_port != 0);
        if ((flags & MSG_VMA_ZCOPY) == 0) {
            number_of(buffer, static_cast<std::size_t>(n));
            ++copied;
            continue;
        }
        auto *const packets = reinterpret_cast<vma_packets_t *>(buffer);
        CHECK(packets->n_packet_num == 1 && packets->pkts[0].sz_iov == 1);
        Held one = {};
        std::memcpy(one.head.packet(), packets->pkts, sizeof one.head);
        CHECK(one.head.part.iov_len == static_cast<std::size_t>(n));
        one.number = number_of(one.head.part.iov_base, one.head.part.iov_len);
        CHECK(lent == 0 || one.number > last);
        last = one.number;
        ++lent;
        held.push_back(one);
        if (held.size() < 300 && lent % 7 != 0)
            continue;
        const std::size_t place = lent * 2654435761U % held.size();
        CHECK(number_of(held[place].head.part.iov_base, held[place].head.part.iov_len) == held[place].number);
        CHECK(g_api->free_packets(fd, held[place].head.packet(), 1) == 0);
        FAILS(g_api->free_packets(fd, held[place].head.packet(), 1), ENOENT);
        held[place] = held.back();
        held.pop_back();
    }
    std::printf("lent %u, copied %u, held %zu\n", lent, copied, held.size());
    CHECK(lent != 0);
    Held old = held.empty() ? Held{} : held[0];
    const int other = bound(SOCK_DGRAM, here);
    FAILS(g_api->free_packets(other, old.head.packet(), 1), ENOENT);
    ::close(fd); // all that is held ends
    FAILS(g_api->free_packets(fd, old.head.packet(), 1), EINVAL);
    FAILS(g_api->free_packets(other, old.head.packet(), 1), ENOENT);
    if (g_port == nullptr)
        end_peer();
}

vma_recv_callback_retval_t judge(int, std::size_t parts, iovec part[], vma_info_t *info, void *context)
{
    auto &held = *static_cast<std::vector<void *> *>(context);
    CHECK(parts == 1 && info->struct_sz == sizeof *info && info->payload_sz == part[0].iov_len);
    CHECK(info->src->sin_family == AF_INET && info->src->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(info->dst->sin_family == AF_INET && info->dst->sin_port != 0);
    const std::uint32_t number = number_of(part[0].iov_base, part[0].iov_len);
    if (number % 3 == 0)
        return VMA_PACKET_DROP;
    if (number % 3 == 1)
        return VMA_PACKET_RECV;
    CHECK(info->packet_id != nullptr);
    held.push_back(info->packet_id);
    return VMA_PACKET_HOLD;
}

void udp_callback()
{
    const int way = start_peer(send_numbers);
    sockaddr_in here = {};
    const int fd = bound(SOCK_DGRAM, here);
    std::vector<void *> held;
    CHECK(g_api->register_recv_callback(fd, judge, &held) == 0);
    CHECK(::write(way, &here, sizeof here) == sizeof here);
    const time_t begin = std::time(nullptr);
    unsigned count = 0, freed = 0;
    char buffer[2048];
    while (count < 30000 && !is_time_over(begin)) {
        if (count % 3 == 0) {
            pollfd p = {fd, POLLIN, 0};
            CHECK(::poll(&p, 1, 20000) == 1 && p.revents == POLLIN);
        }
        const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
        CHECK(n > 0 && number_of(buffer, static_cast<std::size_t>(n)) % 3 == 1);
        ++count;
        while (held.size() > 20) {
            vma_packet_t packet = {};
            packet.packet_id = held.back();
            held.pop_back();
            CHECK(g_api->free_packets(fd, &packet, 1) == 0);
            ++freed;
        }
    }
    CHECK(g_api->register_recv_callback(fd, nullptr, nullptr) == 0);
    for (int i = 0; i < 300; ++i)
        CHECK(::recv(fd, buffer, sizeof buffer, 0) > 0);
    std::printf("received %u, held and freed %u\n", count, freed);
    CHECK(count > 0 && freed > 0);
    end_peer();
}

// A stream of numbers, as fast as it goes.
void send_stream(sockaddr_in to)
{
    static std::uint32_t words[16384];
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    std::uint32_t next = 0;
    for (unsigned round = 0; round < 3000; ++round) {
        const std::size_t count = round < 100 ? 16 : 1 + round * 2654435761U % 16384;
        for (std::size_t i = 0; i < count; ++i)
            words[i] = next++;
        const auto *at = reinterpret_cast<const char *>(words);
        for (std::size_t left = count * sizeof *words; left != 0;) {
            const ssize_t n = ::send(fd, at, left, 0);
            CHECK(n > 0);
            at += n;
            left -= static_cast<std::size_t>(n);
        }
        if (round < 200)
            ::usleep(1000); // until both are accelerated
    }
    ::shutdown(fd, SHUT_WR);
    char byte = 0;
    static_cast<void>(::read(fd, &byte, 1));
}

class Words
{
public:
    void take(const void *data, std::size_t length)
    {
        const auto *const bytes = static_cast<const unsigned char *>(data);
        for (std::size_t i = 0; i < length; ++i, ++place_)
            CHECK(bytes[i] == static_cast<unsigned char>(place_ / 4 >> place_ % 4 * 8));
    }
    std::uint64_t place() const { return place_; }

private:
    std::uint64_t place_ = 0;
};

void check_again(const iovec &part, std::uint64_t place)
{
    const auto *const bytes = static_cast<const unsigned char *>(part.iov_base);
    for (std::size_t i = 0; i < part.iov_len; ++i, ++place)
        CHECK(bytes[i] == static_cast<unsigned char>(place / 4 >> place % 4 * 8));
}

struct Piece {
    Head head;
    std::uint64_t place;
};

void tcp_zcopy()
{
    const int way = start_peer(send_stream);
    sockaddr_in here = {};
    const int listener = bound(SOCK_STREAM, here);
    CHECK(::listen(listener, 1) == 0 && ::write(way, &here, sizeof here) == sizeof here);
    const int fd = ::accept(listener, nullptr, nullptr);
    CHECK(fd >= 0);
    Words words;
    std::vector<Piece> held;
    std::vector<char> room(65536);
    unsigned lent = 0, copied = 0;
    for (;;) {
        int flags = 0;
        const int n = g_api->recvfrom_zcopy(fd, room.data(), room.size(), &flags, nullptr, nullptr);
        CHECK(n >= 0);
        if (n == 0)
            break;
        if ((flags & MSG_VMA_ZCOPY) == 0) {
            words.take(room.data(), static_cast<std::size_t>(n));
            ++copied;
            for (; !held.empty(); held.pop_back()) // else there is no credit for it, and the rest comes by the kernel
                CHECK(g_api->free_packets(fd, held.back().head.packet(), 1) == 0);
            continue;
        }
        std::size_t count = 0;
        std::memcpy(&count, room.data(), sizeof count);
        const char *at = room.data() + sizeof count;
        for (std::size_t i = 0; i < count; ++i, at += sizeof(vma_packet_t) + sizeof(iovec)) {
            Piece one = {};
            std::memcpy(one.head.packet(), at, sizeof one.head);
            one.place = words.place();
            words.take(one.head.part.iov_base, one.head.part.iov_len);
            held.push_back(one);
            ++lent;
        }
        while (held.size() > lent % 5) {
            const std::size_t place = lent * 2654435761U % held.size();
            check_again(held[place].head.part, held[place].place);
            CHECK(g_api->free_packets(fd, held[place].head.packet(), 1) == 0);
            held[place] = held.back();
            held.pop_back();
        }
    }
    std::printf("lent %u, copied %u, bytes %llu\n", lent, copied, static_cast<unsigned long long>(words.place()));
    std::fflush(stdout);
    CHECK(lent > 100);
    for (const Piece &one : held)
        check_again(one.head.part, one.place);
    ::close(fd);
    end_peer();
}

// A fork takes the connection back to the kernel: what is held of its ring stays, for the parent.
void tcp_held_over_fork()
{
    const int way = start_peer(send_stream);
    sockaddr_in here = {};
    const int listener = bound(SOCK_STREAM, here);
    CHECK(::listen(listener, 1) == 0 && ::write(way, &here, sizeof here) == sizeof here);
    const int fd = ::accept(listener, nullptr, nullptr);
    Words words;
    std::vector<Piece> held;
    std::vector<char> room(65536);
    for (int n = 1, flags = 0; n > 0; flags = 0) {
        n = g_api->recvfrom_zcopy(fd, room.data(), room.size(), &flags, nullptr, nullptr);
        CHECK(n >= 0);
        if ((flags & MSG_VMA_ZCOPY) == 0) {
            words.take(room.data(), static_cast<std::size_t>(n));
            continue;
        }
        std::size_t count = 0;
        std::memcpy(&count, room.data(), sizeof count);
        const char *at = room.data() + sizeof count;
        for (std::size_t i = 0; i < count; ++i, at += sizeof(vma_packet_t) + sizeof(iovec)) {
            Piece one = {};
            std::memcpy(one.head.packet(), at, sizeof one.head);
            one.place = words.place();
            words.take(one.head.part.iov_base, one.head.part.iov_len);
            if (held.size() < 3)
                held.push_back(one);
            else
                CHECK(g_api->free_packets(fd, one.head.packet(), 1) == 0);
        }
        if (held.size() == 3) {
            const pid_t child = ::fork();
            if (child == 0) {
                FAILS(g_api->free_packets(fd, held[0].head.packet(), 1), ENOENT); // they are the parent's
                std::_Exit(0);
            }
            int status = -1;
            CHECK(::waitpid(child, &status, 0) == child && status == 0);
            for (Piece &one : held) {
                check_again(one.head.part, one.place);
                CHECK(g_api->free_packets(fd, one.head.packet(), 1) == 0);
            }
            held.clear();
            held.resize(4);
        }
    }
    CHECK(held.size() == 4);
    end_peer();
}

struct Scenario {
    const char *name;
    void (*run)();
};

constexpr Scenario kScenarios[] = {
    {"table", table},         {"options", options},           {"calls", calls},
    {"allocator", allocator}, {"threads", threads},           {"udp_zcopy", udp_zcopy},
    {"tcp_zcopy", tcp_zcopy}, {"udp_callback", udp_callback}, {"tcp_held_over_fork", tcp_held_over_fork},
};

} // namespace

int main(int argc, char **argv)
{
    if (argc > 3 && std::strcmp(argv[1], "send") == 0) {
        sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[3])));
        CHECK(::inet_pton(AF_INET, argv[2], &to.sin_addr) == 1);
        send_numbers(to);
    }
    g_port = argc > 2 ? argv[2] : nullptr;
    g_api = vma_get_api();
    if (g_api == nullptr) {
        std::fputs("no extra API\n", stderr);
        return 1;
    }
    for (const Scenario &scenario : kScenarios)
        if (argc > 1 && std::strcmp(argv[1], scenario.name) == 0) {
            scenario.run();
            return 0;
        }
    std::fputs("which scenario?\n", stderr);
    return 2;
}
