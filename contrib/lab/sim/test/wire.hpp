// SPDX-License-Identifier: BSD-2-Clause
// Two simulated devices with a connection between them and a clock that the test turns.
#pragma once

#include "fabtests/unit.hpp"

#include <memory>

#include "contrib/lab/sim/behaviour.hpp"
#include "contrib/lab/sim/sim.hpp"

namespace vma::sim::test {

using behaviour::End;
using behaviour::Lab;
using behaviour::Options;
using behaviour::Pair;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline Config two_devices()
{
    Config config;
    config.clock = Clock::manual;
    config.devices = {{.addresses = {"10.0.0.1"}}, {.addresses = {"10.0.0.2", "fd00::2"}}};
    return config;
}

// Side `a` is on device 0, `b` on device 1.
struct Wire {
    Lab lab{*table(), "10.0.0.1", {}, "10.0.0.2"};
    std::unique_ptr<Pair> pair;

    explicit Wire(const Options &options = {}, const Config &config = two_devices())
    {
        reset(config);
        pair = std::make_unique<Pair>(lab, options);
        check();
    }
    Wire(const Wire &) = delete;
    Wire &operator=(const Wire &) = delete;
    ~Wire()
    {
        pair.reset();
        check();
        assert_int_equal(stats().live.total(), 0);
    }

    End &a() { return pair->a; }
    End &b() { return pair->b; }
    void check() const
    {
        if (!lab.failure.empty())
            UNIT_FAIL(lab.failure.c_str());
    }
    // Posts a write of `length` bytes to b, or a send.
    void write(std::uint64_t wr_id, std::uint32_t length, unsigned flags = IBV_SEND_SIGNALED)
    {
        std::vector<ibv_sge> sges{a().sge(0, length)};
        ibv_send_wr wr = behaviour::rdma(IBV_WR_RDMA_WRITE, wr_id, sges, b().at(0), b().mr->rkey, flags);
        assert_true(pair->send(a(), wr));
    }
    void send(std::uint64_t wr_id, std::uint32_t length = 100, unsigned flags = IBV_SEND_SIGNALED)
    {
        std::vector<ibv_sge> sges{a().sge(0, length)};
        ibv_send_wr wr = behaviour::request(IBV_WR_SEND, wr_id, sges, flags);
        assert_true(pair->send(a(), wr));
    }
    void receive(std::uint64_t wr_id) { assert_true(pair->receive(b(), wr_id, {b().sge(0, 1000)})); }
    // The completion that is there, and no other.
    ibv_wc only(const End &end)
    {
        ibv_wc wc[2] = {};
        assert_int_equal(::ibv_poll_cq(end.cq, 2, wc), 1);
        return wc[0];
    }
    ibv_async_event async(const End &end)
    {
        ibv_async_event event{};
        assert_int_equal(table()->get_async_event(end.id->verbs, &event), 0);
        table()->ack_async_event(&event);
        return event;
    }
};

} // namespace vma::sim::test
