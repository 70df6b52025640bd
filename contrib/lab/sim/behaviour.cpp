// SPDX-License-Identifier: BSD-2-Clause
#include "contrib/lab/sim/behaviour.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <utility>

namespace vma::sim::behaviour {

bool Lab::expect(bool good, const char *file, int line, const char *what)
{
    if (!good && failure.empty())
        failure =
            std::string(file) + ":" + std::to_string(line) + ": " + what + " (errno " + std::to_string(errno) + ")";
    return good;
}

bool Lab::expect_equal(long long got, long long wanted, const char *file, int line, const char *what)
{
    if (got != wanted && failure.empty())
        failure = std::string(file) + ":" + std::to_string(line) + ": " + what + ": got " + std::to_string(got) +
                  ", not " + std::to_string(wanted) + " (errno " + std::to_string(errno) + ")";
    return got == wanted;
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const auto &group : {manager_cases(), message_cases(), error_cases(), event_cases(), datagram_cases()})
        all.insert(all.end(), group.begin(), group.end());
    return all;
}

std::string run(const verbs::Table &verbs, const std::string &address, const Case &one)
{
    Lab lab{verbs, address};
    one.run(lab);
    return lab.failure;
}

sockaddr_storage address_of(const std::string &text, std::uint16_t port)
{
    sockaddr_storage made{};
    sockaddr_in6 v6{};
    if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
        std::memcpy(&made, &v6, sizeof(v6));
        return made;
    }
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    ::inet_pton(AF_INET, text.c_str(), &v4.sin_addr);
    std::memcpy(&made, &v4, sizeof(v4));
    return made;
}

std::uint16_t port_of(rdma_cm_id *id)
{
    const rdma_addr &addr = id->route.addr;
    return ntohs(addr.src_addr.sa_family == AF_INET6 ? addr.src_sin6.sin6_port : addr.src_sin.sin_port);
}

Manager::~Manager()
{
    acknowledge();
    for (rdma_cm_id *id : ids_)
        lab_.verbs.destroy_id(id);
    lab_.verbs.destroy_event_channel(channel_);
}

rdma_cm_id *Manager::create()
{
    rdma_cm_id *id = nullptr;
    if (lab_.expect_equal(lab_.verbs.create_id(channel_, &id, this, RDMA_PS_TCP), 0, __FILE__, __LINE__, "create_id"))
        ids_.push_back(id);
    return id;
}

void Manager::destroy(rdma_cm_id *id)
{
    acknowledge();
    std::erase(ids_, id);
    lab_.verbs.destroy_id(id);
}

void Manager::acknowledge()
{
    if (event_ != nullptr)
        lab_.verbs.ack_cm_event(std::exchange(event_, nullptr));
}

rdma_cm_event *Manager::wait(rdma_cm_event_type type)
{
    acknowledge();
    pollfd readable{channel_->fd, POLLIN, 0};
    const bool came = ::poll(&readable, 1, kPatienceMs) == 1 && lab_.verbs.get_cm_event(channel_, &event_) == 0;
    if (!lab_.expect(came, __FILE__, __LINE__, lab_.verbs.event_str(type)))
        return nullptr;
    return lab_.expect_equal(event_->event, type, __FILE__, __LINE__, lab_.verbs.event_str(type)) ? event_ : nullptr;
}

bool Manager::quiet() const
{
    pollfd readable{channel_->fd, POLLIN, 0};
    return ::poll(&readable, 1, 0) == 0;
}

ibv_sge End::sge(std::size_t offset, std::uint32_t length) const
{
    return {at(offset), length, mr->lkey};
}

ibv_cq_ex *create_stamped_queue(ibv_context *context, std::uint32_t cqe, ibv_comp_channel *channel)
{
    ibv_cq_init_attr_ex attr{};
    attr.cqe = cqe;
    attr.channel = channel;
    attr.wc_flags =
        IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    return ::ibv_create_cq_ex(context, &attr);
}

Pair::Pair(Lab &lab, const Options &options) : manager(lab), lab_(lab), options_(options)
{
    ready_ = connect();
}

Pair::~Pair()
{
    const verbs::Table &v = lab_.verbs;
    for (End *end : {&a, &b}) {
        if (end->qp != nullptr)
            lab_.expect_equal(v.destroy_qp(end->qp), 0, __FILE__, __LINE__, "destroy_qp");
        if (end->cq != nullptr)
            lab_.expect_equal(v.destroy_cq(end->cq), 0, __FILE__, __LINE__, "destroy_cq");
        if (end->channel != nullptr)
            lab_.expect_equal(v.destroy_comp_channel(end->channel), 0, __FILE__, __LINE__, "destroy_comp_channel");
        if (end->mr != nullptr)
            lab_.expect_equal(v.dereg_mr(end->mr), 0, __FILE__, __LINE__, "dereg_mr");
    }
    if (srq != nullptr)
        lab_.expect_equal(v.destroy_srq(srq), 0, __FILE__, __LINE__, "destroy_srq");
    if (b.pd != nullptr && b.pd != a.pd)
        lab_.expect_equal(v.dealloc_pd(b.pd), 0, __FILE__, __LINE__, "dealloc_pd");
    if (a.pd != nullptr)
        lab_.expect_equal(v.dealloc_pd(a.pd), 0, __FILE__, __LINE__, "dealloc_pd");
}

#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!lab_.expect(static_cast<bool>(condition), __FILE__, __LINE__, #condition))                                \
            return false;                                                                                              \
    } while (0)

bool Pair::make_end(End &end)
{
    const verbs::Table &v = lab_.verbs;
    ibv_context *context = end.id->verbs;
    NEED(end.channel = v.create_comp_channel(context));
    if (options_.stamped) {
        NEED(end.stamped = create_stamped_queue(context, static_cast<std::uint32_t>(options_.cqe), end.channel));
        end.cq = ibv_cq_ex_to_cq(end.stamped);
    } else {
        NEED(end.cq = v.create_cq(context, options_.cqe, this, end.channel, 0));
    }
    NEED(end.mr = v.reg_mr(end.pd, end.memory.data(), end.memory.size(), static_cast<int>(options_.access)));
    ibv_qp_init_attr init{};
    init.qp_context = &end;
    init.send_cq = init.recv_cq = end.cq;
    init.srq = srq;
    init.cap = {options_.max_send_wr, options_.max_recv_wr, options_.max_sge, options_.max_sge, options_.max_inline};
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = options_.all_signaled ? 1 : 0;
    NEED(end.qp = v.create_qp(end.pd, &init));
    return move(end, IBV_QPS_INIT);
}

bool Pair::move(End &end, ibv_qp_state state)
{
    const verbs::Table &v = lab_.verbs;
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = state;
    NEED(v.init_qp_attr(end.id, &attr, &mask) == 0);
    if (state == IBV_QPS_INIT)
        attr.qp_access_flags = options_.access;
    if (state == IBV_QPS_RTR)
        attr.min_rnr_timer = options_.rnr_timer;
    NEED((errno = v.modify_qp(end.qp, &attr, mask)) == 0);
    return true;
}

bool Pair::resolve()
{
    const verbs::Table &v = lab_.verbs;
    sockaddr_storage to = address_of(lab_.passive.empty() ? lab_.address : lab_.passive, port_of(listener_));
    sockaddr_storage from = address_of(lab_.address);
    NEED(v.set_option(a.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &options_.ack_timeout, 1) == 0);
    NEED(v.resolve_addr(a.id, reinterpret_cast<sockaddr *>(&from), reinterpret_cast<sockaddr *>(&to), 2000) == 0);
    NEED(manager.wait(RDMA_CM_EVENT_ADDR_RESOLVED));
    NEED(v.resolve_route(a.id, 2000) == 0);
    NEED(manager.wait(RDMA_CM_EVENT_ROUTE_RESOLVED));
    return true;
}

bool Pair::connect()
{
    const verbs::Table &v = lab_.verbs;
    sockaddr_storage here = address_of(lab_.passive.empty() ? lab_.address : lab_.passive);
    NEED(listener_ = manager.create());
    NEED(v.bind_addr(listener_, reinterpret_cast<sockaddr *>(&here)) == 0);
    NEED(v.listen(listener_, 4) == 0);
    NEED(a.id = manager.create());
    NEED(resolve());
    NEED(a.pd = v.alloc_pd(a.id->verbs));
    if (options_.shared_receives) {
        ibv_srq_init_attr init{};
        init.attr = {options_.max_recv_wr, options_.max_sge, 0};
        NEED(srq = v.create_srq(a.pd, &init));
    }
    NEED(make_end(a));
    rdma_conn_param param{};
    param.responder_resources = param.initiator_depth = 1;
    param.retry_count = options_.retry;
    param.rnr_retry_count = options_.rnr_retry;
    param.qp_num = a.qp->qp_num;
    NEED(v.connect(a.id, &param) == 0);
    rdma_cm_event *event = manager.wait(RDMA_CM_EVENT_CONNECT_REQUEST);
    NEED(event != nullptr);
    b.id = event->id;
    manager.adopt(b.id);
    NEED(b.pd = b.id->verbs == a.id->verbs ? a.pd : v.alloc_pd(b.id->verbs));
    NEED(make_end(b) && move(b, IBV_QPS_RTR) && move(b, IBV_QPS_RTS));
    param.qp_num = b.qp->qp_num;
    NEED(v.accept(b.id, &param) == 0);
    NEED(manager.wait(RDMA_CM_EVENT_CONNECT_RESPONSE));
    NEED(move(a, IBV_QPS_RTR) && move(a, IBV_QPS_RTS));
    NEED(v.establish(a.id) == 0);
    NEED(manager.wait(RDMA_CM_EVENT_ESTABLISHED));
    return true;
}

bool Pair::send(End &end, ibv_send_wr &wr, int wanted)
{
    ibv_send_wr *bad = nullptr;
    return lab_.expect_equal(::ibv_post_send(end.qp, &wr, &bad), wanted, __FILE__, __LINE__, "ibv_post_send");
}

bool Pair::receive(End &end, std::uint64_t wr_id, std::vector<ibv_sge> sges, int wanted)
{
    ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())};
    ibv_recv_wr *bad = nullptr;
    const int got = srq != nullptr ? ::ibv_post_srq_recv(srq, &wr, &bad) : ::ibv_post_recv(end.qp, &wr, &bad);
    return lab_.expect_equal(got, wanted, __FILE__, __LINE__, "ibv_post_recv");
}

ibv_wc Pair::wait(const End &end)
{
    ibv_wc wc{};
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (::ibv_poll_cq(end.cq, 1, &wc) == 0) {
        if (!lab_.expect(std::chrono::steady_clock::now() < until, __FILE__, __LINE__, "a completion"))
            return {};
        ::sched_yield();
    }
    return wc;
}

Stamped Pair::wait_stamped(const End &end)
{
    Stamped got{};
    ibv_poll_cq_attr attr{};
    ibv_cq_ex *queue = end.stamped;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (::ibv_start_poll(queue, &attr) != 0) {
        if (!lab_.expect(std::chrono::steady_clock::now() < until, __FILE__, __LINE__, "a completion"))
            return {};
        ::sched_yield();
    }
    got.wc.wr_id = queue->wr_id;
    got.wc.status = queue->status;
    got.wc.qp_num = ::ibv_wc_read_qp_num(queue);
    if (got.wc.status == IBV_WC_SUCCESS) {
        got.wc.opcode = ::ibv_wc_read_opcode(queue);
        got.wc.byte_len = ::ibv_wc_read_byte_len(queue);
        got.wc.wc_flags = ::ibv_wc_read_wc_flags(queue);
        got.ticks = ::ibv_wc_read_completion_ts(queue);
    }
    ::ibv_end_poll(queue);
    return got;
}

bool Pair::empty(const End &end)
{
    ibv_wc wc;
    return ::ibv_poll_cq(end.cq, 1, &wc) == 0;
}

ibv_qp_state Pair::state(const End &end)
{
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    lab_.expect_equal(lab_.verbs.query_qp(end.qp, &attr, IBV_QP_STATE, &init), 0, __FILE__, __LINE__, "query_qp");
    return attr.qp_state;
}

bool Pair::fail(const End &end)
{
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    NEED(lab_.verbs.modify_qp(end.qp, &attr, IBV_QP_STATE) == 0);
    return true;
}

ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t wr_id, std::vector<ibv_sge> &sges, unsigned flags)
{
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.opcode = opcode;
    wr.send_flags = flags;
    return wr;
}

ibv_send_wr rdma(ibv_wr_opcode opcode, std::uint64_t wr_id, std::vector<ibv_sge> &sges, std::uint64_t remote,
                 std::uint32_t rkey, unsigned flags)
{
    ibv_send_wr wr = request(opcode, wr_id, sges, flags);
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return wr;
}

} // namespace vma::sim::behaviour
