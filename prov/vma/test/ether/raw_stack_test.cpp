// SPDX-License-Identifier: BSD-2-Clause
// Our stack at both ends of the simulated wire, each on a RAW_PACKET queue pair: UDP with fragments, TCP in bulk, with
// losses.
#include "prov/vma/test/ether/raw.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "inet/stack.hpp"

using namespace raw;
using inet::Nanos;

namespace {

constexpr std::uint16_t kClientPort = 9000;

std::uint8_t byte_at(std::uint64_t position)
{
    return static_cast<std::uint8_t>(position * 7 + (position >> 8) + (position >> 16) * 31);
}

// A host: what ether::NetIf does, without the kernel's routes and on a clock of the test's.
class Host
{
public:
    Host(Wire &wire, unsigned number) : nic_(wire.nic(number)), queue_(wire.queue(number))
    {
        inet::StackOptions options;
        options.mac = mac_of(number);
        options.secret = {};
        options.tcp.connections = 4;
        options.tcp.listeners = 2;
        stack_ = std::make_unique<inet::Stack>(options, inet::kSecond);
        stack_->set_offloads(nic_.offloads());
        path_ = stack_->use_next_hop(inet::kSecond, address_of(1 - number));
        stack_->set_next_hop(inet::kSecond, address_of(1 - number), mac_of(1 - number), 0, 1500);
    }

    inet::Stack &stack() { return *stack_; }
    inet::Tcp &tcp() { return stack_->tcp(); }
    inet::NextHopIndex next_hop() const { return path_; }
    std::size_t verified() const { return verified_; } // frames whose checksums the device has found right

    bool turn(Nanos now)
    {
        std::array<ether::ReceivedFrame, 32> burst;
        const std::size_t count = queue_.receive(burst);
        for (const ether::ReceivedFrame &frame : std::span(burst).first(count)) {
            assert_true(nic_.takes(frame.bytes));
            verified_ += frame.checksums_good;
            stack_->input(now, frame.bytes, {frame.checksums_good});
            queue_.release(frame.index);
        }
        stack_->advance(now);
        bool sent = false;
        while (stack_->wants_output()) {
            const ether::FrameIndex frame = queue_.take();
            if (frame == ether::kNoFrame)
                break;
            inet::FrameWork work;
            const std::size_t length = stack_->output(now, queue_.bytes(frame), work);
            if (length == 0) {
                queue_.release(frame);
                break;
            }
            sent = queue_.submit(frame, static_cast<std::uint32_t>(length), work);
        }
        assert_int_equal(queue_.flush(), 0);
        return sent || count != 0;
    }

    void send_datagram(Nanos now, const inet::IpOut &ip, const inet::Bytes &body)
    {
        std::array<std::uint8_t, inet::kUdpHeader> header{};
        const inet::Bytes parts[] = {header, body};
        inet::Fragmenter fragments = stack_->datagram(now, path_, ip, parts);
        inet::FrameWork work;
        header = stack_->datagram_header(fragments, ip, {kClientPort, kPort}, {&body, 1}, work);
        for (std::size_t left = fragments.frames(); left != 0; --left) {
            const ether::FrameIndex frame = queue_.take();
            assert_int_not_equal(frame, ether::kNoFrame);
            const std::size_t length = fragments.next(queue_.bytes(frame).data());
            assert_true(queue_.submit(frame, static_cast<std::uint32_t>(length), work));
        }
        assert_int_equal(queue_.flush(), 0);
    }

private:
    RawNic &nic_;
    ether::RawQueue &queue_;
    std::unique_ptr<inet::Stack> stack_;
    inet::NextHopIndex path_ = inet::kNoNextHop;
    std::size_t verified_ = 0;
};

struct Network {
    explicit Network(const sim::DeviceConfig &device = {}, bool offloads = false)
        : wire(2, device, 1500, {.offloads = offloads})
    {
    }

    Wire wire;
    Host client{wire, 0};
    Host server{wire, 1};
    Nanos now = 2 * inet::kSecond;

    void steer(unsigned host, const inet::Flow &flow, inet::Protocol protocol)
    {
        assert_int_equal(wire.nic(host).flows().add(flow, protocol), 0);
    }

    // Frames move at once; where nothing moves, time goes on to the next timer.
    void step()
    {
        const bool moved = client.turn(now);
        if (server.turn(now) || moved)
            now += 10 * inet::kMicrosecond;
        else
            now = std::max(now + 1, std::min(client.stack().deadline(), server.stack().deadline()));
        assert_true(now < 600 * inet::kSecond);
    }
};

// One side's program: sends `total` bytes, takes as many, and closes.
struct Program {
    std::uint64_t total;
    inet::ConnectionId id{};
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    bool ended = false;

    void act(inet::Tcp &tcp, Nanos now)
    {
        std::uint8_t buffer[16384];
        while (sent < total) {
            const std::size_t n = std::min<std::uint64_t>(sizeof buffer, total - sent);
            for (std::size_t i = 0; i < n; ++i)
                buffer[i] = byte_at(sent + i);
            const std::int64_t taken = tcp.send(now, id, {buffer, n});
            if (taken < 0)
                break;
            sent += static_cast<std::uint64_t>(taken);
            if (sent == total)
                assert_int_equal(tcp.shutdown(now, id), 0);
        }
        for (std::int64_t n; !ended && (n = tcp.receive(now, id, buffer)) != -EAGAIN;) {
            assert_true(n >= 0);
            for (std::int64_t i = 0; i < n; ++i)
                assert_int_equal(buffer[i], byte_at(received + static_cast<std::uint64_t>(i)));
            received += static_cast<std::uint64_t>(n);
            ended = n == 0;
        }
    }
};

void tcp_in_bulk(unsigned loss, const sim::DeviceConfig &device = {}, bool offloads = false)
{
    constexpr std::uint64_t kTotal = 4 << 20;
    Network net(device, offloads);
    const inet::Endpoint server = {address_of(1), kPort};
    const inet::Flow flow = {{address_of(0), kClientPort}, server};
    net.steer(1, {server, {}}, inet::Protocol::kTcp);
    net.steer(0, flow, inet::Protocol::kTcp);
    sim::lose_frames(loss);
    inet::TcpSettings settings;
    settings.receive_buffer = 512 << 10; // no more under way than a queue has frames for
    inet::ListenerId listener;
    assert_int_equal(net.server.tcp().listen(server, 4, settings, 0, listener), 0);
    Program up{kTotal};
    Program down{kTotal};
    assert_int_equal(net.client.tcp().connect(net.now, flow, net.client.next_hop(), settings, 0, up.id), 0);
    bool accepted = false;
    while (!up.ended || !down.ended) {
        net.step();
        accepted = accepted || net.server.tcp().accept(listener, down.id);
        if (accepted) {
            up.act(net.client.tcp(), net.now);
            down.act(net.server.tcp(), net.now);
        }
    }
    assert_int_equal(up.received, kTotal);
    assert_int_equal(down.received, kTotal);
    assert_int_equal(net.client.verified() > 1000, device.ip_csum);
    assert_int_equal(sim::stats().lost == 0, loss == 0);
    assert_int_equal(sim::stats().cut > 1000, offloads && device.ip_csum && device.max_tso != 0);
    assert_int_equal(net.client.tcp().counters().malformed + net.server.tcp().counters().malformed, 0);
    net.client.tcp().close(net.now, up.id);
    net.server.tcp().close(net.now, down.id);
}

void tcp_over_a_good_wire(void **)
{
    tcp_in_bulk(0);
}

void tcp_over_a_bad_wire(void **)
{
    tcp_in_bulk(100); // 1 %
}

// The device computes checksums and cuts segments; where it can't, the stack does it, and who is asked is what it says.
void segments_are_cut(void **)
{
    tcp_in_bulk(0, {}, true);
    tcp_in_bulk(100, {}, true); // what is lost are single segments
    sim::DeviceConfig small;
    small.max_tso = 8000;
    tcp_in_bulk(0, small, true);
    sim::DeviceConfig no_tso;
    no_tso.max_tso = 0;
    tcp_in_bulk(0, no_tso, true);
    sim::DeviceConfig nothing;
    nothing.ip_csum = false;
    tcp_in_bulk(0, nothing, true);
}

// A device that claims to cut, and has no queue pair for it.
void no_queue_pair_for_segments(void **)
{
    sim::Config config;
    config.clock = sim::Clock::manual;
    config.devices.resize(1);
    sim::reset(config);
    verbs::use_table(sim::table());
    assert_true(sim::fail_call("create_qp_ex", 1, EINVAL));
    RawNic nic;
    assert_int_equal(RawNic::open(interface_of(0), {"sim0", 1}, nic, {.offloads = true}), 0);
    assert_true(nic.offloads().checksums_v4);
    assert_int_equal(nic.offloads().segment_limit, 0);
}

void send_datagrams(bool offloads)
{
    Network net({}, offloads);
    const inet::Endpoint server = {address_of(1), kPort};
    net.steer(1, {server, {}}, inet::Protocol::kUdp);
    inet::UdpTable &udp = net.server.stack().udp();
    const inet::UdpSocketId id = udp.open({});
    assert_int_equal(udp.bind(id, server), 0);
    std::vector<std::uint8_t> data(1472);
    for (unsigned number = 0; number < 2000; ++number) {
        data[0] = static_cast<std::uint8_t>(number);
        const inet::Bytes body[] = {inet::Bytes(data).first(1 + number % 1472)};
        inet::IpOut ip;
        ip.source = address_of(0);
        ip.target = server.address;
        ip.protocol = inet::Protocol::kUdp;
        net.client.send_datagram(net.now, ip, body[0]);
        net.step();
        std::uint8_t got[2048];
        const std::span<std::uint8_t> room[] = {got};
        const inet::UdpTable::Received received = udp.receive(id, room);
        assert_int_equal(received.error, 0);
        assert_int_equal(received.copied, body[0].size());
        assert_memory_equal(got, body[0].data(), body[0].size());
    }
    assert_int_equal(net.server.verified(), 2000);
    udp.close(id);
}

void datagrams(void **)
{
    send_datagrams(false);
    send_datagrams(true);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(tcp_over_a_good_wire),
        cmocka_unit_test(tcp_over_a_bad_wire),
        cmocka_unit_test(datagrams),
        cmocka_unit_test(segments_are_cut),
        cmocka_unit_test(no_queue_pair_for_segments),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
