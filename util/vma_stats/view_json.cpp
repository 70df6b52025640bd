// SPDX-License-Identifier: BSD-2-Clause
// Everything, for programs: one object a line and cycle. Numbers are totals since --zero, or rates a second with -d 2.
#include <netinet/in.h>
#include <stdio.h>

#include "util/vma_stats/json.hpp"
#include "util/vma_stats/kernel_sockets.hpp"
#include "util/vma_stats/views.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;

void print_end(Json &json, const char *name, bool known, const std::uint8_t (&address)[16], std::uint16_t port)
{
    char text[kAddressText];
    if (!known)
        return;
    json.begin(name, '{');
    std::string bare = print_address(address, text);
    if (bare[0] == '[')
        bare = bare.substr(1, bare.size() - 2);
    json.text("address", bare);
    json.number("port", port);
    json.end('}');
}

void print_facts(Json &json, const Facts &f)
{
    char text[kAddressText];
    json.number("fd", static_cast<std::uint64_t>(f.fd));
    json.text("protocol", f.protocol == IPPROTO_UDP ? "udp" : "tcp");
    json.number("family", f.family);
    json.truth("offloaded", is_offloaded(f));
    json.text("way", name_of(f.way));
    json.text("device", f.device);
    json.text("reason", f.reason);
    json.text("state", name_of_tcp_state(f.tcp_state));
    json.truth("blocking", (f.flags & kNonblocking) == 0);
    json.number("inode", f.inode);
    json.number("since_boot_ns", f.since_ns);
    print_end(json, "local", (f.flags & kHasLocal) != 0, f.local, f.local_port);
    print_end(json, "peer", (f.flags & kHasPeer) != 0, f.peer, f.peer_port);
    if ((f.flags & kOtherUser) != 0)
        json.number("peer_user", f.peer_user);
    json.truth("introduced", is_offloaded(f) && (f.flags & kByVmad) != 0);
    if (f.protocol != IPPROTO_UDP)
        return;
    json.truth("multicast_loop", (f.flags & kMulticastLoop) != 0);
    print_end(json, "multicast_interface", (f.flags & kHasInterface) != 0, f.interface_address, 0);
    json.begin("groups", '[');
    for (std::uint32_t i = 0; i < f.group_count; ++i) {
        json.begin(nullptr, '{');
        std::string bare = print_address(f.groups[i].address, text);
        json.text("address", bare[0] == '[' ? bare.substr(1, bare.size() - 2) : bare);
        json.number("interface", f.groups[i].interface);
        json.end('}');
    }
    json.end(']');
}

void print_received(Json &json, const SocketView &view)
{
    const Received &rx = view.counters.rx;
    const Arrived &in = view.counters.in;
    json.begin("rx", '{');
    json.number("packets", rx.packets);
    json.number("bytes", rx.bytes);
    json.number("poll_hit", rx.poll_hit);
    json.number("poll_miss", rx.poll_miss);
    json.number("poll_os_hit", rx.poll_os_hit);
    json.number("errors", rx.errors);
    json.number("eagain", rx.eagain);
    json.number("os_packets", rx.os_packets);
    json.number("os_bytes", rx.os_bytes);
    json.number("os_errors", rx.os_errors);
    json.number("os_eagain", rx.os_eagain);
    json.number("migrations", rx.migrations);
    json.number("thread", rx.thread);
    json.number("zero_copy_buffers", rx.zcopy);
    json.number("queued_packets", view.queued_packets);
    json.number("queued_bytes", view.queued_bytes);
    json.number("most_packets", in.most_packets);
    json.number("most_bytes", in.most_bytes);
    json.number("dropped_packets", in.dropped_packets);
    json.number("dropped_bytes", in.dropped_bytes);
    json.number("limit_bytes", view.facts->receive_limit);
    json.end('}');
}

void print_sent(Json &json, const SocketView &view)
{
    const Sent &tx = view.counters.tx;
    json.begin("tx", '{');
    json.number("packets", tx.packets);
    json.number("bytes", tx.bytes);
    json.number("errors", tx.errors);
    json.number("eagain", tx.eagain);
    json.number("retransmissions", tx.retransmits);
    json.number("dummies", tx.dummies);
    json.number("waiting_bytes", tx.waiting);
    json.number("os_packets", tx.os_packets);
    json.number("os_bytes", tx.os_bytes);
    json.number("os_errors", tx.os_errors);
    json.number("os_eagain", tx.os_eagain);
    json.number("migrations", tx.migrations);
    json.number("thread", tx.thread);
    json.number("pacing_rate", view.facts->pacing_rate);
    json.number("paced_bytes", view.paced_bytes);
    json.number("held", tx.held);
    json.number("held_ns", tx.held_ns);
    json.end('}');
}

void print_muxes(Json &json, const Shown &shown)
{
    json.begin("iomux", '[');
    for (const ShownMux &mux : muxes_of(shown)) {
        json.begin(nullptr, '{');
        json.text("name", mux.name);
        json.number("poll_hit", mux.counters.poll_hit);
        json.number("poll_miss", mux.counters.poll_miss);
        json.number("timeouts", mux.counters.timeouts);
        json.number("errors", mux.counters.errors);
        json.number("ready", mux.counters.ready);
        json.number("os_ready", mux.counters.os_ready);
        json.number("polling_percent", mux.polling);
        json.number("thread", mux.thread);
        json.end('}');
    }
    json.end(']');
}

void print_pools(Json &json, const Header &h)
{
    json.begin("pools", '[');
    for (const Pool &pool : h.pools) {
        if (pool.is_rx == 0 && pool.is_tx == 0)
            continue;
        json.begin(nullptr, '{');
        json.text("kind", pool.is_rx != 0 ? "rx" : "tx");
        json.number("size", pool.size);
        json.number("no_buffers", pool.no_buffers);
        json.end('}');
    }
    json.end(']');
}

void print_rings(Json &json, const Header &h)
{
    static constexpr const char *kKinds[] = {"", "ethernet", "direct", "tap", "local", "rdma"};
    json.begin("rings", '[');
    for (const Ring &ring : h.rings) {
        if (ring.kind == RingKind::kNone)
            continue;
        json.begin(nullptr, '{');
        json.text("kind", kKinds[static_cast<std::size_t>(ring.kind)]);
        json.text("name", ring.name);
        json.number("rx_packets", ring.rx_packets);
        json.number("rx_bytes", ring.rx_bytes);
        json.number("tx_packets", ring.tx_packets);
        json.number("tx_bytes", ring.tx_bytes);
        json.number("retransmissions", ring.retransmits);
        json.number("interrupts_requested", ring.interrupts_asked);
        json.number("interrupts_received", ring.interrupts);
        json.number("moderation_frames", ring.moderation_frames);
        json.number("moderation_usec", ring.moderation_usec);
        json.number("device_memory", ring.device_memory);
        json.number("device_memory_packets", ring.memory_packets);
        json.number("device_memory_bytes", ring.memory_bytes);
        json.number("device_memory_oob", ring.memory_oob);
        json.end('}');
    }
    json.end(']');
    json.begin("cqs", '[');
    for (const Queue &queue : h.queues) {
        if (queue.used == 0)
            continue;
        json.begin(nullptr, '{');
        json.text("name", queue.name);
        json.number("dropped", queue.dropped);
        json.number("length", queue.length);
        json.number("most_drained", queue.most_drained);
        json.number("polls", queue.polls);
        json.number("poll_hits", queue.poll_hits);
        json.number("buffer_pool", queue.pool);
        json.number("frames", queue.frames);
        json.number("frames_lent", queue.lent);
        json.number("no_buffers", queue.shortage);
        json.number("send_frames", queue.send_frames);
        json.number("send_free", queue.send_free);
        json.number("send_no_buffers", queue.send_shortage);
        json.number("tcp_blocks", queue.blocks);
        json.number("tcp_blocks_free", queue.blocks_free);
        json.number("tcp_no_blocks", queue.block_shortage);
        json.end('}');
    }
    json.end(']');
    print_pools(json, h);
}

} // namespace

void print_json(const Shown &shown, bool alive)
{
    const Header &h = shown.now->header;
    Json json;
    json.begin(nullptr, '{');
    json.number("version", h.version);
    json.text("library", h.library);
    json.number("pid", h.pid);
    json.number("uid", h.uid);
    json.text("program", h.program);
    json.truth("alive", alive);
    json.truth("rates", shown.before != nullptr);
    json.number("lift_after", h.lift_after);
    json.begin("sockets", '[');
    for (const SocketView &view : sockets_of(shown)) {
        json.begin(nullptr, '{');
        print_facts(json, *view.facts);
        print_received(json, view);
        print_sent(json, view);
        json.end('}');
    }
    json.end(']');
    print_muxes(json, shown);
    print_rings(json, h);
    json.end('}');
    fputs("\n", stdout);
}

} // namespace vma_stats
