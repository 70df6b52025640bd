// SPDX-License-Identifier: BSD-2-Clause
// The behaviour suite: what the provider counts on in an RDMA device, written once and run against the simulated NIC
// (contrib/lab/sim/test/behaviour_test) and against rdma-core's devices (contrib/lab/sim/behaviour). Both ends of each
// connection are in the process, over one device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "verbs/table.hpp"

namespace vma::sim::behaviour {

struct Lab {
    const verbs::Table &verbs;
    std::string address;   // of the device
    std::string failure{}; // of the case that runs; empty: none so far
    std::string passive{}; // of the passive side's device; empty: the same

    // Returns `good`. The first failure is kept.
    bool expect(bool good, const char *file, int line, const char *what);
    bool expect_equal(long long got, long long wanted, const char *file, int line, const char *what);
};

// A case ends at its first failure.
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!lab.expect(static_cast<bool>(condition), __FILE__, __LINE__, #condition))                                 \
            return;                                                                                                    \
    } while (0)
#define EXPECT_EQ(got, wanted)                                                                                         \
    do {                                                                                                               \
        if (!lab.expect_equal(static_cast<long long>(got), static_cast<long long>(wanted), __FILE__, __LINE__,         \
                              #got " == " #wanted))                                                                    \
            return;                                                                                                    \
    } while (0)

struct Case {
    const char *name;
    void (*run)(Lab &lab);
    const char *not_on_rxe = nullptr; // why rxe is right to do otherwise
};
// All, in the order of their running.
std::vector<Case> cases();
std::span<const Case> manager_cases();
std::span<const Case> message_cases();
std::span<const Case> error_cases();
std::span<const Case> event_cases();
std::span<const Case> datagram_cases();

// Runs one; what failed, or empty.
std::string run(const verbs::Table &verbs, const std::string &address, const Case &one);

// ---------------------------------------------------------------- what cases are made of

// Until something that must come is missed; nothing is measured with it.
constexpr int kPatienceMs = 600'000; // of the slowest machine

sockaddr_storage address_of(const std::string &text, std::uint16_t port = 0);
std::uint16_t port_of(rdma_cm_id *id);

// An event channel and its ids.
class Manager
{
public:
    explicit Manager(Lab &lab) : lab_(lab), channel_(lab.verbs.create_event_channel()) {}
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;
    ~Manager();

    rdma_event_channel *channel() const { return channel_; }
    rdma_cm_id *create();
    // The id is destroyed now, and not at the end.
    void destroy(rdma_cm_id *id);
    void adopt(rdma_cm_id *id) { ids_.push_back(id); }
    // The next event, acknowledged before the next call. Nullptr, and a failure: none came, or another type.
    rdma_cm_event *wait(rdma_cm_event_type type);
    bool quiet() const;

private:
    void acknowledge();

    Lab &lab_;
    rdma_event_channel *channel_;
    rdma_cm_event *event_ = nullptr;
    std::vector<rdma_cm_id *> ids_;
};

struct Options {
    std::uint32_t max_send_wr = 16;
    std::uint32_t max_recv_wr = 16;
    std::uint32_t max_sge = 4;
    std::uint32_t max_inline = 64;
    bool all_signaled = false;
    bool shared_receives = false; // by both
    bool stamped = false;         // completions have a time
    std::uint8_t rnr_retry = 7;
    std::uint8_t retry = 7;
    std::uint8_t ack_timeout = 14; // 67 ms
    std::uint8_t rnr_timer = 1;    // 10 us
    int cqe = 64;
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ; // of memory and QPs
};

// One end of a connection, with 64 KiB of registered memory.
struct End {
    rdma_cm_id *id = nullptr;
    ibv_pd *pd = nullptr; // one for both if they are on one device
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_cq_ex *stamped = nullptr; // the same, with Options::stamped
    ibv_qp *qp = nullptr;
    ibv_mr *mr = nullptr;
    std::vector<unsigned char> memory = std::vector<unsigned char>(65536);

    ibv_sge sge(std::size_t offset, std::uint32_t length) const;
    std::uint64_t at(std::size_t offset) const { return reinterpret_cast<std::uint64_t>(memory.data() + offset); }
};

// The queue of Options::stamped; nullptr and errno from devices that stamp nothing.
ibv_cq_ex *create_stamped_queue(ibv_context *context, std::uint32_t cqe, ibv_comp_channel *channel);

struct Stamped {
    ibv_wc wc; // of an error: wr_id, status, qp_num
    std::uint64_t ticks;
};

// Two ends that are connected by the CM, `a` the active one.
class Pair
{
public:
    Pair(Lab &lab, const Options &options = {});
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;
    ~Pair();

    End a;
    End b;
    ibv_srq *srq = nullptr; // with a's PD
    Manager manager;

    explicit operator bool() const { return ready_; }
    bool send(End &end, ibv_send_wr &wr, int wanted = 0);
    bool receive(End &end, std::uint64_t wr_id, std::vector<ibv_sge> sges, int wanted = 0);
    // The next completion; a failure if none comes.
    ibv_wc wait(const End &end);
    Stamped wait_stamped(const End &end);
    bool empty(const End &end);
    ibv_qp_state state(const End &end);
    // Moves it to ERR.
    bool fail(const End &end);

private:
    bool connect();
    bool make_end(End &end);
    bool move(End &end, ibv_qp_state state);
    bool resolve();

    Lab &lab_;
    Options options_;
    rdma_cm_id *listener_ = nullptr;
    bool ready_ = false;
};

// A request for the bytes of `sges`, which have to stay until it is posted.
ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t wr_id, std::vector<ibv_sge> &sges,
                    unsigned flags = IBV_SEND_SIGNALED);
ibv_send_wr rdma(ibv_wr_opcode opcode, std::uint64_t wr_id, std::vector<ibv_sge> &sges, std::uint64_t remote,
                 std::uint32_t rkey, unsigned flags = IBV_SEND_SIGNALED);

} // namespace vma::sim::behaviour
