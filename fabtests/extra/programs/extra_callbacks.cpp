// SPDX-License-Identifier: BSD-2-Clause
// Receive callbacks of TCP sockets: registered before the first message or after some, of connections by the kernel and
// accelerated ones, with each answer. One message is under way at a time, and the callback acknowledges it, so what it
// is asked about is a message.
#include <sys/ioctl.h>

#include <algorithm>

#include "fabtests/extra/programs/extra_api.hpp"
#include "fabtests/patience.hpp"

namespace extra_test {

namespace {

constexpr std::size_t kSize = 64; // divides the ring: no message is torn at its end
constexpr std::uint32_t kMessages = 2001;

struct Message {
    std::uint32_t number;
    std::uint8_t rest[kSize - sizeof(std::uint32_t)];
};
static_assert(sizeof(Message) == kSize);

Message message_of(std::uint32_t number)
{
    Message message = {number, {}};
    std::memset(message.rest, static_cast<int>(number % 251), sizeof message.rest);
    return message;
}

void check_message(const void *bytes, std::uint32_t number)
{
    const Message right = message_of(number);
    CHECK(std::memcmp(bytes, &right, sizeof right) == 0);
}

// Whether the answer came without the kernel.
bool await_answer(int fd)
{
    char room[sizeof(vma_packets_t) + sizeof(vma_packet_t) + sizeof(iovec)];
    int flags = 0;
    CHECK(g_api->recvfrom_zcopy(fd, room, sizeof room, &flags, nullptr, nullptr) == 1);
    vma_packet_t first = {};
    std::memcpy(&first, room + sizeof(vma_packets_t), sizeof first);
    if ((flags & MSG_VMA_ZCOPY) != 0)
        CHECK(g_api->free_packets(fd, &first, 1) == 0);
    return (flags & MSG_VMA_ZCOPY) != 0;
}

// So many at least, and if the connection is to be accelerated as many after that; the last number is even.
void send_messages(sockaddr_in to)
{
    const bool waits = std::getenv("CALLBACK_PLAIN") == nullptr;
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    CHECK(::connect(fd, generic(to), sizeof to) == 0);
    const time_t begin = std::time(nullptr);
    std::uint32_t accelerated = 0;
    for (std::uint32_t number = 0; number < kMessages || (waits && accelerated < kMessages) || number % 2 == 0;
         ++number) {
        const Message message = message_of(number);
        CHECK(::send(fd, &message, sizeof message, 0) == sizeof message);
        accelerated += await_answer(fd) ? 1 : 0;
        CHECK(!is_time_over(begin));
    }
    CHECK(waits == (accelerated != 0) && ::shutdown(fd, SHUT_WR) == 0);
    char end = 0;
    CHECK(::recv(fd, &end, 1, 0) == 0);
    std::_Exit(0);
}

struct Held {
    void *id;
    iovec part;
    std::uint32_t number;
};

struct Answers {
    vma_recv_callback_retval_t odd = VMA_PACKET_RECV; // the answer for every second message; the others are received
    std::uint32_t asked = 0;
    std::uint32_t first = 0; // the number of the first message that it was asked about
    std::vector<Held> held;
};

vma_recv_callback_retval_t answer(int fd, std::size_t count, iovec part[], vma_info_t *info, void *context)
{
    Answers &answers = *static_cast<Answers *>(context);
    sockaddr_in peer = {}, here = {};
    socklen_t size = sizeof peer;
    CHECK(::getpeername(fd, generic(peer), &size) == 0 && ::getsockname(fd, generic(here), &size) == 0);
    CHECK(count == 1 && part[0].iov_len == kSize && info->payload_sz == kSize && info->struct_sz == sizeof *info);
    CHECK(std::memcmp(info->src, &peer, sizeof peer) == 0 && std::memcmp(info->dst, &here, sizeof here) == 0);
    const std::uint32_t number = answers.first + answers.asked++;
    check_message(part[0].iov_base, number);
    CHECK(::send(fd, "y", 1, 0) == 1);
    if (number % 2 == 0)
        return VMA_PACKET_RECV;
    if (answers.odd == VMA_PACKET_HOLD)
        answers.held.push_back({info->packet_id, part[0], number});
    return answers.odd;
}

void give_back(int fd, Answers &answers, std::size_t most)
{
    while (answers.held.size() > most) {
        const Held held = answers.held.front();
        answers.held.erase(answers.held.begin());
        CHECK(held.id != nullptr);
        check_message(held.part.iov_base, held.number);
        vma_packet_t packet = {};
        packet.packet_id = held.id;
        CHECK(g_api->free_packets(fd, &packet, 1) == 0);
    }
}

// One message by one of the calls that receive, in turn; `way` counts. False: the end.
bool receive_somehow(int fd, int set, unsigned way, Message &message)
{
    char head[5];
    iovec parts[2] = {{head, sizeof head}, {&message, sizeof message}};
    msghdr whole = {};
    ssize_t n = 0;
    switch (way % 7) {
    case 0:
        n = ::recv(fd, &message, sizeof message, 0);
        break;
    case 1: {
        pollfd p = {fd, POLLIN, 0};
        do
            CHECK(::poll(&p, 1, patience::milliseconds()) == 1);
        while ((n = ::recv(fd, &message, sizeof message, MSG_DONTWAIT)) < 0 && errno == EAGAIN);
        break;
    }
    case 2: {
        epoll_event event = {};
        do
            CHECK(::epoll_wait(set, &event, 1, patience::milliseconds()) == 1);
        while ((n = ::recv(fd, &message, sizeof message, MSG_DONTWAIT)) < 0 && errno == EAGAIN);
        break;
    }
    case 3:
        n = ::read(fd, &message, sizeof message);
        break;
    case 4:
        n = ::recvfrom(fd, &message, sizeof message, 0, nullptr, nullptr);
        break;
    case 5:
        n = ::recv(fd, &message, sizeof message, MSG_WAITALL);
        break;
    default:
        parts[1].iov_len = sizeof message - sizeof head;
        whole.msg_iov = parts;
        whole.msg_iovlen = 2;
        n = way % 2 == 0 ? ::recvmsg(fd, &whole, 0) : ::readv(fd, parts, 2);
        if (n == sizeof message) {
            auto *const begin = reinterpret_cast<char *>(&message);
            std::memmove(begin + sizeof head, begin, sizeof message - sizeof head);
            std::memcpy(begin, head, sizeof head);
        }
    }
    CHECK(n == sizeof message || n == 0);
    return n != 0;
}

const char *setting(const char *name)
{
    const char *const value = std::getenv(name);
    CHECK(value != nullptr);
    return value;
}

int accept_one(int way)
{
    sockaddr_in here = {};
    const int listener = bound(SOCK_STREAM, here);
    CHECK(::listen(listener, 1) == 0 && ::write(way, &here, sizeof here) == sizeof here);
    const int fd = ::accept(listener, nullptr, nullptr);
    CHECK(fd >= 0 && ::close(listener) == 0);
    return fd;
}

void await_end_of_peer()
{
    int status = -1;
    CHECK(::waitpid(g_peer, &status, 0) == g_peer && status == 0);
}

} // namespace

// CALLBACK_AFTER messages it is registered; CALLBACK_ANSWER is the number of the answer; CALLBACK_OFF says after how
// many it ends.
void tcp_callback()
{
    Answers answers;
    answers.first = static_cast<std::uint32_t>(std::atoi(setting("CALLBACK_AFTER")));
    answers.odd = static_cast<vma_recv_callback_retval_t>(std::atoi(setting("CALLBACK_ANSWER")));
    const auto off = static_cast<std::uint32_t>(std::strtoul(setting("CALLBACK_OFF"), nullptr, 10));
    const int fd = accept_one(start_peer(send_messages));
    const int set = ::epoll_create1(0);
    epoll_event event = {};
    event.events = EPOLLIN;
    CHECK(::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    std::uint32_t number = 0;
    Message message = {};
    for (unsigned way = 0;; ++way) {
        if (number == answers.first)
            CHECK(g_api->register_recv_callback(fd, answer, &answers) == 0);
        if (number == off)
            CHECK(g_api->register_recv_callback(fd, nullptr, nullptr) == 0);
        if (!receive_somehow(fd, set, way, message))
            break;
        if (number >= answers.first && number < off && number % 2 == 1 && answers.odd != VMA_PACKET_RECV)
            ++number; // that one was not for us
        check_message(&message, number);
        if (number < answers.first || number >= off)
            CHECK(::send(fd, "y", 1, 0) == 1);
        ++number;
        give_back(fd, answers, 20);
    }
    CHECK(number >= kMessages && answers.asked == std::min(number, off) - answers.first);
    give_back(fd, answers, 0);
    ::close(set);
    ::close(fd);
    await_end_of_peer();
}

namespace {

vma_recv_callback_retval_t let_through(int, std::size_t, iovec[], vma_info_t *, void *)
{
    return VMA_PACKET_RECV;
}

} // namespace

// The name is received into memory of the library's, for the callback: the program's header never tells of that.
void callback_header()
{
    sockaddr_in here = {}, there = {}, from = {};
    const int fd = bound(SOCK_DGRAM, here), sender = bound(SOCK_DGRAM, there);
    char byte = 0;
    iovec part = {&byte, 1};
    msghdr message = {};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    CHECK(g_api->register_recv_callback(fd, let_through, nullptr) == 0);
    FAILS(::recvmsg(fd, &message, MSG_DONTWAIT), EAGAIN);
    CHECK(message.msg_name == &from && message.msg_namelen == sizeof from);
    for (int i = 0; i < 2; ++i)
        CHECK(::sendto(sender, "x", 1, 0, generic(here), sizeof here) == 1);
    CHECK(::recvmsg(fd, &message, 0) == 1 && from.sin_port == there.sin_port);
    message.msg_name = nullptr;
    message.msg_namelen = 77;
    CHECK(::recvmsg(fd, &message, 0) == 1 && message.msg_namelen == 77);
    ::close(fd);
    ::close(sender);
}

namespace {

struct Bytes {
    std::uint64_t asked = 0;
    std::uint64_t wrong = 0;
};

// Turns every byte around: what the program receives is what the callback made of it.
vma_recv_callback_retval_t turn(int, std::size_t count, iovec part[], vma_info_t *, void *context)
{
    Bytes &bytes = *static_cast<Bytes *>(context);
    CHECK(count == 1);
    auto *const at = static_cast<std::uint8_t *>(part[0].iov_base);
    for (std::size_t i = 0; i < part[0].iov_len; ++i, ++bytes.asked) {
        bytes.wrong += at[i] != static_cast<std::uint8_t>(bytes.asked / 4 >> bytes.asked % 4 * 8) ? 1 : 0;
        at[i] = static_cast<std::uint8_t>(~at[i]);
    }
    return VMA_PACKET_RECV;
}

} // namespace

// A stream as fast as it goes: each byte is asked about once and in order, and all are received; MSG_WAITALL gets all
// that it asks for, and FIONREAD never tells of more than there is.
void tcp_callback_stream()
{
    Bytes bytes;
    const int fd = accept_one(start_peer(send_stream));
    be_ready(fd);
    CHECK(g_api->register_recv_callback(fd, turn, &bytes) == 0);
    static std::uint8_t room[40000];
    std::uint64_t place = 0;
    for (unsigned round = 0;; ++round) {
        const std::size_t asked = 1 + round * 2654435761U % sizeof room;
        const int flags = round % 3 == 0 ? MSG_WAITALL : 0;
        int readable = 0;
        if (round % 5 == 0) {
            pollfd p = {fd, POLLIN, 0};
            CHECK(::poll(&p, 1, patience::milliseconds()) == 1 && ::ioctl(fd, FIONREAD, &readable) == 0);
        }
        const ssize_t n = ::recv(fd, room, asked, flags);
        CHECK(n >= 0);
        if (n == 0)
            break;
        CHECK(n >= std::min<ssize_t>(readable, static_cast<ssize_t>(asked)));
        for (ssize_t i = 0; i < n; ++i, ++place)
            CHECK(room[i] == static_cast<std::uint8_t>(~(place / 4 >> place % 4 * 8)));
        if (flags != 0 && n != static_cast<ssize_t>(asked)) {
            CHECK(::recv(fd, room, 1, 0) == 0);
            break;
        }
    }
    CHECK(bytes.asked == place && bytes.wrong == 0);
    std::printf("asked about %llu\n", static_cast<unsigned long long>(place));
    ::close(fd);
    end_peer();
}

} // namespace extra_test
