// SPDX-License-Identifier: BSD-2-Clause
// How many UDP datagrams of 64 bytes a receiver takes a second when more come. Its sockets are the matter: the sender
// puts frames on the interface by a test run of an XDP program (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18), which is
// faster than any socket.
//   udp_flood receive ADDRESS PORT SECONDS               "ready", then a line of JSON
//   udp_flood send ADDRESS PORT SECONDS INTERFACE        root; a peer on veth needs NAPI: ethtool -K IF gro on
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSize = 64;
constexpr int kBurst = 1 << 20; // frames a system call: each has a pool of pages made, and waits at its end
constexpr double kBegin = 0.3;  // seconds of single datagrams before: by then it is decided how the socket receives
constexpr double kSettle = 0.3;

void check(bool ok, const char *what)
{
    if (!ok) {
        std::perror(what);
        std::exit(1);
    }
}

double now()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

int open_socket(const char *address, const char *port, sockaddr_in &name)
{
    name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    check(inet_pton(AF_INET, address, &name.sin_addr) == 1, "udp_flood: address");
    const int s = socket(AF_INET, SOCK_DGRAM, 0);
    check(s >= 0, "udp_flood: socket");
    return s;
}

int receive(const char *address, const char *port, double seconds)
{
    sockaddr_in name{};
    const int s = open_socket(address, port, name);
    const int room = 1 << 20;
    const timeval patience{20, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    check(bind(s, reinterpret_cast<sockaddr *>(&name), sizeof name) == 0, "udp_flood: bind");
    std::puts("ready");
    std::fflush(stdout);
    std::array<char, 2048> buffer{};
    check(recv(s, buffer.data(), buffer.size(), 0) >= 0, "udp_flood: recv");
    const double from = now() + kBegin + kSettle;
    double until = from;
    std::uint64_t count = 0;
    for (std::uint64_t i = 1;; ++i) {
        check(recv(s, buffer.data(), buffer.size(), 0) >= 0, "udp_flood: recv");
        if (i % 64 != 0)
            continue;
        const double time = now();
        count += time >= from ? 64 : 0;
        until = time;
        if (time >= from + seconds)
            break;
    }
    std::printf("{\"received\": %.0f}\n", static_cast<double>(count) / (until - from));
    close(s);
    return 0;
}

// ---- the sender -----------------------------------------------------------------------------------------------------

struct Frame {
    ethhdr ethernet;
    iphdr ip;
    udphdr udp;
    std::uint8_t data[kSize];
} __attribute__((packed));

std::uint16_t ip_checksum(const iphdr &ip)
{
    std::uint16_t words[sizeof ip / 2];
    std::memcpy(words, &ip, sizeof ip);
    std::uint32_t sum = 0;
    for (const std::uint16_t word : words)
        sum += word;
    sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~(sum + (sum >> 16)));
}

// As the kernel would send it: its socket is connected, and has had an answer from the neighbour.
Frame make_frame(int s, const sockaddr_in &to, const char *interface)
{
    Frame frame{};
    sockaddr_in from{};
    socklen_t length = sizeof from;
    check(getsockname(s, reinterpret_cast<sockaddr *>(&from), &length) == 0, "udp_flood: getsockname");
    ifreq own{};
    arpreq neighbour{};
    std::strncpy(own.ifr_name, interface, sizeof own.ifr_name - 1);
    std::strncpy(neighbour.arp_dev, interface, sizeof neighbour.arp_dev - 1);
    std::memcpy(&neighbour.arp_pa, &to, sizeof to);
    check(ioctl(s, SIOCGIFHWADDR, &own) == 0, "udp_flood: SIOCGIFHWADDR");
    check(ioctl(s, SIOCGARP, &neighbour) == 0, "udp_flood: SIOCGARP");
    std::memcpy(frame.ethernet.h_source, own.ifr_hwaddr.sa_data, ETH_ALEN);
    std::memcpy(frame.ethernet.h_dest, neighbour.arp_ha.sa_data, ETH_ALEN);
    frame.ethernet.h_proto = htons(ETH_P_IP);
    frame.ip.version = 4;
    frame.ip.ihl = sizeof frame.ip / 4;
    frame.ip.ttl = 64;
    frame.ip.protocol = IPPROTO_UDP;
    frame.ip.tot_len = htons(sizeof frame - sizeof frame.ethernet);
    frame.ip.saddr = from.sin_addr.s_addr;
    frame.ip.daddr = to.sin_addr.s_addr;
    frame.ip.check = ip_checksum(frame.ip);
    frame.udp.source = from.sin_port;
    frame.udp.dest = to.sin_port;
    frame.udp.len = htons(sizeof frame.udp + sizeof frame.data);
    return frame; // without UDP's checksum, which IPv4 allows
}

// XDP that hands each frame to the interface.
int load_redirect(unsigned interface)
{
    const bpf_insn program[] = {
        {BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, static_cast<int>(interface)},
        {BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0},
        {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
    };
    const int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "udp_flood", "GPL", program, std::size(program), nullptr);
    check(fd >= 0, "udp_flood: bpf_prog_load");
    return fd;
}

int send(const char *address, const char *port, double seconds, const char *interface)
{
    sockaddr_in name{};
    const int s = open_socket(address, port, name);
    check(connect(s, reinterpret_cast<sockaddr *>(&name), sizeof name) == 0, "udp_flood: connect");
    std::array<char, kSize> bytes{};
    const timespec pause{0, 1'000'000};
    for (const double end = now() + kBegin; now() < end;) {
        check(::send(s, bytes.data(), kSize, 0) > 0, "udp_flood: send");
        nanosleep(&pause, nullptr);
    }
    Frame frame = make_frame(s, name, interface);
    const int program = load_redirect(if_nametoindex(interface));
    bpf_test_run_opts run{};
    run.sz = sizeof run;
    run.data_in = &frame;
    run.data_size_in = sizeof frame;
    run.repeat = kBurst;
    run.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
    run.batch_size = 64;
    for (const double end = now() + seconds + 2 * kSettle; now() < end;)
        check(bpf_prog_test_run_opts(program, &run) == 0, "udp_flood: BPF_PROG_TEST_RUN");
    close(program);
    close(s);
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 5 && std::strcmp(argv[1], "receive") == 0)
        return receive(argv[2], argv[3], std::atof(argv[4]));
    if (argc == 6 && std::strcmp(argv[1], "send") == 0)
        return send(argv[2], argv[3], std::atof(argv[4]), argv[5]);
    std::fputs("usage: udp_flood receive ADDRESS PORT SECONDS\n"
               "       udp_flood send ADDRESS PORT SECONDS INTERFACE\n",
               stderr);
    return 2;
}
