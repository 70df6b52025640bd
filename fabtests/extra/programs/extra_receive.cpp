// SPDX-License-Identifier: BSD-2-Clause
// What receives: without a copy, by a callback, by SocketXtreme.
#include "fabtests/extra/programs/extra_api.hpp"

namespace extra_test {

namespace {

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

} // namespace

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

namespace {

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

} // namespace

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

namespace {

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

} // namespace

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
        CHECK(::send(fd, "not sent", 8, VMA_SND_FLAGS_DUMMY) == 8); // what the peer would take for its end
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
    CHECK(lent != 0);
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
    bool forked = false;
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
            if (!forked)
                held.push_back(one);
            else
                CHECK(g_api->free_packets(fd, one.head.packet(), 1) == 0);
        }
        if (!forked) {
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
            forked = true;
        }
    }
    CHECK(forked);
    end_peer();
}

} // namespace extra_test
