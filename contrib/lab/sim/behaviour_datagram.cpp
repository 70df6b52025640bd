// SPDX-License-Identifier: BSD-2-Clause
// Behaviour of datagrams (UD).
#include "contrib/lab/sim/behaviour.hpp"

#include <arpa/inet.h>
#include <chrono>
#include <cstring>

namespace vma::sim::behaviour {
namespace {

constexpr std::uint32_t kKey = 0x1ee7;
constexpr std::size_t kHeader = 40;

// A QP that sends to itself, over the device of an id that is bound to the lab's address.
struct Post {
    const verbs::Table &verbs;
    Manager manager;
    rdma_cm_id *id = nullptr;
    ibv_pd *pd = nullptr;
    ibv_cq *cq = nullptr;
    ibv_qp *qp = nullptr;
    ibv_mr *mr = nullptr;
    ibv_ah *ah = nullptr;
    unsigned char memory[4096] = {};

    explicit Post(Lab &lab) : verbs(lab.verbs), manager(lab) {}
    Post(const Post &) = delete;
    Post &operator=(const Post &) = delete;
    ~Post()
    {
        if (ah != nullptr)
            verbs.destroy_ah(ah);
        if (qp != nullptr)
            verbs.destroy_qp(qp);
        if (cq != nullptr)
            verbs.destroy_cq(cq);
        if (mr != nullptr)
            verbs.dereg_mr(mr);
        if (pd != nullptr)
            verbs.dealloc_pd(pd);
    }
};

void move(Lab &lab, Post &post, ibv_qp_state state, int mask)
{
    ibv_qp_attr attr{};
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qkey = kKey;
    EXPECT_EQ(post.verbs.modify_qp(post.qp, &attr, mask | IBV_QP_STATE), 0);
}

// The GID that stands for the lab's address.
void address_self(Lab &lab, Post &post)
{
    sockaddr_storage here = address_of(lab.address);
    ibv_gid wanted{};
    if (here.ss_family == AF_INET6) {
        std::memcpy(wanted.raw, &reinterpret_cast<sockaddr_in6 *>(&here)->sin6_addr, 16);
    } else {
        wanted.raw[10] = wanted.raw[11] = 0xff;
        std::memcpy(wanted.raw + 12, &reinterpret_cast<sockaddr_in *>(&here)->sin_addr, 4);
    }
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.hop_limit = 64;
    for (int i = 0; i < 256; ++i) {
        ibv_gid gid{};
        if (post.verbs.query_gid(post.id->verbs, 1, i, &gid) != 0)
            break;
        if (std::memcmp(gid.raw, wanted.raw, sizeof(gid.raw)) == 0) {
            attr.grh.sgid_index = static_cast<std::uint8_t>(i);
            attr.grh.dgid = gid;
        }
    }
    EXPECT(std::memcmp(attr.grh.dgid.raw, wanted.raw, 16) == 0);
    EXPECT((post.ah = post.verbs.create_ah(post.pd, &attr)) != nullptr);
}

void open(Lab &lab, Post &post)
{
    sockaddr_storage here = address_of(lab.address);
    EXPECT((post.id = post.manager.create()) != nullptr);
    EXPECT_EQ(post.verbs.bind_addr(post.id, reinterpret_cast<sockaddr *>(&here)), 0);
    EXPECT((post.pd = post.verbs.alloc_pd(post.id->verbs)) != nullptr);
    EXPECT((post.cq = post.verbs.create_cq(post.id->verbs, 16, nullptr, nullptr, 0)) != nullptr);
    EXPECT((post.mr = post.verbs.reg_mr(post.pd, post.memory, sizeof(post.memory), IBV_ACCESS_LOCAL_WRITE)) != nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = post.cq;
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    EXPECT((post.qp = post.verbs.create_qp(post.pd, &init)) != nullptr);
    move(lab, post, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    move(lab, post, IBV_QPS_RTR, 0);
    move(lab, post, IBV_QPS_RTS, IBV_QP_SQ_PSN);
    address_self(lab, post);
}

void send(Lab &lab, Post &post, std::uint64_t wr_id, std::uint32_t length, std::uint32_t key)
{
    ibv_sge sge{reinterpret_cast<std::uint64_t>(post.memory), length, post.mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htonl(static_cast<std::uint32_t>(wr_id));
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = post.ah;
    wr.wr.ud.remote_qpn = post.qp->qp_num;
    wr.wr.ud.remote_qkey = key;
    ibv_send_wr *bad = nullptr;
    EXPECT_EQ(::ibv_post_send(post.qp, &wr, &bad), 0);
}

void receive(Lab &lab, Post &post, std::uint64_t wr_id, std::uint32_t length)
{
    ibv_sge sge{reinterpret_cast<std::uint64_t>(post.memory) + 2048, length, post.mr->lkey};
    ibv_recv_wr wr{wr_id, nullptr, &sge, 1};
    ibv_recv_wr *bad = nullptr;
    EXPECT_EQ(::ibv_post_recv(post.qp, &wr, &bad), 0);
}

ibv_wc wait(Lab &lab, Post &post)
{
    ibv_wc wc{};
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (::ibv_poll_cq(post.cq, 1, &wc) == 0) {
        if (!lab.expect(std::chrono::steady_clock::now() < until, __FILE__, __LINE__, "a completion"))
            return {};
    }
    return wc;
}

void a_datagram_comes_with_its_header(Lab &lab)
{
    Post post(lab);
    open(lab, post);
    EXPECT(lab.failure.empty());
    std::memset(post.memory, 77, 100);
    receive(lab, post, 1000, 140);
    send(lab, post, 1, 100, kKey);
    bool sent = false;
    bool got = false;
    for (int i = 0; i < 2; ++i) {
        const ibv_wc wc = wait(lab, post);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        sent |= wc.opcode == IBV_WC_SEND && wc.wr_id == 1;
        if (wc.opcode != IBV_WC_RECV)
            continue;
        got = true;
        EXPECT_EQ(wc.wr_id, 1000);
        EXPECT_EQ(wc.byte_len, 100 + kHeader);
        EXPECT_EQ(wc.src_qp, post.qp->qp_num);
        EXPECT((wc.wc_flags & IBV_WC_GRH) != 0);
        EXPECT_EQ(ntohl(wc.imm_data), 1);
    }
    EXPECT(sent && got);
    EXPECT(std::memcmp(post.memory + 2048 + kHeader, post.memory, 100) == 0);
}

// A lost datagram is lost silently: no receive is posted, or the key is not the QP's.
void what_is_not_taken_is_lost(Lab &lab)
{
    Post post(lab);
    open(lab, post);
    EXPECT(lab.failure.empty());
    send(lab, post, 1, 100, kKey);
    EXPECT_EQ(wait(lab, post).status, IBV_WC_SUCCESS);
    receive(lab, post, 1000, 140);
    send(lab, post, 2, 100, kKey + 1);
    EXPECT_EQ(wait(lab, post).wr_id, 2);
    send(lab, post, 3, 50, kKey);
    ibv_wc wc = wait(lab, post);
    if (wc.opcode == IBV_WC_SEND)
        wc = wait(lab, post);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, 50 + kHeader);
}

constexpr Case kCases[] = {
    {"a_datagram_comes_with_its_header", a_datagram_comes_with_its_header},
    {"what_is_not_taken_is_lost", what_is_not_taken_is_lost},
};

} // namespace

std::span<const Case> datagram_cases()
{
    return kCases;
}

} // namespace vma::sim::behaviour
