// SPDX-License-Identifier: BSD-2-Clause
// Writes a process's file of counters with the numbers of the samples that libvma's tool was shown with: stats_sample
// FOLDER PID [later|closing] ("later": what it has counted a second after; "closing": while a socket is closed). For
// fabtests/util/test_vma_stats.py and its neighbours.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <memory>
#include <string>

#include "compat/src/stats/layout.hpp"

namespace {

using namespace vma::stats;

constexpr std::uint64_t kKilo = 1024;

void put_address(std::uint8_t (&out)[16], const char *text)
{
    in_addr v4 = {};
    memset(out, 0, sizeof out);
    if (inet_pton(AF_INET, text, &v4) == 1) {
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &v4, sizeof v4);
    } else if (inet_pton(AF_INET6, text, out) != 1) {
        abort();
    }
}

std::uint64_t now_ns(clockid_t clock)
{
    timespec now = {};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void fill_header(Header &h, std::uint32_t pid)
{
    write_sizes(h, 8);
    h.magic = kMagic;
    h.slots_used = 3;
    h.pid = pid;
    h.state = State::kRunning;
    h.made_boot_ns = now_ns(CLOCK_BOOTTIME);
    h.made_ns = now_ns(CLOCK_REALTIME);
    strcpy(h.program, "gen");
    strcpy(h.library, "0.0.0");
    for (Mux &set : h.epoll)
        set.fd = -1;
}

void fill_muxes(Header &h)
{
    h.select[0].now = {.poll_hit = 600, .poll_miss = 30, .timeouts = 5, .errors = 0, .ready = 600, .os_ready = 2};
    h.select[9].now = {.poll_hit = 100, .poll_miss = 0, .timeouts = 0, .errors = 0, .ready = 50, .os_ready = 0};
    h.select[0].thread = 4101;
    h.select[0].polling = 87;
    Mux &set = h.epoll[0];
    set.fd = 17;
    set.now = {.poll_hit = 9000, .poll_miss = 10, .timeouts = 1, .errors = 0, .ready = 8990, .os_ready = 3};
    set.thread = 4101;
    set.polling = 93;
}

void fill_udp(Slot &s)
{
    Facts &f = s.facts;
    f.fd = 14;
    f.inode = 73210;
    f.protocol = IPPROTO_UDP;
    f.family = 4;
    f.way = Way::kLocal;
    f.flags = kMulticastLoop | kHasLocal | kHasInterface | kOtherUser | kByVmad;
    f.peer_user = 33;
    put_address(f.local, "0.0.0.0");
    f.local_port = 7003;
    put_address(f.interface_address, "10.99.0.1");
    put_address(f.groups[0].address, "224.4.4.4");
    put_address(f.groups[1].address, "224.4.4.5");
    f.group_count = 2;
    f.receive_limit = 212992;
    Received &rx = s.now.rx;
    rx.packets = 140479;
    rx.bytes = 8780 * kKilo;
    rx.eagain = 5;
    rx.poll_hit = 140000;
    rx.poll_miss = 12;
    rx.thread = 4101;
    rx.zcopy = 2;
    rx.os_packets = 7;
    rx.os_bytes = 6 * kKilo;
    s.now.in = {.packets = rx.packets + 3,
                .bytes = rx.bytes + 300,
                .most_packets = 9,
                .most_bytes = 900,
                .dropped_packets = 1,
                .dropped_bytes = 100};
    Sent &tx = s.now.tx;
    tx.packets = 140400;
    tx.bytes = 8779 * kKilo;
    tx.dummies = 4;
    tx.thread = 4102;
    tx.os_packets = 1;
    tx.os_bytes = kKilo;
    tx.held = 11;
    tx.held_ns = 5000;
    tx.paced_bytes = 1000;
    f.pacing_rate = 1250000;
    f.paced_from = tx.bytes - 500;
}

void fill_tcp(Slot &s)
{
    Facts &f = s.facts;
    f.fd = 15;
    f.inode = 73299;
    f.protocol = IPPROTO_TCP;
    f.family = 4;
    f.way = Way::kPort;
    f.tcp_state = 1;
    f.flags = kNonblocking | kHasLocal | kHasPeer;
    put_address(f.local, "10.99.0.1");
    f.local_port = 7002;
    put_address(f.peer, "10.99.0.2");
    f.peer_port = 41000;
    s.now.rx.packets = 500;
    s.now.rx.bytes = 497 * kKilo;
    s.now.in.bytes = s.now.rx.bytes;
    s.now.rx.migrations = 1;
    s.now.tx.packets = 400;
    s.now.tx.bytes = 400 * kKilo;
    s.now.tx.waiting = 1460;
    s.now.tx.retransmits = 3;
}

// More than 32 bits, IPv6, and the kernel's for good.
void fill_large(Slot &s)
{
    Facts &f = s.facts;
    f.fd = 900;
    f.inode = UINT64_C(5000000000);
    f.protocol = IPPROTO_TCP;
    f.family = 6;
    f.way = Way::kPinned;
    f.tcp_state = 1;
    f.flags = kHasLocal | kHasPeer;
    put_address(f.local, "2001:db8::1");
    f.local_port = 80;
    put_address(f.peer, "2001:db8::2");
    f.peer_port = 50000;
    strcpy(f.reason, "SO_ZEROCOPY");
    s.now.tx.os_packets = UINT64_C(5000000000);
    s.now.tx.os_bytes = UINT64_C(5000000000000);
}

void fill_devices(Header &h)
{
    Queue &queue = h.queues[0];
    queue.used = 1;
    queue.most_drained = 511;
    queue.polls = 9000;
    queue.poll_hits = 4000;
    queue.pool = 16000;
    queue.frames = 16384;
    queue.lent = 7;
    queue.send_frames = 2048;
    queue.send_free = 2000;
    queue.send_shortage = 3;
    queue.blocks = 16384;
    queue.blocks_free = 8192;
    strcpy(queue.name, "wire");
    Ring &eth = h.rings[0];
    eth.kind = RingKind::kEthernet;
    eth.master = 0x29e4260;
    eth.tx_bytes = 9179 * kKilo;
    eth.tx_packets = 140800;
    eth.rx_bytes = 9277 * kKilo;
    eth.rx_packets = 140979;
    eth.retransmits = 3;
    eth.interrupts_asked = 78;
    eth.interrupts = 77;
    eth.moderation_frames = 48;
    eth.moderation_usec = 50;
    eth.device_memory = 16384;
    eth.memory_packets = 10;
    Ring &tap = h.rings[1];
    tap.kind = RingKind::kTap;
    tap.master = 0x29e4260;
    tap.tap_buffers = 32;
    tap.tap_fd = 21;
    strcpy(tap.name, "t2b9f001");
    h.pools[0] = {.is_rx = 1, .is_tx = 0, .size = 168000, .no_buffers = 0};
    h.pools[1] = {.is_rx = 0, .is_tx = 1, .size = 199488, .no_buffers = 0};
}

void count_more(Header &h, Slot *slots)
{
    slots[0].now.rx.packets += 15186;
    slots[0].now.rx.bytes += 29 * kKilo;
    slots[0].now.in.packets += 15186;
    slots[0].now.in.bytes += 29 * kKilo;
    h.epoll[0].now.ready += 15186;
    h.epoll[0].now.poll_hit += 1000;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const auto pid = static_cast<std::uint32_t>(atoi(argv[2]));
    const std::string name = std::string(argv[1]) + "/vmastat." + argv[2];
    const auto header = std::make_unique<Header>();
    const auto slots = std::make_unique<Slot[]>(8);
    fill_header(*header, pid);
    fill_muxes(*header);
    fill_devices(*header);
    for (std::size_t i = 0; i < 8; ++i)
        slots[i].facts.fd = -1;
    fill_udp(slots[0]);
    fill_tcp(slots[1]);
    fill_large(slots[2]);
    if (argc > 3 && strcmp(argv[3], "later") == 0)
        count_more(*header, slots.get());
    header->closed.turn = argc > 3 && strcmp(argv[3], "closing") == 0 ? 7 : 8;
    header->closed.tcp.rx.bytes = 1000;
    header->closed.tcp_sockets = 3;
    FILE *const file = fopen(name.c_str(), "we");
    const bool written = file != nullptr && fwrite(header.get(), sizeof(Header), 1, file) == 1 &&
                         fwrite(slots.get(), sizeof(Slot), 8, file) == 8;
    if (file == nullptr || fclose(file) != 0 || !written)
        return 1;
    printf("%zu %zu\n", sizeof(Header), sizeof(Slot));
    return 0;
}
