// SPDX-License-Identifier: BSD-2-Clause
// What receives a stream without a copy, on this host or by a port.
#include "fabtests/extra/programs/extra_api.hpp"
#include "fabtests/patience.hpp"

#include <algorithm>
#include <thread>

namespace extra_test {

namespace {

constexpr unsigned kSmall = 200;                                        // messages, at least
const auto kPatience = static_cast<unsigned>(patience::milliseconds()); // of them: then the receiver finds out
constexpr unsigned kLarge = 2900;
constexpr std::uint32_t kFew = 16;     // words of a small message
constexpr std::uint32_t kMany = 16384; // of a large one, at most

constexpr std::uint32_t words_of(unsigned large_round)
{
    return 1 + large_round * 2654435761U % kMany;
}

constexpr std::uint32_t words_of_stream()
{
    std::uint32_t words = kPatience * kFew;
    for (unsigned round = 0; round < kLarge; ++round)
        words += words_of(round);
    return words;
}

void send_words(int fd, std::size_t count, std::uint32_t &next)
{
    static std::uint32_t words[kMany];
    for (std::size_t i = 0; i < count; ++i)
        words[i] = next++;
    const auto *at = reinterpret_cast<const char *>(words);
    for (std::size_t left = count * sizeof *words; left != 0;) {
        const ssize_t n = ::send(fd, at, left, 0);
        CHECK(n > 0);
        at += n;
        left -= static_cast<std::size_t>(n);
    }
}

// A millisecond, or less where the receiver says meanwhile that it is ready. True once it has.
bool is_told(int fd, bool told)
{
    pollfd p = {fd, POLLIN, 0};
    char byte = 0;
    return ::poll(&p, told ? 0 : 1, 1) == 1 ? ::read(fd, &byte, 1) == 1 : told;
}

} // namespace

// A stream of numbers: a few at a time until the receiver sends a byte (see be_ready()), then as fast as it goes. It
// has always the same length, by which a receiver on a port knows when it has all. It says so before the stream ends:
// with its end a stream leaves the port, and what is unread then comes by the kernel, more of it the slower the
// receiver is.
void send_stream(sockaddr_in to)
{
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    std::uint32_t next = 0;
    bool told = false;
    for (unsigned round = 0; round < kSmall || (!told && round < kPatience); ++round) {
        send_words(fd, kFew, next);
        told = is_told(fd, told);
    }
    while (next < kPatience * kFew)
        send_words(fd, std::min(kMany, kPatience * kFew - next), next);
    for (unsigned round = 0; round < kLarge; ++round)
        send_words(fd, words_of(round), next);
    char byte = 0;
    if (g_port != nullptr)
        CHECK(::read(fd, &byte, 1) == 1);
    ::shutdown(fd, SHUT_WR);
    static_cast<void>(::read(fd, &byte, 1));
}

void be_ready(int fd)
{
    CHECK(::send(fd, "r", 1, 0) == 1);
}

namespace {

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

// Of a peer of its own, or of the first one that comes to g_port.
int receiver_of_stream()
{
    const int way = g_port == nullptr ? start_peer(send_stream) : -1;
    sockaddr_in here = {};
    int listener = -1;
    if (g_port == nullptr) {
        listener = bound(SOCK_STREAM, here);
    } else {
        const int on = 1;
        listener = ::socket(AF_INET, SOCK_STREAM, 0);
        here.sin_family = AF_INET;
        here.sin_port = htons(static_cast<std::uint16_t>(std::atoi(g_port)));
        CHECK(::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        CHECK(::bind(listener, generic(here), sizeof here) == 0);
    }
    CHECK(::listen(listener, 1) == 0);
    std::puts("listening");
    std::fflush(stdout);
    CHECK(way < 0 || ::write(way, &here, sizeof here) == sizeof here);
    const int fd = ::accept(listener, nullptr, nullptr);
    CHECK(fd >= 0);
    ::close(listener);
    return fd;
}

// One receive: its packets, or bytes that were copied.
bool receive_pieces(int fd, Words &words, std::vector<Piece> &pieces)
{
    static char room[65536];
    int flags = 0;
    const int n = g_api->recvfrom_zcopy(fd, room, sizeof room, &flags, nullptr, nullptr);
    CHECK(n >= 0);
    pieces.clear();
    if ((flags & MSG_VMA_ZCOPY) == 0) {
        words.take(room, static_cast<std::size_t>(n));
        return n != 0;
    }
    std::size_t count = 0;
    std::memcpy(&count, room, sizeof count);
    const char *at = room + sizeof count;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i, at += sizeof(vma_packet_t) + sizeof(iovec)) {
        Piece one = {};
        std::memcpy(one.head.packet(), at, sizeof one.head);
        const char *const data = static_cast<const char *>(one.head.part.iov_base);
        CHECK(data + one.head.part.iov_len <= room || data >= room + sizeof room); // where it arrived
        one.place = words.place();
        words.take(data, one.head.part.iov_len);
        bytes += one.head.part.iov_len;
        pieces.push_back(one);
    }
    CHECK(bytes == static_cast<std::size_t>(n));
    return true;
}

// The next receive. False: the end. The sender is told of the first packets: it is long after the connection, where a
// port has to be opened for it. What a port brings is waited for: bytes that are there before the receive are lent,
// while those that come amid it may be copied, and how many that are is luck.
bool go_on(int fd, Words &words, std::vector<Piece> &pieces)
{
    static bool ready = false;
    pollfd input = {fd, POLLIN, 0};
    if (g_port != nullptr)
        CHECK(::poll(&input, 1, -1) == 1);
    if (!receive_pieces(fd, words, pieces))
        return false;
    if (!ready && !pieces.empty()) {
        be_ready(fd);
        ready = true;
    }
    if (g_port != nullptr && words.place() == std::uint64_t{words_of_stream()} * sizeof(std::uint32_t))
        CHECK(::send(fd, "a", 1, 0) == 1);
    return true;
}

} // namespace

void tcp_zcopy()
{
    const int fd = receiver_of_stream();
    Words words;
    std::vector<Piece> held;
    std::vector<Piece> pieces;
    unsigned lent = 0, copied = 0;
    while (go_on(fd, words, pieces)) {
        if (pieces.empty()) {
            copied += lent != 0 ? 1 : 0;           // before that the kernel has the connection
            for (; !held.empty(); held.pop_back()) // else there is no credit for it, and the rest comes by the kernel
                CHECK(g_api->free_packets(fd, held.back().head.packet(), 1) == 0);
            continue;
        }
        held.insert(held.end(), pieces.begin(), pieces.end());
        lent += static_cast<unsigned>(pieces.size());
        if (g_port == nullptr) // what the peer would take for its end
            CHECK(::send(fd, "not sent", 8, VMA_SND_FLAGS_DUMMY) == 8);
        while (held.size() > lent % 5) {
            const std::size_t place = std::size_t{lent} * 2654435761U % held.size();
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
    if (g_port == nullptr)
        end_peer();
}

// A fork takes the connection back to the kernel: what is held of its ring stays, for the parent.
void tcp_held_over_fork()
{
    const int fd = receiver_of_stream();
    Words words;
    std::vector<Piece> held;
    bool forked = false;
    std::vector<Piece> pieces;
    while (go_on(fd, words, pieces)) {
        if (pieces.empty())
            continue;
        if (!forked)
            held = pieces;
        for (Piece &one : pieces)
            if (forked)
                CHECK(g_api->free_packets(fd, one.head.packet(), 1) == 0);
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
    if (g_port == nullptr)
        end_peer();
}

// Nothing is given back before the end, and then by another thread: half is lent at most, the rest is copied, and all
// is whole.
void tcp_kept()
{
    const int fd = receiver_of_stream();
    Words words;
    std::vector<Piece> held;
    std::vector<Piece> pieces;
    unsigned copied = 0;
    while (go_on(fd, words, pieces)) {
        held.insert(held.end(), pieces.begin(), pieces.end());
        copied += pieces.empty() ? 1 : 0;
    }
    std::printf("lent %zu, copied %u, bytes %llu\n", held.size(), copied,
                static_cast<unsigned long long>(words.place()));
    std::fflush(stdout);
    CHECK(!held.empty() && copied != 0);
    for (const Piece &one : held)
        check_again(one.head.part, one.place);
    std::thread([&] {
        for (std::size_t i = 0; i < held.size(); i += 2)
            CHECK(g_api->free_packets(fd, held[i].head.packet(), 1) == 0);
    }).join();
    for (std::size_t i = 1; i < held.size(); i += 2)
        check_again(held[i].head.part, held[i].place);
    ::close(fd); // ends the others
    if (g_port == nullptr)
        end_peer();
}

} // namespace extra_test
