// SPDX-License-Identifier: BSD-2-Clause
// EtherFabric by RAW_PACKET queue pairs of simulated devices, all on one wire.
#pragma once

#include "fabtests/unit.hpp"

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "contrib/lab/sim/sim.hpp"
#include "ether/raw/nic.hpp"
#include "inet/udp/header.hpp"
#include "inet/wire/ethernet.hpp"
#include "prov/vma/test/inet/udp_frame.hpp"

namespace raw {

using namespace vma;
using ether::RawNic;
using Frame = std::vector<std::uint8_t>;

inline inet::IpAddress address_of(unsigned host)
{
    return inet::IpAddress::v4(0x0a000001 + host); // 10.0.0.1 and up
}

inline inet::Mac mac_of(unsigned host)
{
    return {{2, 0, 0, 0, 0, static_cast<std::uint8_t>(host + 1)}};
}

inline ether::Interface interface_of(unsigned host, unsigned mtu = 1500)
{
    return {.index = host + 1, .mtu = mtu, .queues = 1, .mac = mac_of(host)};
}

// That many hosts with a NIC each. Nothing of them may be left at the end.
class Wire
{
public:
    explicit Wire(unsigned hosts = 2, const sim::DeviceConfig &device = {}, unsigned mtu = 1500,
                  const ether::RawQueueOptions &options = {})
    {
        sim::Config config;
        config.clock = sim::Clock::manual;
        config.devices.assign(hosts, device);
        sim::reset(config);
        verbs::use_table(sim::table());
        nics_.resize(hosts);
        for (unsigned i = 0; i < hosts; ++i)
            assert_int_equal(RawNic::open(interface_of(i, mtu), {"sim" + std::to_string(i), 1}, nics_[i], options), 0);
    }
    ~Wire()
    {
        nics_.clear();
        assert_int_equal(sim::stats().live.total(), 0);
    }
    Wire(const Wire &) = delete;
    Wire &operator=(const Wire &) = delete;

    RawNic &nic(unsigned host) { return nics_[host]; }
    ether::RawQueue &queue(unsigned host) { return nics_[host].queues().front(); }

private:
    std::vector<RawNic> nics_;
};

// A datagram from port 9000 of host 0 to a port of host 1.
inline Frame datagram(std::uint16_t port, std::uint16_t vlan = 0, std::size_t length = 100)
{
    inet::IpOut ip;
    ip.source = address_of(0);
    ip.target = address_of(1);
    ip.protocol = inet::Protocol::kUdp;
    const Frame data(length, 0x5a);
    const inet::Bytes parts[] = {data};
    Frame frame(length + 64);
    frame.resize(inet::write_udp_frame(frame.data(), {mac_of(1), mac_of(0), vlan}, ip, {9000, port}, parts));
    return frame;
}

// Queues it; false: no frame is free.
inline bool put(ether::RawQueue &queue, const Frame &frame)
{
    const ether::FrameIndex index = queue.take();
    if (index == ether::kNoFrame)
        return false;
    std::memcpy(queue.bytes(index).data(), frame.data(), frame.size());
    return queue.submit(index, static_cast<std::uint32_t>(frame.size()));
}

inline void send(ether::RawQueue &queue, const Frame &frame)
{
    assert_true(put(queue, frame));
    assert_int_equal(queue.flush(), 0);
}

inline constexpr std::uint16_t kPort = 7000;
inline const inet::IpAddress kAny4 = inet::IpAddress::v4(std::uint32_t{0});
inline const inet::IpAddress kAny6 = {};
inline const inet::Flow kFive = {{address_of(1), kPort}, {address_of(0), 9000}};
inline const inet::Flow kThree = {{address_of(1), kPort}, {}};

// How many frames are there; those of no flow are not counted, as NetIf does.
inline std::size_t take_all(RawNic &nic)
{
    std::size_t count = 0;
    std::array<ether::ReceivedFrame, 32> burst;
    while (const std::size_t got = nic.queues().front().receive(burst)) {
        for (const ether::ReceivedFrame &frame : std::span(burst).first(got)) {
            count += nic.takes(frame.bytes);
            nic.queues().front().release(frame.index);
        }
    }
    return count;
}

// Whether a frame from host 0 gets to host 1's NIC.
inline bool arrives(Wire &wire, const Frame &frame)
{
    send(wire.queue(0), frame);
    return take_all(wire.nic(1)) == 1;
}

inline void do_add(Wire &wire, const inet::Flow &flow, ether::Vlans vlans = {})
{
    assert_int_equal(wire.nic(1).flows().add(flow, inet::Protocol::kUdp, vlans), 0);
}

inline void do_remove(Wire &wire, const inet::Flow &flow, ether::Vlans vlans = {})
{
    assert_int_equal(wire.nic(1).flows().remove(flow, inet::Protocol::kUdp, vlans), 0);
}

} // namespace raw
