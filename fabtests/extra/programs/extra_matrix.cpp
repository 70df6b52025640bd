// SPDX-License-Identifier: BSD-2-Clause
// Every entry of the API on one receiving socket, TCP or UDP, IPv4 or IPv6, before it is accelerated or after, called
// by the program and by its receive callback. A peer sends one message when it is told to, so that what each call has
// to find is known.
#include <sys/socket.h>

#include "fabtests/extra/programs/extra_api.hpp"
#include "fabtests/patience.hpp"

namespace extra_test {

namespace {

constexpr std::size_t kSize = 64;
const int kPatience = patience::milliseconds();

bool is_set(const char *name)
{
    const char *const value = std::getenv(name);
    CHECK(value != nullptr);
    return std::strcmp(value, "1") == 0;
}

struct Name {
    sockaddr_storage at = {};
    socklen_t size = sizeof at;
    sockaddr *generic() { return reinterpret_cast<sockaddr *>(&at); }
    bool is(const void *other) const { return std::memcmp(&at, other, size) == 0; }
};

struct Stage {
    bool tcp = is_set("MATRIX_TCP");
    bool v6 = is_set("MATRIX_V6");
    bool accelerated = is_set("MATRIX_ACCELERATED");
    int fd = -1;    // that receives
    int order = -1; // to the peer
    Name here;
    Name peer;
    unsigned asked = 0; // the callback was, of this socket's messages
    vma_recv_callback_retval_t verdict = VMA_PACKET_RECV;
    void *held = nullptr;
};

int loopback_socket(const Stage &stage, Name &name)
{
    const int fd = ::socket(stage.v6 ? AF_INET6 : AF_INET, stage.tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    name.size = stage.v6 ? sizeof v6 : sizeof v4;
    std::memcpy(&name.at, stage.v6 ? static_cast<void *>(&v6) : &v4, name.size);
    CHECK(fd >= 0 && ::bind(fd, name.generic(), name.size) == 0 && ::getsockname(fd, name.generic(), &name.size) == 0);
    return fd;
}

// A message for each byte that comes by `orders`.
[[noreturn]] void send_as_told(Stage &stage, int orders, Name &to)
{
    const int fd = loopback_socket(stage, stage.peer);
    if (stage.tcp)
        CHECK(::connect(fd, to.generic(), to.size) == 0);
    CHECK(::write(orders, &stage.peer, sizeof stage.peer) == sizeof stage.peer);
    char message[kSize];
    for (char letter = 0; ::read(orders, &letter, 1) == 1;) {
        std::memset(message, letter, sizeof message);
        CHECK(::sendto(fd, message, sizeof message, 0, stage.tcp ? nullptr : to.generic(), stage.tcp ? 0 : to.size) ==
              kSize);
    }
    std::_Exit(0);
}

void begin(Stage &stage)
{
    int ends[2];
    const int bound = loopback_socket(stage, stage.here);
    CHECK(!stage.tcp || ::listen(bound, 1) == 0);
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    g_peer = ::fork();
    CHECK(g_peer >= 0);
    if (g_peer == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(ends[0]);
        ::close(bound);
        send_as_told(stage, ends[1], stage.here);
    }
    ::close(ends[1]);
    stage.order = ends[0];
    CHECK(::read(stage.order, &stage.peer, sizeof stage.peer) == sizeof stage.peer);
    stage.fd = stage.tcp ? ::accept(bound, nullptr, nullptr) : bound;
    CHECK(stage.fd >= 0 && (!stage.tcp || ::close(bound) == 0));
}

void order(const Stage &stage, char letter)
{
    pollfd p = {stage.fd, POLLIN, 0};
    CHECK(::write(stage.order, &letter, 1) == 1);
    CHECK(::poll(&p, 1, kPatience) == 1 && p.revents == POLLIN);
}

// One message by recvfrom_zcopy(). Whether it was lent; then it is given back.
bool take(const Stage &stage, char letter, int flags)
{
    alignas(std::size_t) char room[sizeof(vma_packets_t) + 2 * sizeof(Head)] = {};
    Name from;
    const int n = g_api->recvfrom_zcopy(stage.fd, room, sizeof room, &flags, from.generic(), &from.size);
    const bool lent = (flags & MSG_VMA_ZCOPY) != 0;
    CHECK(n == kSize || (!lent && n == static_cast<int>(sizeof room)));
    Head head;
    std::memcpy(head.packet(), room + sizeof(vma_packets_t), sizeof head);
    const char *const bytes = lent ? static_cast<const char *>(head.part.iov_base) : room;
    CHECK(!lent || head.part.iov_len == kSize);
    CHECK(bytes[0] == letter && bytes[kSize - 1] == letter);
    CHECK((!lent && stage.tcp) || stage.peer.is(&from.at)); // the kernel names nobody of a stream
    if (lent) {
        CHECK(g_api->free_packets(stage.fd, head.packet(), 1) == 0);
        FAILS(g_api->free_packets(stage.fd, head.packet(), 1), ENOENT);
    }
    return lent;
}

void reach_state(const Stage &stage)
{
    const time_t start = std::time(nullptr);
    bool lent = false;
    for (unsigned count = 0; count < 40 || lent != stage.accelerated; ++count) {
        order(stage, 's');
        lent = take(stage, 's', 0);
        CHECK(!is_time_over(start) && (stage.accelerated || !lent));
    }
}

// ---- the entries that take nothing

void rings(const Stage &stage)
{
    int ring = -1;
    char bytes[64] = {};
    std::uint32_t key = 0;
    std::uint16_t room = sizeof bytes;
    CHECK(g_api->get_socket_rings_num(stage.fd) == 1 && g_api->get_socket_rings_fds(stage.fd, &ring, 1) == 1);
    CHECK(ring >= 0 && g_api->get_socket_tx_ring_fd(stage.fd, nullptr, 0) == ring);
    vma_modify_ring_attr modify = {};
    modify.ring_fd = ring;
    modify.comp_bit_mask = VMA_MODIFY_RING_CQ_MODERATION;
    modify.cq_moderation = {48, 50};
    CHECK(g_api->vma_modify_ring(&modify) == 0);
    FAILS(g_api->register_memory_on_ring(ring, bytes, sizeof bytes, &key), EOPNOTSUPP);
    FAILS(g_api->deregister_memory_on_ring(ring, bytes, sizeof bytes), ENOENT);
    vma_mlx_hw_device_data data = {};
    FAILS(g_api->get_ring_direct_descriptors(ring, &data), EOPNOTSUPP);
    FAILS(g_api->get_socket_network_header(stage.fd, bytes, &room), ENOTCONN); // there is no port
    vma_completion_t completion = {};
    vma_buff_t buffer = {};
    FAILS(g_api->socketxtreme_poll(ring, &completion, 1, 0), EOPNOTSUPP); // without VMA_SOCKETXTREME
    FAILS(g_api->socketxtreme_free_vma_packets(&completion.packet, 1), EOPNOTSUPP);
    FAILS(g_api->socketxtreme_ref_vma_buff(&buffer), EOPNOTSUPP);
    FAILS(g_api->socketxtreme_free_vma_buff(&buffer), EOPNOTSUPP);
    vma_ring_type_attr profile = {};
    int number = 0;
    CHECK(g_api->vma_add_ring_profile(&profile, &number) == 0 && number > 0);
}

void settings(const Stage &stage)
{
    std::uint64_t data = 0x1122334455667788;
    std::uint32_t tag = 7;
    socklen_t size = sizeof data;
    CHECK(::setsockopt(stage.fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, sizeof data) == 0);
    CHECK(::getsockopt(stage.fd, SOL_SOCKET, SO_VMA_USER_DATA, &data, &size) == 0 && data == 0x1122334455667788);
    CHECK(::setsockopt(stage.fd, SOL_SOCKET, SO_VMA_FLOW_TAG, &tag, sizeof tag) == 0);
    CHECK(g_api->add_conf_rule("use vma tcp_server 192.0.2.1:1") == 0);
    CHECK(g_api->thread_offload(1, ::pthread_self()) == 0);
    CHECK(g_api->dump_fd_stats(stage.fd, 5) == 0);
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(vma_cmsg_ioctl_user_alloc_t))] = {};
    auto *const header = reinterpret_cast<cmsghdr *>(room);
    const vma_cmsg_ioctl_user_alloc_t wanted = {VMA_IOCTL_USER_ALLOC_FLAG_RX, std::malloc, std::free};
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = CMSG_VMA_IOCTL_USER_ALLOC;
    header->cmsg_len = CMSG_LEN(sizeof wanted);
    std::memcpy(CMSG_DATA(header), &wanted, sizeof wanted);
    FAILS(g_api->ioctl(header, header->cmsg_len), EINVAL); // there are sockets
    char bytes[16] = {};
    if (stage.tcp && stage.accelerated)
        CHECK(::send(stage.fd, bytes, sizeof bytes, VMA_SND_FLAGS_DUMMY) == sizeof bytes);
    else if (stage.tcp)
        FAILS(::send(stage.fd, bytes, sizeof bytes, VMA_SND_FLAGS_DUMMY), EINVAL);
}

// Nothing is there: in a callback, what it is asked about is on its way still.
void nothing_to_receive(const Stage &stage)
{
    char room[128];
    int flags = MSG_DONTWAIT;
    pollfd p = {stage.fd, POLLIN, 0};
    FAILS(::recv(stage.fd, room, sizeof room, MSG_DONTWAIT), EAGAIN);
    FAILS(g_api->recvfrom_zcopy(stage.fd, room, sizeof room, &flags, nullptr, nullptr), EAGAIN);
    flags = MSG_DONTWAIT | MSG_VMA_ZCOPY_FORCE;
    FAILS(g_api->recvfrom_zcopy(stage.fd, room, sizeof room, &flags, nullptr, nullptr), EAGAIN);
    CHECK(::poll(&p, 1, 0) == 0);
    Head none;
    none.id = &none;
    FAILS(g_api->free_packets(stage.fd, none.packet(), 1), ENOENT);
}

// ---- the callback

vma_recv_callback_retval_t answer(int fd, std::size_t count, iovec part[], vma_info_t *info, void *context)
{
    Stage &stage = *static_cast<Stage *>(context);
    CHECK(fd == stage.fd && count == 1 && info->struct_sz == sizeof *info && info->payload_sz == kSize);
    CHECK(part[0].iov_len == kSize && *static_cast<char *>(part[0].iov_base) == 'c');
    CHECK(stage.peer.is(info->src) && stage.here.is(info->dst));
    CHECK(++stage.asked <= 1); // of each message once
    rings(stage);
    settings(stage);
    nothing_to_receive(stage);
    CHECK(g_api->register_recv_callback(fd, nullptr, nullptr) == 0);
    CHECK(g_api->register_recv_callback(fd, answer, context) == 0);
    stage.held = stage.verdict == VMA_PACKET_HOLD ? info->packet_id : nullptr;
    return stage.verdict;
}

void give_back(Stage &stage)
{
    Head held;
    held.id = stage.held;
    CHECK(held.id != nullptr && g_api->free_packets(stage.fd, held.packet(), 1) == 0);
    FAILS(g_api->free_packets(stage.fd, held.packet(), 1), ENOENT);
}

ssize_t receive_by(const Stage &stage, unsigned way, char *room, std::size_t size)
{
    iovec part = {room, size};
    mmsghdr message = {};
    message.msg_hdr.msg_iov = &part;
    message.msg_hdr.msg_iovlen = 1;
    pollfd p = {stage.fd, POLLIN, 0};
    switch (way) {
    case 0:
        return ::recv(stage.fd, room, size, 0);
    case 1:
        return ::poll(&p, 1, kPatience) == 1 ? ::read(stage.fd, room, size) : -1;
    case 2:
        return ::recvmmsg(stage.fd, &message, 1, 0, nullptr) == 1 ? static_cast<ssize_t>(message.msg_len) : -1;
    default:
        return ::recvmsg(stage.fd, &message.msg_hdr, 0);
    }
}

void order_asking(Stage &stage, vma_recv_callback_retval_t verdict)
{
    const char letter = 'c';
    stage.asked = 0;
    stage.verdict = verdict;
    CHECK(::write(stage.order, &letter, 1) == 1);
}

// Until the callback has been asked: nothing but that tells of a message that is not for the program.
void wait_for_nothing(Stage &stage)
{
    const time_t start = std::time(nullptr);
    char room[kSize];
    while (stage.asked == 0) {
        pollfd p = {stage.fd, POLLIN, 0};
        ::poll(&p, 1, 10);
        FAILS(::recv(stage.fd, room, sizeof room, MSG_DONTWAIT), EAGAIN);
        CHECK(!is_time_over(start));
    }
}

void callbacks(Stage &stage)
{
    char room[kSize];
    CHECK(g_api->register_recv_callback(stage.fd, answer, &stage) == 0);
    for (unsigned way = 0; way < 4; ++way) {
        order_asking(stage, VMA_PACKET_RECV);
        CHECK(receive_by(stage, way, room, sizeof room) == kSize && room[0] == 'c' && stage.asked == 1);
        nothing_to_receive(stage);
    }
    order_asking(stage, VMA_PACKET_RECV); // by a zero-copy receive, of what a wait has let through, too
    take(stage, 'c', 0);
    CHECK(stage.asked == 1);
    order_asking(stage, VMA_PACKET_RECV);
    pollfd p = {stage.fd, POLLIN, 0};
    CHECK(::poll(&p, 1, kPatience) == 1);
    take(stage, 'c', 0);
    CHECK(stage.asked == 1);
    order_asking(stage, VMA_PACKET_DROP);
    wait_for_nothing(stage);
    order_asking(stage, VMA_PACKET_HOLD);
    wait_for_nothing(stage);
    give_back(stage);
    CHECK(g_api->register_recv_callback(stage.fd, nullptr, nullptr) == 0);
}

} // namespace

void matrix()
{
    Stage stage;
    begin(stage);
    reach_state(stage);
    rings(stage);
    settings(stage);
    nothing_to_receive(stage);
    order(stage, 'f');
    char room[kSize];
    int flags = MSG_VMA_ZCOPY_FORCE;
    if (!stage.accelerated)
        FAILS(g_api->recvfrom_zcopy(stage.fd, room, sizeof room, &flags, nullptr, nullptr), EIO);
    CHECK(take(stage, 'f', stage.accelerated ? MSG_VMA_ZCOPY_FORCE : 0) == stage.accelerated);
    callbacks(stage);
    order(stage, 'e');
    CHECK(::recv(stage.fd, room, sizeof room, 0) == kSize && room[0] == 'e' && stage.asked <= 1);
    CHECK(::close(stage.fd) == 0);
    FAILS(g_api->register_recv_callback(stage.fd, answer, &stage), EINVAL);
    FAILS(g_api->get_socket_rings_num(stage.fd), EINVAL);
    end_peer();
}

} // namespace extra_test
