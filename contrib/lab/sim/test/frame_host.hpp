// SPDX-License-Identifier: BSD-2-Clause
// Two simulated devices on a wire, each with a RAW_PACKET queue pair, and a datagram to send.
#pragma once

#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "contrib/lab/sim/frame.hpp"
#include "contrib/lab/sim/sim.hpp"

namespace vma::sim_test {

using Frame = std::vector<std::uint8_t>;

inline constexpr std::uint8_t kMac[6] = {2, 0, 0, 0, 0, 7};
inline constexpr std::uint32_t kRoom = 2048;
inline constexpr std::uint32_t kReceives = 8;

inline void put16(Frame &frame, std::size_t value)
{
    frame.push_back(static_cast<std::uint8_t>(value >> 8));
    frame.push_back(static_cast<std::uint8_t>(value));
}

// UDP from 10.0.0.8, port 7000, to 10.0.0.7.
inline Frame datagram(std::uint16_t port = 7000, std::uint16_t vlan = 0)
{
    constexpr std::size_t kData = 100;
    Frame frame(std::begin(kMac), std::end(kMac));
    frame.resize(12);
    if (vlan != 0) {
        put16(frame, 0x8100);
        put16(frame, vlan);
    }
    put16(frame, 0x0800);
    const std::uint8_t ip[] = {0x45, 0, 0, 28 + kData, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 8, 10, 0, 0, 7};
    frame.insert(frame.end(), std::begin(ip), std::end(ip));
    put16(frame, 7000);
    put16(frame, port);
    put16(frame, 8 + kData);
    put16(frame, 0);
    frame.resize(frame.size() + kData, 0x5a);
    sim::Headers headers;
    assert_true(sim::parse(frame, headers));
    sim::write_checksums(frame, headers);
    return frame;
}

// A device with one QP that is ready.
class Host
{
public:
    explicit Host(unsigned place)
    {
        const verbs::Table &verbs = *sim::table();
        ibv_device **const list = verbs.get_device_list(nullptr);
        context_ = verbs.open_device(list[place]);
        verbs.free_device_list(list);
        pd_ = verbs.alloc_pd(context_);
        cq_ = verbs.create_cq(context_, 64, nullptr, nullptr, 0);
        mr_ = verbs.reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
        qp_ = make_qp();
    }
    ~Host()
    {
        const verbs::Table &verbs = *sim::table();
        for (ibv_flow *flow : flows_)
            assert_int_equal(::ibv_destroy_flow(flow), 0);
        for (ibv_qp *qp : {qp_, other_}) {
            if (qp != nullptr)
                assert_int_equal(verbs.destroy_qp(qp), 0);
        }
        assert_int_equal(verbs.destroy_cq(cq_), 0);
        assert_int_equal(verbs.dereg_mr(mr_), 0);
        assert_int_equal(verbs.dealloc_pd(pd_), 0);
        assert_int_equal(verbs.close_device(context_), 0);
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;

    ibv_qp *qp() { return qp_; }
    ibv_qp *other_qp() { return other_ = make_qp(); }

    ibv_qp *make_qp()
    {
        const verbs::Table &verbs = *sim::table();
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq_;
        init.cap = {64, 64, 1, 1, 0};
        init.qp_type = IBV_QPT_RAW_PACKET;
        ibv_qp *const made = verbs.create_qp(pd_, &init);
        assert_non_null(made);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        assert_int_equal(verbs.modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
        for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
            attr.qp_state = state;
            assert_int_equal(verbs.modify_qp(made, &attr, IBV_QP_STATE), 0);
        }
        return made;
    }

    // Of `room` bytes each.
    void receive(ibv_qp *qp, unsigned count, std::uint32_t room = kRoom)
    {
        for (; count != 0; --count, ++posted_) {
            ibv_sge part{address(posted_ % kReceives), room, mr_->lkey};
            ibv_recv_wr wr{posted_ % kReceives, nullptr, &part, 1};
            ibv_recv_wr *bad = nullptr;
            assert_int_equal(::ibv_post_recv(qp, &wr, &bad), 0);
        }
    }
    // 0, when it is sent, or what the device says to it.
    int send(const Frame &frame, unsigned flags = 0)
    {
        std::memcpy(memory_.data() + std::size_t{kReceives} * kRoom, frame.data(), frame.size());
        ibv_sge part{address(kReceives), static_cast<std::uint32_t>(frame.size()), mr_->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &part;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = flags | IBV_SEND_SIGNALED;
        ibv_send_wr *bad = nullptr;
        if (const int error = ::ibv_post_send(qp_, &wr, &bad))
            return error;
        ibv_wc wc{};
        assert_true(next(wc));
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        return 0;
    }
    // The next completion; none: false.
    bool next(ibv_wc &wc) { return ::ibv_poll_cq(cq_, 1, &wc) == 1; }
    // Whether the frame, and nothing else, has come, to that QP.
    bool got(const Frame &frame, const ibv_qp *qp = nullptr)
    {
        ibv_wc wc{};
        if (!next(wc))
            return false;
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RECV);
        assert_int_equal(wc.qp_num, (qp != nullptr ? qp : qp_)->qp_num);
        assert_int_equal(wc.byte_len, frame.size());
        assert_memory_equal(memory_.data() + wc.wr_id * kRoom, frame.data(), frame.size());
        return !next(wc);
    }

    struct Rule {
        ibv_flow_attr attr{};
        ibv_flow_spec_eth eth{};
        ibv_flow_spec_ipv4 ip{};
        ibv_flow_spec_tcp_udp ports{};
    };
    // By default: UDP to 10.0.0.7, port 7000.
    using Change = std::function<void(Rule &)>;
    ibv_flow *steer(
        const Change &change = [](Rule &) {}, ibv_qp *qp = nullptr)
    {
        Rule rule;
        rule.attr.size = sizeof rule;
        rule.attr.num_of_specs = 3;
        rule.attr.port = 1;
        rule.eth.type = IBV_FLOW_SPEC_ETH;
        rule.eth.size = sizeof rule.eth;
        std::memcpy(rule.eth.val.dst_mac, kMac, sizeof kMac);
        std::memset(rule.eth.mask.dst_mac, 0xff, sizeof kMac);
        rule.ip.type = IBV_FLOW_SPEC_IPV4;
        rule.ip.size = sizeof rule.ip;
        rule.ip.val.dst_ip = ::inet_addr("10.0.0.7");
        rule.ip.mask.dst_ip = 0xffffffff;
        rule.ports.type = IBV_FLOW_SPEC_UDP;
        rule.ports.size = sizeof rule.ports;
        rule.ports.val.dst_port = htons(7000);
        rule.ports.mask.dst_port = 0xffff;
        change(rule);
        ibv_flow *const made = ::ibv_create_flow(qp != nullptr ? qp : qp_, &rule.attr);
        if (made != nullptr)
            flows_.push_back(made);
        return made;
    }
    void unsteer(ibv_flow *flow)
    {
        std::erase(flows_, flow);
        assert_int_equal(::ibv_destroy_flow(flow), 0);
    }

private:
    std::uint64_t address(std::uint64_t frame)
    {
        return reinterpret_cast<std::uintptr_t>(memory_.data()) + frame * kRoom;
    }

    std::array<std::uint8_t, std::size_t{kReceives + 1} * kRoom> memory_{};
    ibv_context *context_ = nullptr;
    ibv_pd *pd_ = nullptr;
    ibv_cq *cq_ = nullptr;
    ibv_mr *mr_ = nullptr;
    ibv_qp *qp_ = nullptr;
    ibv_qp *other_ = nullptr;
    std::vector<ibv_flow *> flows_;
    unsigned posted_ = 0;
};

inline sim::Config two_devices(const sim::DeviceConfig &device = {})
{
    sim::Config config;
    config.clock = sim::Clock::manual;
    config.devices = {device, device};
    return config;
}

struct Wire {
    explicit Wire(const sim::Config &config = two_devices())
    {
        sim::reset(config);
        a = std::make_unique<Host>(0);
        b = std::make_unique<Host>(1);
    }
    ~Wire()
    {
        a.reset();
        b.reset();
        assert_int_equal(sim::stats().live.total(), 0);
    }
    Wire(const Wire &) = delete;
    Wire &operator=(const Wire &) = delete;

    std::unique_ptr<Host> a;
    std::unique_ptr<Host> b;
};

} // namespace vma::sim_test
