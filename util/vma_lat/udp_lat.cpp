// SPDX-License-Identifier: BSD-2-Clause
// A ping-pong of plain datagrams, one socket a side, with nothing between the two but these: a server that is a member
// of a group sends each message back to who sent it. Each message has a number, so that a late answer is no answer.
#include "util/vma_lat/udp_lat.hpp"

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "config.h"
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/measure/text.hpp"

namespace vma::lat {

namespace {

constexpr const char *kHelp =
    R"(udp_lat: latency of UDP messages between two processes, as VMA's manual of 2008 measures it

  udp_lat -s [-i ADDRESS] [-p PORT] [-m BYTES]             a server, which sends each message back
  udp_lat -c [-i ADDRESS] [-p PORT] [-m BYTES] [-t SECONDS]  a client

  -s, --server             listen
  -c, --client             send, and print the average latency: half of a round trip
  -i, --ip=ADDRESS         of the server, or a multicast group that both name; a server
                           without it listens on all of IPv4, a client sends to 127.0.0.1
  -p, --port=PORT          11111
  -m, --msg_size=BYTES     of a message, 8 to 65507; 64
  -t, --time=SECONDS       that the client goes on for, 1 to 86400; 1
  -h, --help
  -v, --version

vma_lat does the same and more, and says how many messages were lost: vma_lat(1).
)";

constexpr std::uint32_t kMostBytes = 65507; // of a datagram of IPv4
constexpr int kWaitSeconds = 1;             // for an answer

constexpr option kOptions[] = {
    {"server", no_argument, nullptr, 's'},
    {"client", no_argument, nullptr, 'c'},
    {"ip", required_argument, nullptr, 'i'},
    {"port", required_argument, nullptr, 'p'},
    {"msg_size", required_argument, nullptr, 'm'},
    {"time", required_argument, nullptr, 't'},
    {"help", no_argument, nullptr, 'h'},
    {"version", no_argument, nullptr, 'v'},
    {nullptr, 0, nullptr, 0},
};

struct Wishes {
    bool server = false;
    bool client = false;
    bool help = false;
    bool version = false;
    std::string ip;
    std::uint32_t port = 11111;
    std::uint32_t size = 64;
    std::uint32_t seconds = 1;
};

int complain(const Error &error)
{
    std::fflush(stdout);
    std::fprintf(stderr, "udp_lat: %s\n", error.text.c_str());
    return error.status;
}

Failure number(const char *name, std::uint32_t least, std::uint32_t most, std::uint32_t &out)
{
    char *end = nullptr;
    errno = 0;
    const unsigned long value = std::strtoul(optarg, &end, 10);
    if (errno != 0 || *optarg < '0' || *optarg > '9' || *end != '\0' || value < least || value > most)
        return error(kExitUsage, "--%s: '%s' is no number from %u to %u", name, optarg, least, most);
    out = static_cast<std::uint32_t>(value);
    return {};
}

Failure take(int code, Wishes &wishes)
{
    switch (code) {
    case 's':
        wishes.server = true;
        return {};
    case 'c':
        wishes.client = true;
        return {};
    case 'i':
        wishes.ip = optarg;
        return {};
    case 'p':
        return number("port", 1, 65535, wishes.port);
    case 'm':
        return number("msg_size", sizeof(std::uint64_t), kMostBytes, wishes.size);
    case 't':
        return number("time", 1, 86400, wishes.seconds);
    case 'h':
        wishes.help = true;
        return {};
    default:
        wishes.version = true;
        return {};
    }
}

Failure read(int argc, char **argv, Wishes &wishes)
{
    opterr = 0;
    for (int code = 0; (code = getopt_long(argc, argv, ":sci:p:m:t:hv", kOptions, nullptr)) != -1;) {
        if (code == '?' || code == ':')
            return error(kExitUsage, "%s: %s; 'udp_lat --help' lists them all", argv[optind - 1],
                         code == ':' ? "this option needs a value" : "there is no such option");
        if (auto failure = take(code, wishes))
            return failure;
    }
    if (optind != argc)
        return error(kExitUsage, "'%s' is no option; 'udp_lat --help' lists them all", argv[optind]);
    if (wishes.server == wishes.client && !wishes.help && !wishes.version)
        return error(kExitUsage, "what to be is missing, or said twice: -s is a server, -c a client");
    if (wishes.ip.empty())
        wishes.ip = wishes.server ? "0.0.0.0" : "127.0.0.1";
    return {};
}

// Where a server listens, and a client sends to.
struct Place {
    sockaddr_storage name = {};
    socklen_t length = 0;
    bool group = false;

    sockaddr *generic() { return reinterpret_cast<sockaddr *>(&name); }
};

Failure find(const Wishes &wishes, Place &place)
{
    auto &v4 = reinterpret_cast<sockaddr_in &>(place.name);
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(place.name);
    if (::inet_pton(AF_INET, wishes.ip.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(static_cast<std::uint16_t>(wishes.port));
        place.length = sizeof v4;
        place.group = IN_MULTICAST(ntohl(v4.sin_addr.s_addr));
        return {};
    }
    if (::inet_pton(AF_INET6, wishes.ip.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(static_cast<std::uint16_t>(wishes.port));
        place.length = sizeof v6;
        place.group = IN6_IS_ADDR_MULTICAST(&v6.sin6_addr);
        return {};
    }
    return error(kExitUsage, "--ip: '%s' is no address: 1.2.3.4 or 2001:db8::1 is expected", wishes.ip.c_str());
}

// By the interface that the kernel's routes choose, as the manual has it.
bool join(int fd, const Place &place)
{
    if (place.name.ss_family == AF_INET) {
        ip_mreq group = {};
        group.imr_multiaddr = reinterpret_cast<const sockaddr_in &>(place.name).sin_addr;
        return ::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0;
    }
    ipv6_mreq group = {};
    group.ipv6mr_multiaddr = reinterpret_cast<const sockaddr_in6 &>(place.name).sin6_addr;
    return ::setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &group, sizeof group) == 0;
}

class Socket
{
public:
    explicit Socket(int family) : fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
    ~Socket() { ::close(fd); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;

    const int fd;
};

int serve(const Wishes &wishes, Place &place)
{
    const Socket socket(place.name.ss_family);
    const int on = 1;
    if (place.group)
        ::setsockopt(socket.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket.fd < 0 || ::bind(socket.fd, place.generic(), place.length) != 0)
        return complain(system_error(format("%s port %u", wishes.ip.c_str(), wishes.port)));
    if (place.group && !join(socket.fd, place))
        return complain(system_error("joining " + wishes.ip));
    std::printf("udp_lat: [SERVER] listen on: %s port %u\n", wishes.ip.c_str(), wishes.port);
    std::fflush(stdout);
    std::vector<char> message(kMostBytes);
    while (!stopped()) {
        sockaddr_storage from;
        socklen_t length = sizeof from;
        const ssize_t n =
            ::recvfrom(socket.fd, message.data(), message.size(), 0, reinterpret_cast<sockaddr *>(&from), &length);
        if (n >= 0) // who can't be sent to is a client that has gone
            (void)!::sendto(socket.fd, message.data(), static_cast<std::size_t>(n), 0,
                            reinterpret_cast<sockaddr *>(&from), length);
    }
    return kExitFine;
}

// Whether the answer to this message came; what is late is passed over.
bool is_answered(int fd, std::vector<char> &message, std::uint64_t wanted)
{
    for (;;) {
        std::uint64_t number = 0;
        const ssize_t n = ::recv(fd, message.data(), message.size(), 0);
        if (n < 0)
            return false;
        if (n == static_cast<ssize_t>(message.size())) {
            std::memcpy(&number, message.data(), sizeof number);
            if (number == wanted)
                return true;
        }
    }
}

int ask(const Wishes &wishes, Place &place)
{
    const Socket socket(place.name.ss_family);
    const timeval patience = {kWaitSeconds, 0};
    if (socket.fd < 0 || ::setsockopt(socket.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
        return complain(system_error("socket"));
    std::printf("udp_lat: [CLIENT] send on: %s port %u\n", wishes.ip.c_str(), wishes.port);
    std::printf("udp_lat: Client Start sending ...\n");
    std::fflush(stdout);
    std::vector<char> message(wishes.size);
    std::uint64_t number = 0, answers = 0;
    const std::uint64_t begin = now_ns();
    std::uint64_t now = begin;
    for (; !stopped() && now - begin < wishes.seconds * kSecond; now = now_ns()) {
        ++number;
        std::memcpy(message.data(), &number, sizeof number);
        if (::sendto(socket.fd, message.data(), message.size(), 0, place.generic(), place.length) < 0)
            return complain(system_error("sending to " + wishes.ip));
        answers += is_answered(socket.fd, message, number) ? 1 : 0;
    }
    if (answers == 0)
        return complain(error(kExitServer, "No messages were received from the server. Is the server down?"));
    const double taken = static_cast<double>(now - begin);
    std::printf("client_sig_handler:client_counter=%llu in %.0f sec, latency=%.3f [usec]\n",
                static_cast<unsigned long long>(answers), taken / 1e9, taken / static_cast<double>(answers) / 2000);
    return stopped() ? kExitInterrupted : kExitFine;
}

} // namespace

bool is_udp_lat(const char *path)
{
    const std::string_view name = path != nullptr ? path : "";
    const std::size_t slash = name.rfind('/');
    return name.substr(slash == std::string_view::npos ? 0 : slash + 1) == "udp_lat";
}

int be_udp_lat(int argc, char **argv)
{
    Wishes wishes;
    Place place;
    if (auto failure = read(argc, argv, wishes))
        return complain(*failure);
    if (wishes.help) {
        std::fputs(kHelp, stdout);
        return kExitFine;
    }
    if (wishes.version) {
        std::printf("udp_lat %s\n", PACKAGE_VERSION);
        return kExitFine;
    }
    if (auto failure = find(wishes, place))
        return complain(*failure);
    catch_signals();
    return wishes.server ? serve(wishes, place) : ask(wishes, place);
}

} // namespace vma::lat
