// SPDX-License-Identifier: BSD-2-Clause
// A server that echoes and a client that asks, on sockets to which anybody may write: what is not whole and of this run
// is passed over, and what got lost is asked for again. How each message is described is checked whoever sent it.
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fabtests/sockets/programs/datagrams/traffic.hpp"

namespace {

using namespace fabtest;

constexpr int kPatienceMs = 20; // then the question is asked again
constexpr std::uint64_t kMostRepeats = 500;
constexpr std::uint64_t kAfterwards = 300; // questions once the client was told to end

volatile std::sig_atomic_t g_told_to_end = 0;

struct Message {
    std::string bytes = std::string(kMaxLength + 1, '\0');
    std::size_t length = 0;
    Address from{};
    Header header{};
};

// Pattern from behind the header on, a function of seed and number.
void fill(std::uint64_t seed, Kind kind, std::uint64_t number, std::size_t length, Message &m)
{
    m.header = Header{};
    m.header.kind = kind;
    m.header.number = number;
    m.header.length = static_cast<std::uint32_t>(m.length = length);
    Pattern(seed).fill(number << 17, m.bytes.data(), length);
    std::memcpy(m.bytes.data(), static_cast<const void *>(&m.header), sizeof m.header);
}

bool is_ours(std::uint64_t seed, Message &m)
{
    if (m.length < sizeof m.header)
        return false;
    std::memcpy(static_cast<void *>(&m.header), m.bytes.data(), sizeof m.header);
    const std::size_t rest = m.length - sizeof m.header;
    return m.header.magic == kMagic && m.header.length == m.length &&
           Pattern(seed).check((m.header.number << 17) + sizeof m.header, m.bytes.data() + sizeof m.header, rest) ==
               rest;
}

void ask_for_everything(int fd)
{
    const int on = 1;
    for (const int name : {SO_RXQ_OVFL, SO_TIMESTAMPNS})
        must(set_option(fd, SOL_SOCKET, name, on), "a socket option");
    for (const int name : {IP_PKTINFO, IP_RECVTTL, IP_RECVTOS})
        must(set_option(fd, IPPROTO_IP, name, on), "an IP option");
}

// Whatever its sender says, a message is described as the kernel would describe one.
void check_description(const msghdr &msg, const Message &m)
{
    if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        die("msg_flags %#x", static_cast<unsigned>(msg.msg_flags));
    if (m.from.family() != AF_INET || m.from.len != sizeof(sockaddr_in))
        die("an address of family %d and %u bytes", m.from.family(), m.from.len);
    std::size_t used = 0;
    for (const auto *c = CMSG_FIRSTHDR(&msg); c != nullptr;
         c = CMSG_NXTHDR(const_cast<msghdr *>(&msg), const_cast<cmsghdr *>(c))) {
        if (c->cmsg_level != SOL_SOCKET && c->cmsg_level != IPPROTO_IP)
            die("control data of level %d", c->cmsg_level);
        used += CMSG_ALIGN(c->cmsg_len);
    }
    if (used != msg.msg_controllen)
        die("%zu bytes of control data, %zu in its messages", msg.msg_controllen, used);
}

// False: nothing came, of a call that doesn't wait, or who was asked is gone.
bool receive(int fd, int flags, Message &m)
{
    iovec part = {m.bytes.data(), m.bytes.size()};
    alignas(cmsghdr) char control[512];
    m.from = Address{};
    msghdr msg{};
    msg.msg_name = m.from.get();
    msg.msg_namelen = m.from.len;
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(fd, &msg, flags);
    if (n < 0 && (errno == EAGAIN || errno == ECONNREFUSED))
        return false;
    must(static_cast<int>(n), "recvmsg");
    m.length = static_cast<std::size_t>(n);
    m.from.len = msg.msg_namelen;
    check_description(msg, m);
    return true;
}

class Server
{
public:
    Server(std::uint16_t port, std::uint64_t seed) : seed_(seed), fd_(bound_socket(make_address("127.0.0.1", port)))
    {
        ask_for_everything(fd_);
    }
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    ~Server() { ::close(fd_); }

    void run(bool waits_in_epoll)
    {
        const int set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
        epoll_event event{EPOLLIN, {}};
        if (waits_in_epoll)
            must(::epoll_ctl(set, EPOLL_CTL_ADD, fd_, &event), "epoll_ctl");
        std::printf("ready\n");
        while (!ended_) {
            if (waits_in_epoll)
                must(::epoll_wait(set, &event, 1, -1), "epoll_wait");
            if (receive(fd_, waits_in_epoll ? MSG_DONTWAIT : 0, message_))
                answer();
        }
        ::close(set);
        std::printf("served %llu, strange %llu\n", served_, strange_);
    }

private:
    void answer()
    {
        if (!is_ours(seed_, message_)) {
            ++strange_;
            return;
        }
        ++served_;
        ended_ = message_.header.kind == kEnd;
        // The client may be gone that asked for the end twice, and an enemy may use its address.
        if (send_to(fd_, message_.bytes.data(), message_.length, message_.from) < 0 && errno != ECONNREFUSED)
            die("answer: %s", strerrorname_np(errno));
    }

    std::uint64_t seed_;
    int fd_;
    Message message_;
    unsigned long long served_ = 0, strange_ = 0;
    bool ended_ = false;
};

class Client
{
public:
    Client(std::uint16_t port, std::uint64_t seed)
        : seed_(seed), random_(seed), to_(make_address("127.0.0.1", port)),
          fd_(bound_socket(make_address("127.0.0.1", 0)))
    {
        ask_for_everything(fd_);
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;
    ~Client() { ::close(fd_); }

    void run()
    {
        while (g_told_to_end == 0)
            ask(kData);
        const unsigned long long until_then = number_;
        for (std::uint64_t i = 0; i < kAfterwards; ++i)
            ask(kData);
        const unsigned long long after = number_ - until_then, repeated = repeated_;
        ask(kEnd);
        std::printf("asked %llu, then %llu, repeated %llu, strange %llu\n", until_then, after, repeated, strange_);
    }

private:
    // False: the server has ended, and its last answer was lost.
    bool send(Kind kind, std::size_t length)
    {
        fill(seed_, kind, number_, length, question_);
        if (send_to(fd_, question_.bytes.data(), length, to_) == static_cast<ssize_t>(length))
            return true;
        if (kind != kEnd || errno != ECONNREFUSED)
            die("question %llu: %s", number_, strerrorname_np(errno));
        return false;
    }

    // Until it is answered.
    void ask(Kind kind)
    {
        const std::size_t length = sizeof(Header) + random_.size(11);
        for (std::uint64_t tries = 0; tries < kMostRepeats; ++tries) {
            if (!send(kind, length) || is_answered()) {
                repeated_ += tries;
                ++number_;
                return;
            }
        }
        die("question %llu stays without an answer", number_);
    }

    bool is_answered()
    {
        pollfd p{fd_, POLLIN, 0};
        for (;;) {
            const int ready = ::poll(&p, 1, kPatienceMs);
            if (ready < 0 && errno == EINTR)
                continue;
            if (must(ready, "poll") == 0)
                return false;
            if (!receive(fd_, MSG_DONTWAIT, answer_))
                continue;
            if (!is_ours(seed_, answer_))
                ++strange_;
            else if (answer_.header.number == number_) // else of one that was asked twice
                return true;
        }
    }

    std::uint64_t seed_;
    Random random_;
    Address to_;
    int fd_;
    Message question_, answer_;
    unsigned long long number_ = 0, repeated_ = 0, strange_ = 0;
};

} // namespace

// echo serve PORT SEED block|epoll: prints "ready". echo ask PORT SEED: until SIGTERM, and some more.
int main(int argc, char **argv)
{
    if (argc < 4)
        die("serve or ask, port, seed");
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const auto port = static_cast<std::uint16_t>(std::atoi(argv[2]));
    const std::uint64_t seed = std::strtoull(argv[3], nullptr, 0);
    if (std::string(argv[1]) == "serve") {
        Server(port, seed).run(argc > 4 && std::string(argv[4]) == "epoll");
        return 0;
    }
    std::signal(SIGTERM, [](int) { g_told_to_end = 1; });
    Client(port, seed).run();
    return 0;
}
