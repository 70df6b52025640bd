// SPDX-License-Identifier: BSD-2-Clause
// Behaviour of messages on a reliable connection that go well, and of what posting refuses.
#include "contrib/lab/sim/behaviour.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>

namespace vma::sim::behaviour {
namespace {

void fill(End &end, std::size_t offset, std::size_t length, unsigned seed)
{
    for (std::size_t i = 0; i < length; ++i)
        end.memory[offset + i] = static_cast<unsigned char>(seed + i * 7);
}

bool same(const End &x, std::size_t at, const End &y, std::size_t there, std::size_t length)
{
    return std::memcmp(x.memory.data() + at, y.memory.data() + there, length) == 0;
}

void send_arrives_in_a_receive(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    fill(pair.a, 0, 5000, 3);
    EXPECT(pair.receive(pair.b, 7, {pair.b.sge(100, 8000)}));
    std::vector<ibv_sge> sges{pair.a.sge(0, 5000)};
    ibv_send_wr wr = request(IBV_WR_SEND, 9, sges);
    EXPECT(pair.send(pair.a, wr));
    const ibv_wc got = pair.wait(pair.b);
    EXPECT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_EQ(got.opcode, IBV_WC_RECV);
    EXPECT_EQ(got.wr_id, 7);
    EXPECT_EQ(got.byte_len, 5000);
    EXPECT_EQ(got.qp_num, pair.b.qp->qp_num);
    EXPECT_EQ(got.wc_flags & IBV_WC_WITH_IMM, 0);
    EXPECT(same(pair.a, 0, pair.b, 100, 5000));
    const ibv_wc sent = pair.wait(pair.a);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(sent.wr_id, 9);
    EXPECT_EQ(sent.qp_num, pair.a.qp->qp_num);
}

void immediate_data_travels(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 100)}));
    EXPECT(pair.receive(pair.b, 2, {}));
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    ibv_send_wr first = request(IBV_WR_SEND_WITH_IMM, 1, sges);
    first.imm_data = htonl(0x12345678);
    fill(pair.a, 0, 10, 1);
    ibv_send_wr second = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 2, sges, pair.b.at(2000), pair.b.mr->rkey);
    second.imm_data = htonl(99);
    first.next = &second;
    EXPECT(pair.send(pair.a, first));
    ibv_wc got = pair.wait(pair.b);
    EXPECT_EQ(got.opcode, IBV_WC_RECV);
    EXPECT((got.wc_flags & IBV_WC_WITH_IMM) != 0);
    EXPECT_EQ(ntohl(got.imm_data), 0x12345678);
    got = pair.wait(pair.b);
    EXPECT_EQ(got.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(got.wr_id, 2);
    EXPECT_EQ(ntohl(got.imm_data), 99);
    EXPECT_EQ(got.byte_len, 10);
    EXPECT(same(pair.a, 0, pair.b, 2000, 10));
    EXPECT_EQ(pair.wait(pair.a).opcode, IBV_WC_SEND);
    EXPECT_EQ(pair.wait(pair.a).opcode, IBV_WC_RDMA_WRITE);
}

void write_and_read_need_no_receive(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    fill(pair.a, 0, 10000, 5);
    std::vector<ibv_sge> sges{pair.a.sge(0, 10000)};
    ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, 1, sges, pair.b.at(20000), pair.b.mr->rkey);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.a).status, IBV_WC_SUCCESS);
    EXPECT(same(pair.a, 0, pair.b, 20000, 10000));
    std::vector<ibv_sge> back{pair.a.sge(30000, 10000)};
    wr = rdma(IBV_WR_RDMA_READ, 2, back, pair.b.at(20000), pair.b.mr->rkey);
    EXPECT(pair.send(pair.a, wr));
    const ibv_wc read = pair.wait(pair.a);
    EXPECT_EQ(read.status, IBV_WC_SUCCESS);
    EXPECT_EQ(read.opcode, IBV_WC_RDMA_READ);
    EXPECT(same(pair.a, 30000, pair.a, 0, 10000));
    EXPECT(pair.empty(pair.b));
}

void scatter_and_gather(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    fill(pair.a, 0, 300, 11);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 50), pair.b.sge(1000, 150), pair.b.sge(2000, 500)}));
    std::vector<ibv_sge> sges{pair.a.sge(0, 100), pair.a.sge(100, 0), pair.a.sge(100, 120), pair.a.sge(220, 80)};
    ibv_send_wr wr = request(IBV_WR_SEND, 1, sges);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.b).byte_len, 300);
    EXPECT(same(pair.a, 0, pair.b, 0, 50));
    EXPECT(same(pair.a, 50, pair.b, 1000, 150));
    EXPECT(same(pair.a, 200, pair.b, 2000, 100));
}

void inline_data_is_taken_at_once(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    unsigned char bytes[40];
    std::memset(bytes, 42, sizeof(bytes));
    // Nothing is registered: the key means nothing.
    std::vector<ibv_sge> sges{{reinterpret_cast<std::uint64_t>(bytes), sizeof(bytes), 0}};
    ibv_send_wr wr = request(IBV_WR_SEND, 1, sges, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    EXPECT(pair.send(pair.a, wr));
    std::memset(bytes, 1, sizeof(bytes));
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 100)}));
    EXPECT_EQ(pair.wait(pair.b).byte_len, sizeof(bytes));
    EXPECT_EQ(std::count(pair.b.memory.begin(), pair.b.memory.end(), 42), sizeof(bytes));
    EXPECT_EQ(pair.wait(pair.a).status, IBV_WC_SUCCESS);
}

void no_bytes_are_a_message(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    EXPECT(pair.receive(pair.b, 1, {}));
    std::vector<ibv_sge> none;
    ibv_send_wr wr = request(IBV_WR_SEND, 1, none);
    EXPECT(pair.send(pair.a, wr));
    const ibv_wc got = pair.wait(pair.b);
    EXPECT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_EQ(got.byte_len, 0);
    // RDMA of nothing looks at no key.
    wr = rdma(IBV_WR_RDMA_WRITE, 2, none, 0, 0);
    EXPECT(pair.send(pair.a, wr));
    EXPECT_EQ(pair.wait(pair.a).wr_id, 1);
    const ibv_wc written = pair.wait(pair.a);
    EXPECT_EQ(written.wr_id, 2);
    EXPECT_EQ(written.status, IBV_WC_SUCCESS);
}

void only_signaled_requests_complete(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    for (std::uint64_t i = 0; i < 6; ++i) {
        EXPECT(pair.receive(pair.b, i, {pair.b.sge(0, 100)}));
        ibv_send_wr wr = request(IBV_WR_SEND, i, sges, i == 5 ? unsigned{IBV_SEND_SIGNALED} : 0U);
        EXPECT(pair.send(pair.a, wr));
    }
    for (std::uint64_t i = 0; i < 6; ++i)
        EXPECT_EQ(pair.wait(pair.b).wr_id, i);
    EXPECT_EQ(pair.wait(pair.a).wr_id, 5);
    EXPECT(pair.empty(pair.a));
}

void all_complete_if_the_queue_says_so(Lab &lab)
{
    Pair pair(lab, {.all_signaled = true});
    EXPECT(pair);
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    for (std::uint64_t i = 0; i < 3; ++i) {
        ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, i, sges, pair.b.at(0), pair.b.mr->rkey, 0);
        EXPECT(pair.send(pair.a, wr));
    }
    for (std::uint64_t i = 0; i < 3; ++i)
        EXPECT_EQ(pair.wait(pair.a).wr_id, i);
}

void posting_checks_limits(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(lab.verbs.query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init), 0);
    const std::vector<ibv_sge> many(init.cap.max_send_sge + 1, pair.a.sge(0, 1));
    std::vector<ibv_sge> sges = many;
    ibv_send_wr wr = request(IBV_WR_SEND, 1, sges);
    EXPECT(pair.send(pair.a, wr, EINVAL));
    EXPECT(pair.receive(pair.b, 1, std::vector<ibv_sge>(init.cap.max_recv_sge + 1, pair.b.sge(0, 1)), EINVAL));
    sges = {pair.a.sge(0, init.cap.max_inline_data + 1)};
    wr = request(IBV_WR_SEND, 1, sges, IBV_SEND_INLINE);
    EXPECT(pair.send(pair.a, wr, EINVAL));
    EXPECT(pair.empty(pair.a));
}

// The room that a request takes is given back when it, or a later one, is polled.
void a_full_queue_says_so(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(lab.verbs.query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init), 0);
    std::vector<ibv_sge> sges{pair.a.sge(0, 10)};
    const std::uint64_t room = init.cap.max_send_wr;
    int error = 0;
    std::uint64_t posted = 0;
    // Sends that nobody receives stay in the queue.
    for (; error == 0 && posted <= room; ++posted) {
        ibv_send_wr wr = request(IBV_WR_SEND, posted, sges, IBV_SEND_SIGNALED);
        ibv_send_wr *bad = nullptr;
        error = ::ibv_post_send(pair.a.qp, &wr, &bad);
        if (error != 0)
            EXPECT(bad == &wr);
    }
    EXPECT_EQ(error, ENOMEM);
    EXPECT(posted > 16);
    EXPECT(pair.receive(pair.b, 1, {pair.b.sge(0, 10)}));
    EXPECT_EQ(pair.wait(pair.a).wr_id, 0);
    ibv_send_wr wr = request(IBV_WR_SEND, 1, sges);
    EXPECT(pair.send(pair.a, wr));
}

void a_chain_stops_at_its_fault(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    std::vector<ibv_sge> good{pair.a.sge(0, 10)};
    ibv_send_wr first = rdma(IBV_WR_RDMA_WRITE, 1, good, pair.b.at(0), pair.b.mr->rkey);
    ibv_send_wr second = first;
    ibv_send_wr third = first;
    second.num_sge = 1000;
    first.next = &second;
    second.next = &third;
    ibv_send_wr *bad = nullptr;
    EXPECT_EQ(::ibv_post_send(pair.a.qp, &first, &bad), EINVAL);
    EXPECT(bad == &second);
    EXPECT_EQ(pair.wait(pair.a).wr_id, 1);
    EXPECT(pair.empty(pair.a));
}

void a_fence_waits_for_reads(Lab &lab)
{
    Pair pair(lab);
    EXPECT(pair);
    fill(pair.b, 0, 4000, 9);
    std::vector<ibv_sge> into{pair.a.sge(0, 4000)};
    ibv_send_wr read = rdma(IBV_WR_RDMA_READ, 1, into, pair.b.at(0), pair.b.mr->rkey, 0);
    ibv_send_wr write =
        rdma(IBV_WR_RDMA_WRITE, 2, into, pair.b.at(8000), pair.b.mr->rkey, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    read.next = &write;
    EXPECT(pair.send(pair.a, read));
    EXPECT_EQ(pair.wait(pair.a).wr_id, 2);
    EXPECT(same(pair.b, 0, pair.b, 8000, 4000));
}

// 0: there is none that completions are stamped with.
std::uint64_t clock_khz(ibv_context *context)
{
    ibv_device_attr_ex device{};
    const verbs_context *extended = __extension__ verbs_get_ctx_op(context, query_device_ex);
    if (extended == nullptr || extended->query_device_ex(context, nullptr, &device, sizeof device) != 0)
        return 0;
    return device.hca_core_clock;
}

bool read_clock(ibv_context *context, std::uint64_t &ticks)
{
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    if (::ibv_query_rt_values_ex(context, &values) != 0)
        return false;
    ticks = static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
    return (values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0;
}

void completions_are_stamped_in_order(Lab &lab)
{
    Pair pair(lab, {.stamped = true});
    EXPECT(pair);
    std::uint64_t last = 0;
    EXPECT(read_clock(pair.b.id->verbs, last));
    for (std::uint32_t i = 1; i <= 3; ++i) {
        EXPECT(pair.receive(pair.b, i, {pair.b.sge(0, 100)}));
        std::vector<ibv_sge> sges{pair.a.sge(0, i)};
        ibv_send_wr wr = request(IBV_WR_SEND, i, sges);
        EXPECT(pair.send(pair.a, wr));
        const Stamped got = pair.wait_stamped(pair.b);
        EXPECT_EQ(got.wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(got.wc.opcode, IBV_WC_RECV);
        EXPECT_EQ(got.wc.wr_id, i);
        EXPECT_EQ(got.wc.byte_len, i);
        EXPECT_EQ(got.wc.qp_num, pair.b.qp->qp_num);
        EXPECT(got.ticks >= last);
        last = got.ticks;
    }
    std::uint64_t now = 0;
    EXPECT(read_clock(pair.b.id->verbs, now));
    EXPECT(now >= last);
    EXPECT(pair.receive(pair.b, 9, {pair.b.sge(0, 100)}));
    EXPECT(pair.fail(pair.b));
    const Stamped flushed = pair.wait_stamped(pair.b);
    EXPECT_EQ(flushed.wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed.wc.wr_id, 9);
    EXPECT_EQ(flushed.wc.qp_num, pair.b.qp->qp_num);
}

// The provider finds out by making such a queue.
void completions_are_stamped_or_such_queues_refused(Lab &lab)
{
    {
        Pair plain(lab);
        EXPECT(plain);
        if (clock_khz(plain.a.id->verbs) == 0) {
            EXPECT(create_stamped_queue(plain.a.id->verbs, 4, nullptr) == nullptr);
            EXPECT_EQ(errno, EOPNOTSUPP);
            return;
        }
    }
    completions_are_stamped_in_order(lab);
}

constexpr Case kCases[] = {
    {"send_arrives_in_a_receive", send_arrives_in_a_receive},
    {"immediate_data_travels", immediate_data_travels},
    {"write_and_read_need_no_receive", write_and_read_need_no_receive},
    {"scatter_and_gather", scatter_and_gather},
    {"inline_data_is_taken_at_once", inline_data_is_taken_at_once},
    {"no_bytes_are_a_message", no_bytes_are_a_message},
    {"only_signaled_requests_complete", only_signaled_requests_complete},
    {"all_complete_if_the_queue_says_so", all_complete_if_the_queue_says_so},
    {"posting_checks_limits", posting_checks_limits},
    {"a_full_queue_says_so", a_full_queue_says_so},
    {"a_chain_stops_at_its_fault", a_chain_stops_at_its_fault},
    {"a_fence_waits_for_reads", a_fence_waits_for_reads},
    {"completions_are_stamped_or_such_queues_refused", completions_are_stamped_or_such_queues_refused},
};

} // namespace

std::span<const Case> message_cases()
{
    return kCases;
}

} // namespace vma::sim::behaviour
