// SPDX-License-Identifier: BSD-2-Clause
// SocketXtreme, with VMA_SOCKETXTREME=1: one socket, many of both kinds, many threads, a program that gives nothing
// back.
#include <atomic>
#include <mutex>
#include <thread>

#include "fabtests/extra/programs/extra_api.hpp"

namespace extra_test {

void xtreme()
{
    const int fd = receiver_of_numbers();
    int ring = -1;
    vma_completion_t completions[4];
    std::uint64_t mark = 0x8877665544332211;
    CHECK(g_api->get_socket_rings_fds(fd, &ring, 1) == 1);
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &mark, sizeof mark) == 0);
    FAILS(g_api->socketxtreme_poll(fd, completions, 4, 0), EBADFD);
    FAILS(g_api->socketxtreme_poll(-1, completions, 4, 0), EBADFD);
    FAILS(g_api->socketxtreme_poll(ring, nullptr, 4, 0), EINVAL);
    FAILS(g_api->socketxtreme_poll(ring, completions, 0, 0), EINVAL);
    FAILS(g_api->socketxtreme_free_vma_packets(nullptr, 1), EINVAL);
    vma_buff_t none = {};
    FAILS(g_api->socketxtreme_ref_vma_buff(&none), EINVAL);
    FAILS(g_api->socketxtreme_free_vma_buff(nullptr), EINVAL);
    const time_t begin = std::time(nullptr);
    std::vector<vma_buff_t *> held;
    std::uint32_t last = 0;
    unsigned count = 0;
    while (count < 30000 && !is_time_over(begin)) {
        const int n = g_api->socketxtreme_poll(ring, completions, 4, 0);
        CHECK(n >= 0 && n <= 4);
        for (int i = 0; i < n; ++i) {
            vma_completion_t &it = completions[i];
            CHECK(it.events == VMA_SOCKETXTREME_PACKET && it.user_data == mark && it.src.sin_port != 0);
            vma_buff_t *const buffer = it.packet.buff_lst;
            CHECK(it.packet.num_bufs == 1 && buffer->next == nullptr && buffer->len == it.packet.total_len);
            const std::uint32_t number = number_of(buffer->payload, buffer->len);
            CHECK(count == 0 || number > last);
            last = number;
            if (++count % 5 == 0) {
                CHECK(g_api->socketxtreme_ref_vma_buff(buffer) == 2);
                held.push_back(buffer);
            }
            CHECK(g_api->socketxtreme_free_vma_packets(&it.packet, 1) == 0);
        }
        while (held.size() > 50) {
            number_of(held.front()->payload, held.front()->len);
            CHECK(g_api->socketxtreme_free_vma_buff(held.front()) == 0);
            FAILS(g_api->socketxtreme_free_vma_buff(held.front()), EINVAL);
            held.erase(held.begin());
        }
    }
    CHECK(count >= 30000);
    end_peer();
}

namespace {

constexpr unsigned kSockets = 6;
constexpr unsigned kStreams = 2;

struct Stamp {
    std::uint32_t who;
    std::uint32_t number;
};

// Of the peer: datagrams to all sockets in turn, and words on two streams, at first slowly, until all are accelerated.
[[noreturn]] void send_to_many(sockaddr_in first)
{
    int streams[kStreams];
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    std::uint32_t next[kSockets + kStreams] = {};
    unsigned char bytes[400] = {};
    for (int &s : streams) {
        s = ::socket(AF_INET, SOCK_STREAM, 0);
        CHECK(::connect(s, generic(first), sizeof first) == 0);
    }
    for (unsigned round = 0;; ++round) {
        for (std::uint32_t who = 0; who < kSockets + kStreams; ++who) {
            const Stamp stamp = {who, next[who]++};
            std::memcpy(bytes, &stamp, sizeof stamp);
            sockaddr_in to = first;
            to.sin_port = htons(static_cast<std::uint16_t>(ntohs(first.sin_port) + who));
            if (who < kSockets)
                ::sendto(fd, bytes, sizeof stamp + round % (sizeof bytes - sizeof stamp), 0, generic(to), sizeof to);
            else
                CHECK(::send(streams[who - kSockets], &stamp, sizeof stamp, 0) == sizeof stamp);
        }
        const timespec pause = {0, round < 500 ? 100000 : 20000};
        if (round % 8 == 0)
            ::nanosleep(&pause, nullptr);
    }
}

// Sockets at ports in a row, that of the listener the first.
bool bind_row(int (&sockets)[kSockets], int listener, sockaddr_in &here)
{
    socklen_t size = sizeof here;
    here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(listener, generic(here), size) == 0 && ::getsockname(listener, generic(here), &size) == 0);
    for (unsigned i = 0; i < kSockets; ++i) {
        sockaddr_in at = here;
        at.sin_port = htons(static_cast<std::uint16_t>(ntohs(here.sin_port) + i));
        if (ntohs(here.sin_port) + i > 65535 || ::bind(sockets[i], generic(at), sizeof at) != 0)
            return false;
    }
    return ::listen(listener, kStreams) == 0;
}

struct Many {
    std::uint32_t last[kSockets] = {};
    std::uint32_t count[kSockets + kStreams] = {};
    std::vector<std::uint64_t> streams;           // user data of each
    std::vector<std::vector<unsigned char>> part; // of a stamp that is not whole yet

    void take_datagram(const vma_completion_t &it)
    {
        Stamp stamp = {};
        std::memcpy(&stamp, it.packet.buff_lst->payload, sizeof stamp);
        CHECK(it.user_data == 1000 + stamp.who && stamp.who < kSockets);
        CHECK(count[stamp.who] == 0 || stamp.number > last[stamp.who]); // one sender: in its order
        last[stamp.who] = stamp.number;
        ++count[stamp.who];
    }
    void take_bytes(const vma_completion_t &it)
    {
        std::size_t which = 0;
        while (which < streams.size() && streams[which] != it.user_data)
            ++which;
        CHECK(which < streams.size());
        auto &left = part[which];
        const auto *const bytes = static_cast<const unsigned char *>(it.packet.buff_lst->payload);
        left.insert(left.end(), bytes, bytes + it.packet.total_len);
        std::size_t at = 0;
        for (; left.size() - at >= sizeof(Stamp); at += sizeof(Stamp)) {
            Stamp stamp = {};
            std::memcpy(&stamp, left.data() + at, sizeof stamp);
            CHECK(stamp.who >= kSockets && stamp.who < kSockets + kStreams);
            CHECK(stamp.number == count[stamp.who]++); // none is missing
        }
        left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(at));
    }
    void take(vma_completion_t &it, int listener)
    {
        if ((it.events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED) != 0) {
            CHECK(it.listen_fd == listener && it.src.sin_family == AF_INET);
            streams.push_back(it.user_data);
            part.emplace_back();
        }
        if ((it.events & VMA_SOCKETXTREME_PACKET) == 0)
            return;
        CHECK(it.src.sin_family == AF_INET && it.src.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && it.src.sin_port != 0);
        if (it.user_data >= 1000)
            take_datagram(it);
        else
            take_bytes(it);
        CHECK(g_api->socketxtreme_free_vma_packets(&it.packet, 1) == 0);
    }
    bool has_enough() const
    {
        for (const std::uint32_t one : count)
            if (one < 3000)
                return false;
        return true;
    }
};

} // namespace

namespace {

// A datagram to each socket in turn, without a pause, and a word on each stream in between.
[[noreturn]] void flood_many(sockaddr_in first)
{
    int streams[kStreams];
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    for (int &s : streams) {
        s = ::socket(AF_INET, SOCK_STREAM, 0);
        CHECK(::connect(s, generic(first), sizeof first) == 0);
    }
    for (std::uint32_t number = 0;; ++number) {
        for (std::uint32_t who = 0; who < kSockets; ++who) {
            const Stamp stamp = {who, number};
            sockaddr_in to = first;
            to.sin_port = htons(static_cast<std::uint16_t>(ntohs(first.sin_port) + who));
            ::sendto(fd, &stamp, sizeof stamp, 0, generic(to), sizeof to);
        }
        for (std::uint32_t i = 0; i < kStreams; ++i) {
            const Stamp stamp = {kSockets + i, number};
            CHECK(::send(streams[i], &stamp, sizeof stamp, 0) == sizeof stamp);
        }
    }
}

// The sockets of both, and what comes by them: `room(poll)` completions at most by each poll.
template <typename Room> void receive_of_many(void (*peer)(sockaddr_in), Room room)
{
    const int way = start_peer(peer);
    int sockets[kSockets], listener = -1, ring = -1;
    sockaddr_in here = {};
    do {
        ::close(listener);
        listener = ::socket(AF_INET, SOCK_STREAM, 0);
        for (int &s : sockets)
            s = ::socket(AF_INET, SOCK_DGRAM, 0);
    } while (!bind_row(sockets, listener, here));
    for (std::uint64_t i = 0; i < kSockets; ++i) {
        const std::uint64_t mark = 1000 + i;
        CHECK(::setsockopt(sockets[i], SOL_SOCKET, SO_VMA_USER_DATA, &mark, sizeof mark) == 0);
    }
    CHECK(g_api->get_socket_rings_fds(listener, &ring, 1) == 1);
    CHECK(::write(way, &here, sizeof here) == sizeof here);
    Many many;
    vma_completion_t completions[16];
    const time_t begin = std::time(nullptr);
    for (unsigned poll = 0; !many.has_enough() && !is_time_over(begin); ++poll) {
        const unsigned most = room(poll);
        const int n = g_api->socketxtreme_poll(ring, completions, most, 0);
        CHECK(n >= 0 && n <= static_cast<int>(most));
        for (int i = 0; i < n; ++i)
            many.take(completions[i], listener);
    }
    for (const std::uint32_t one : many.count)
        std::printf("%u ", one);
    std::fflush(stdout);
    CHECK(many.has_enough());
    end_peer();
}

} // namespace

// Each sender's order is kept, however short the program's array is.
void xtreme_many()
{
    receive_of_many(send_to_many, [](unsigned poll) {
        return poll / 1000 % 3 == 0 ? 1U : poll / 1000 % 3 == 1 ? 3U : 16U;
    });
}

// One completion a poll, and more datagrams than that: nobody is kept from being served.
void xtreme_flood()
{
    receive_of_many(flood_many, [](unsigned) { return 1U; });
}

namespace {

struct Shared {
    std::mutex lock;
    std::vector<vma_buff_t *> held; // by a reference of its own
    std::vector<bool> seen = std::vector<bool>(10'000'000);
    std::atomic<unsigned> count{0};
    std::atomic<bool> over{false};
};

// What one thread takes, any of them gives back.
void give_back_some(Shared &shared, std::size_t most)
{
    for (;;) {
        vma_buff_t *buffer = nullptr;
        {
            const std::lock_guard guard(shared.lock);
            if (shared.held.size() <= most)
                return;
            buffer = shared.held.back();
            shared.held.pop_back();
        }
        number_of(buffer->payload, buffer->len);
        CHECK(g_api->socketxtreme_free_vma_buff(buffer) >= 0); // who took it may still have the other one
    }
}

void poll_with_others(Shared &shared, int ring)
{
    vma_completion_t completions[8];
    while (!shared.over) {
        const int n = g_api->socketxtreme_poll(ring, completions, 8, 0);
        CHECK(n >= 0);
        for (int i = 0; i < n; ++i) {
            vma_buff_t *const buffer = completions[i].packet.buff_lst;
            const std::uint32_t number = number_of(buffer->payload, buffer->len);
            const std::lock_guard guard(shared.lock);
            CHECK(number < shared.seen.size() && !shared.seen[number]); // nobody else has had it
            shared.seen[number] = true;
            CHECK(g_api->socketxtreme_ref_vma_buff(buffer) == 2);
            shared.held.push_back(buffer);
            ++shared.count;
        }
        if (n > 0)
            CHECK(g_api->socketxtreme_free_vma_packets(&completions[0].packet, 1) == 0);
        for (int i = 1; i < n; ++i)
            CHECK(g_api->socketxtreme_free_vma_buff(completions[i].packet.buff_lst) >= 0);
        give_back_some(shared, 100);
    }
}

} // namespace

// Several threads poll one ring, and give back what others took; one reads from the socket itself meanwhile.
void xtreme_threads()
{
    const int fd = receiver_of_numbers();
    int ring = -1;
    Shared shared;
    CHECK(g_api->get_socket_rings_fds(fd, &ring, 1) == 1);
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (int i = 0; i < 3; ++i)
        threads.emplace_back(poll_with_others, std::ref(shared), ring);
    const time_t begin = std::time(nullptr);
    unsigned read = 0;
    char bytes[2048];
    while (shared.count < 60000 && !is_time_over(begin)) {
        const ssize_t n = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0) {
            CHECK(errno == EAGAIN);
            ::sched_yield();
            continue;
        }
        const std::uint32_t number = number_of(bytes, static_cast<std::size_t>(n));
        const std::lock_guard guard(shared.lock);
        CHECK(!shared.seen[number]);
        shared.seen[number] = true;
        ++read;
    }
    shared.over = true;
    for (std::thread &one : threads)
        one.join();
    give_back_some(shared, 0);
    std::printf("polled %u, read %u\n", shared.count.load(), read);
    CHECK(shared.count >= 60000);
    end_peer();
}

namespace {

[[noreturn]] void send_small_numbers(sockaddr_in to)
{
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    for (std::uint64_t number = 0;; ++number) {
        ::send(fd, &number, sizeof number, 0);
        const timespec pause = {0, 100000};
        if (number % 64 == 63)
            ::nanosleep(&pause, nullptr);
    }
}

std::uint64_t small_number_of(const vma_buff_t *buffer)
{
    std::uint64_t number = 0;
    CHECK(buffer->len == sizeof number);
    std::memcpy(&number, buffer->payload, sizeof number);
    return number;
}

// Takes them until the library has no more. How many polls in a row found nothing by then.
unsigned take_all(int ring, std::vector<vma_buff_t *> &held, std::vector<std::uint64_t> &numbers, std::size_t most)
{
    vma_completion_t completions[32];
    const time_t begin = std::time(nullptr);
    unsigned idle = 0;
    while (held.size() < most && idle < 20000 && !is_time_over(begin)) {
        const int n = g_api->socketxtreme_poll(ring, completions, 32, 0);
        idle = n > 0 || held.size() < 50000 ? 0 : idle + 1;
        for (int i = 0; i < n; ++i) {
            held.push_back(completions[i].packet.buff_lst);
            numbers.push_back(small_number_of(held.back()));
        }
    }
    return idle;
}

} // namespace

// A program that gives nothing back gets no more packets than there are, and all goes on when it does. A child has none
// of them.
void xtreme_full()
{
    const int way = start_peer(send_small_numbers);
    sockaddr_in here = {};
    const int fd = bound(SOCK_DGRAM, here);
    int ring = -1;
    CHECK(g_api->get_socket_rings_fds(fd, &ring, 1) == 1 && ::write(way, &here, sizeof here) == sizeof here);
    std::vector<vma_buff_t *> held;
    std::vector<std::uint64_t> numbers;
    CHECK(take_all(ring, held, numbers, 100000) == 20000);
    CHECK(held.size() > 60000 && held.size() <= 61440 + 4096);
    for (std::size_t i = 0; i < held.size(); ++i)
        CHECK(small_number_of(held[i]) == numbers[i]);
    const pid_t child = ::fork();
    if (child == 0) {
        FAILS(g_api->socketxtreme_free_vma_buff(held[0]), EINVAL);
        FAILS(g_api->socketxtreme_ref_vma_buff(held[0]), EINVAL);
        std::_Exit(0);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
    for (vma_buff_t *buffer : held)
        CHECK(g_api->socketxtreme_free_vma_buff(buffer) == 0);
    FAILS(g_api->socketxtreme_free_vma_buff(held[0]), EINVAL);
    const std::size_t before = held.size();
    held.clear();
    const std::uint64_t last = numbers.back();
    numbers.clear();
    take_all(ring, held, numbers, before / 2);
    CHECK(held.size() >= before / 2 && numbers.front() > last);
    for (std::size_t i = 0; i < held.size(); ++i) {
        if (i == held.size() / 2)
            ::close(fd); // what is lent of its rings goes with it
        CHECK(i >= held.size() / 2 || small_number_of(held[i]) == numbers[i]);
        const int left = g_api->socketxtreme_free_vma_buff(held[i]);
        CHECK(left == 0 || (i >= held.size() / 2 && left == -1 && errno == EINVAL));
    }
    end_peer();
}

namespace {

unsigned words_to_say()
{
    const char *const text = std::getenv("XTREME_WORDS");
    return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : 3000;
}

// Each word is answered before the next one, so that nothing is under way when it closes.
[[noreturn]] void talk_and_close(sockaddr_in to)
{
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    for (unsigned i = 0; i < words_to_say(); ++i) {
        char byte = 0;
        CHECK(::send(fd, "word", 4, 0) == 4 && ::recv(fd, &byte, 1, 0) == 1);
    }
    CHECK(::close(fd) == 0);
    std::_Exit(0);
}

} // namespace

// What a peer that closes in order brings: EPOLLIN and EPOLLRDHUP, once, as libvma has it, and nothing of an error.
void xtreme_end()
{
    const int way = start_peer(talk_and_close);
    sockaddr_in here = {};
    const int listener = bound(SOCK_STREAM, here);
    int ring = -1;
    CHECK(::listen(listener, 1) == 0 && g_api->get_socket_rings_fds(listener, &ring, 1) == 1);
    CHECK(::write(way, &here, sizeof here) == sizeof here);
    const time_t begin = std::time(nullptr);
    unsigned bytes = 0, ends = 0;
    int fd = -1;
    while (ends == 0) {
        vma_completion_t it = {};
        const int n = g_api->socketxtreme_poll(ring, &it, 1, 0);
        CHECK(n >= 0 && !is_time_over(begin));
        if (n == 0)
            continue;
        if ((it.events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED) != 0)
            fd = static_cast<int>(it.user_data);
        if ((it.events & VMA_SOCKETXTREME_PACKET) != 0) {
            bytes += it.packet.total_len;
            CHECK(::send(fd, "y", 1, 0) == 1 && g_api->socketxtreme_free_vma_packets(&it.packet, 1) == 0);
        }
        CHECK((it.events & (EPOLLERR | EPOLLHUP)) == 0);
        ends += (it.events & EPOLLRDHUP) != 0 ? 1 : 0;
        CHECK((it.events & EPOLLRDHUP) == 0 || ((it.events & EPOLLIN) != 0 && bytes == 4 * words_to_say()));
    }
    for (unsigned i = 0; i < 100000; ++i) { // no more of it
        vma_completion_t it = {};
        CHECK(g_api->socketxtreme_poll(ring, &it, 1, 0) == 0 ||
              (it.events & ~static_cast<std::uint64_t>(EPOLLOUT)) == 0);
    }
    CHECK(::close(fd) == 0);
    int status = -1;
    CHECK(::waitpid(g_peer, &status, 0) == g_peer && status == 0);
}

} // namespace extra_test
