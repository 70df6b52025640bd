// SPDX-License-Identifier: BSD-2-Clause
// Sums of a process: sockets by protocol, waits by call, its devices and their queues.
#include "util/vma_stats/metrics/process_metrics.hpp"

#include <map>

#include "util/vma_stats/metrics/totals.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;

constexpr auto kCounter = MetricType::kCounter;
constexpr auto kGauge = MetricType::kGauge;

// ---- names ----------------------------------------------------------------------------------------------------------

constexpr Family kInfo = {"vma_process_info", kGauge, "A process that runs with libvma.so, and the library's version"};
constexpr Family kStart = {"vma_process_start_time_seconds", kGauge,
                           "When the process began to count, in seconds since the epoch"};
constexpr Family kSockets = {"vma_sockets", kGauge, "Open sockets by what carries them"};
constexpr Family kClosed = {"vma_sockets_closed_total", kCounter, "Sockets that were closed"};
constexpr Family kWayChanges = {"vma_way_changes_total", kCounter,
                                "Moves of sockets from the kernel to a device, or back"};

// By path: of what a device carried, and the kernel.
struct PathRow {
    Family family;
    std::uint64_t (*device)(const Counters &);
    std::uint64_t (*kernel)(const Counters &);
};

constexpr PathRow kPathRows[] = {
    {{"vma_receive_bytes_total", kCounter, "Bytes that the program has received"},
     [](const Counters &c) { return c.rx.bytes; },
     [](const Counters &c) { return c.rx.os_bytes; }},
    {{"vma_receive_packets_total", kCounter, "Datagrams, and pieces of streams, that the program has received"},
     [](const Counters &c) { return c.rx.packets; },
     [](const Counters &c) { return c.rx.os_packets; }},
    {{"vma_receive_errors_total", kCounter, "Receiving calls that ended with an error other than EAGAIN"},
     [](const Counters &c) { return c.rx.errors; },
     [](const Counters &c) { return c.rx.os_errors; }},
    {{"vma_receive_would_block_total", kCounter, "Receiving calls that ended with EAGAIN"},
     [](const Counters &c) { return c.rx.eagain; },
     [](const Counters &c) { return c.rx.os_eagain; }},
    {{"vma_transmit_bytes_total", kCounter, "Bytes that the program has sent"},
     [](const Counters &c) { return c.tx.bytes; },
     [](const Counters &c) { return c.tx.os_bytes; }},
    {{"vma_transmit_packets_total", kCounter, "Datagrams, and pieces of streams, that the program has sent"},
     [](const Counters &c) { return c.tx.packets; },
     [](const Counters &c) { return c.tx.os_packets; }},
    {{"vma_transmit_errors_total", kCounter, "Sending calls that ended with an error other than EAGAIN"},
     [](const Counters &c) { return c.tx.errors; },
     [](const Counters &c) { return c.tx.os_errors; }},
    {{"vma_transmit_would_block_total", kCounter, "Sending calls that ended with EAGAIN"},
     [](const Counters &c) { return c.tx.eagain; },
     [](const Counters &c) { return c.tx.os_eagain; }},
};

struct ProtocolRow {
    Family family;
    std::uint64_t (*value)(const ProtocolTotals &);
};

constexpr ProtocolRow kProtocolRows[] = {
    {{"vma_receive_dropped_packets_total", kCounter, "Datagrams that came by a device and found no room"},
     [](const ProtocolTotals &t) { return t.counted.in.dropped_packets; }},
    {{"vma_receive_dropped_bytes_total", kCounter, "Bytes of datagrams that came by a device and found no room"},
     [](const ProtocolTotals &t) { return t.counted.in.dropped_bytes; }},
    {{"vma_receive_queue_packets", kGauge, "Datagrams that have come by a device and are not read"},
     [](const ProtocolTotals &t) { return t.queued_packets; }},
    {{"vma_receive_queue_bytes", kGauge, "Bytes that have come by a device and are not read"},
     [](const ProtocolTotals &t) { return t.queued_bytes; }},
    {{"vma_receive_lent_buffers", kGauge, "Buffers of zero-copy receives that the program has not given back"},
     [](const ProtocolTotals &t) { return t.lent_buffers; }},
    {{"vma_transmit_unacknowledged_bytes", kGauge, "Bytes sent over Ethernet ports that are not acknowledged"},
     [](const ProtocolTotals &t) { return t.unacknowledged_bytes; }},
    {{"vma_transmit_retransmissions_total", kCounter, "Segments sent again over Ethernet ports"},
     [](const ProtocolTotals &t) { return t.counted.tx.retransmits; }},
    {{"vma_transmit_dummies_total", kCounter, "Sends that only warm the way"},
     [](const ProtocolTotals &t) { return t.counted.tx.dummies; }},
    {{"vma_transmit_paced_bytes_total", kCounter, "Bytes sent under SO_MAX_PACING_RATE"},
     [](const ProtocolTotals &t) { return t.counted.tx.paced_bytes; }},
    {{"vma_transmit_pacing_waits_total", kCounter, "Sends that had to wait for their turn (SO_MAX_PACING_RATE)"},
     [](const ProtocolTotals &t) { return t.counted.tx.held; }},
};
constexpr Family kPacingSeconds = {"vma_transmit_pacing_wait_seconds_total", kCounter,
                                   "How long sends waited for their turn (SO_MAX_PACING_RATE)"};
constexpr Family kWaits = {
    "vma_receive_waits_total", kCounter,
    "Receiving calls that had to wait, by how the wait ended: polled (something came by a device "
    "meanwhile), kernel (by the kernel), slept"};

constexpr Family kMuxWaits = {"vma_multiplexer_waits_total", kCounter,
                              "Waits of select(), poll() and epoll_wait(), by how they ended: polled or slept"};
constexpr Family kMuxTimeouts = {"vma_multiplexer_timeouts_total", kCounter, "Waits that found nothing"};
constexpr Family kMuxErrors = {"vma_multiplexer_errors_total", kCounter, "Waits that ended with an error"};
constexpr Family kMuxReady = {"vma_multiplexer_ready_total", kCounter, "Descriptors that waits found ready"};
constexpr Family kMuxPolling = {"vma_multiplexer_polling_ratio", kGauge,
                                "The share of the time that waits polled (VMA_CPU_USAGE_STATS)"};

struct RingRow {
    Family family;
    std::uint64_t Ring::*value;
};

constexpr RingRow kRingRows[] = {
    {{"vma_device_receive_bytes_total", kCounter, "Bytes received by this device"}, &Ring::rx_bytes},
    {{"vma_device_receive_packets_total", kCounter, "Datagrams, and pieces of streams, received by this device"},
     &Ring::rx_packets},
    {{"vma_device_transmit_bytes_total", kCounter, "Bytes sent by this device"}, &Ring::tx_bytes},
    {{"vma_device_transmit_packets_total", kCounter, "Datagrams, and pieces of streams, sent by this device"},
     &Ring::tx_packets},
    {{"vma_device_retransmissions_total", kCounter, "Segments sent again by this device"}, &Ring::retransmits},
    {{"vma_device_interrupts_requested_total", kCounter, "Times that the device's queue was armed before a sleep"},
     &Ring::interrupts_asked},
    {{"vma_device_interrupts_total", kCounter, "Times that the device woke the program"}, &Ring::interrupts},
};

struct QueueRow {
    Family family;
    std::uint64_t Queue::*value;
    bool of_ports; // the others have no frames
};

constexpr QueueRow kQueueRows[] = {
    {{"vma_queue_polls_total", kCounter, "Looks at the completion queue"}, &Queue::polls, false},
    {{"vma_queue_poll_hits_total", kCounter, "Looks at the completion queue that found something"},
     &Queue::poll_hits,
     false},
    {{"vma_queue_entries", kGauge, "Entries that wait in the completion queue"}, &Queue::length, false},
    {{"vma_queue_dropped_frames_total", kCounter, "Frames lost before the library saw them"}, &Queue::dropped, true},
    {{"vma_queue_receive_frames", kGauge, "Frames to receive into"}, &Queue::frames, true},
    {{"vma_queue_receive_frames_free", kGauge, "Frames to receive into that are free"}, &Queue::pool, true},
    {{"vma_queue_receive_frames_lent", kGauge, "Frames to receive into that the program holds"}, &Queue::lent, true},
    {{"vma_queue_receive_no_frame_total", kCounter, "Times that no frame to receive into was free"},
     &Queue::shortage,
     true},
    {{"vma_queue_transmit_frames", kGauge, "Frames to send"}, &Queue::send_frames, true},
    {{"vma_queue_transmit_frames_free", kGauge, "Frames to send that are free"}, &Queue::send_free, true},
    {{"vma_queue_transmit_no_frame_total", kCounter, "Times that no frame to send was free"},
     &Queue::send_shortage,
     true},
    {{"vma_queue_tcp_blocks", kGauge, "Blocks of memory of the TCP stack"}, &Queue::blocks, true},
    {{"vma_queue_tcp_blocks_free", kGauge, "Blocks of memory of the TCP stack that are free"},
     &Queue::blocks_free,
     true},
    {{"vma_queue_tcp_no_block_total", kCounter, "Times that the TCP stack had no block of memory"},
     &Queue::block_shortage,
     true},
};

// ---- samples --------------------------------------------------------------------------------------------------------

Labels with(const Labels &labels, const char *name, std::string_view value)
{
    return Labels(labels).add(name, value);
}

void add_protocol(Exposition &out, const Labels &process, const char *protocol, const ProtocolTotals &t)
{
    static constexpr const char *kNames[kWays] = {"kernel", "pinned", "local", "rdma", "port"};
    const Labels labels = with(process, "protocol", protocol);
    for (std::size_t way = 0; way < kWays; ++way)
        out.add(kSockets, with(labels, "way", kNames[way]), t.open[way]);
    out.add(kClosed, labels, t.closed);
    out.add(kWayChanges, labels, t.counted.rx.migrations);
    const Labels device = with(labels, "path", "device");
    const Labels kernel = with(labels, "path", "kernel");
    for (const PathRow &row : kPathRows) {
        out.add(row.family, device, row.device(t.counted));
        out.add(row.family, kernel, row.kernel(t.counted));
    }
    for (const ProtocolRow &row : kProtocolRows)
        out.add(row.family, labels, row.value(t));
    out.add_seconds(kPacingSeconds, labels, t.counted.tx.held_ns);
    out.add(kWaits, with(labels, "result", "polled"), t.counted.rx.poll_hit);
    out.add(kWaits, with(labels, "result", "kernel"), t.counted.rx.poll_os_hit);
    out.add(kWaits, with(labels, "result", "slept"), t.counted.rx.poll_miss);
}

void add_mux(Exposition &out, const Labels &process, const char *call, const MuxTotals &t)
{
    const Labels labels = with(process, "call", call);
    out.add(kMuxWaits, with(labels, "result", "polled"), t.counted.poll_hit);
    out.add(kMuxWaits, with(labels, "result", "slept"), t.counted.poll_miss);
    out.add(kMuxTimeouts, labels, t.counted.timeouts);
    out.add(kMuxErrors, labels, t.counted.errors);
    out.add(kMuxReady, with(labels, "path", "device"), t.counted.ready);
    out.add(kMuxReady, with(labels, "path", "kernel"), t.counted.os_ready);
    out.add_percent(kMuxPolling, labels, t.polling);
}

// The file may name a device twice; Prometheus takes no sample twice.
void add_rings(Exposition &out, const Labels &process, const Header &h)
{
    static constexpr const char *kKinds[] = {"", "ethernet", "direct", "tap", "local", "rdma"};
    std::map<std::string, std::vector<const Ring *>> rings;
    for (const Ring &ring : h.rings)
        if (ring.kind != RingKind::kNone)
            rings[with(with(process, "kind", kKinds[static_cast<std::size_t>(ring.kind)]), "device", ring.name).text()]
                .push_back(&ring);
    for (const auto &[labels, same] : rings)
        for (const RingRow &row : kRingRows) {
            std::uint64_t sum = 0;
            for (const Ring *ring : same)
                sum += ring->*row.value;
            out.add(row.family, Labels::of(labels), sum);
        }
}

void add_queues(Exposition &out, const Labels &process, const Header &h)
{
    std::map<std::string, std::vector<const Queue *>> queues;
    for (const Queue &queue : h.queues)
        if (queue.used != 0)
            queues[with(process, "queue", queue.name).text()].push_back(&queue);
    for (const auto &[labels, same] : queues)
        for (const QueueRow &row : kQueueRows) {
            std::uint64_t sum = 0;
            bool any = false;
            for (const Queue *queue : same) {
                sum += queue->*row.value;
                any = any || !row.of_ports || queue->frames != 0;
            }
            if (any)
                out.add(row.family, Labels::of(labels), sum);
        }
}

} // namespace

Labels labels_of_process(pid_t pid, const std::string &program, const std::string &user)
{
    return Labels().add("pid", std::to_string(pid)).add("program", program).add("user", user);
}

void add_process(Exposition &out, const Labels &labels, const Snapshot &s)
{
    const Totals totals = totals_of(s);
    out.add(kInfo, with(labels, "version", s.header.library), 1);
    out.add_seconds(kStart, labels, s.header.made_ns);
    add_protocol(out, labels, "tcp", totals.tcp);
    add_protocol(out, labels, "udp", totals.udp);
    add_mux(out, labels, "select", totals.select);
    add_mux(out, labels, "poll", totals.poll);
    add_mux(out, labels, "epoll", totals.epoll);
    add_rings(out, labels, s.header);
    add_queues(out, labels, s.header);
}

} // namespace vma_stats
