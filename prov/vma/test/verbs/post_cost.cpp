// SPDX-License-Identifier: BSD-2-Clause
// Small sends over the simulated NIC, by libfabric's calls or by bare verbs on the same queue pair, for callgrind to
// count the instructions of: those within ..._sends() alone. fabtests/fabric/test_post_cost.py runs it. Usage:
// post_cost fi|verbs send|inject
#include "prov/vma/test/verbs/pair.hpp"

#include <cstdio>
#include <string_view>

#include "verbs/endpoint.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr int kBatch = 64;
constexpr int kBatches = 200;
constexpr std::size_t kLength = 8; // bytes
constexpr int kBurst = 16;         // completions asked for at a time
constexpr std::size_t kQueue = 256;

struct Sender {
    fid_ep *ep;
    fid_cq *cq;
    ibv_qp *qp;
    ibv_cq *device_cq;
    const void *bytes;
    void *desc;
    ibv_mr *mr;
    int posted = 0; // bare verbs: since the last signalled one
};

void check(bool ok)
{
    if (!ok) {
        std::fputs("post_cost: a call failed\n", stderr);
        std::exit(1);
    }
}

} // namespace

// Each is one function for callgrind to find.
extern "C" {

[[gnu::noinline]] void fi_sends(Sender &sender)
{
    for (int i = 0; i < kBatch; ++i)
        check(fi_send(sender.ep, sender.bytes, kLength, sender.desc, 0, &sender) == 0);
    fi_cq_data_entry entries[kBurst];
    for (int left = kBatch; left > 0; left -= kBurst)
        check(fi_cq_read(sender.cq, entries, kBurst) == kBurst);
}

[[gnu::noinline]] void fi_injects(Sender &sender)
{
    for (int i = 0; i < kBatch; ++i)
        check(fi_inject(sender.ep, sender.bytes, kLength, 0) == 0);
}

// What a program would write that knows its queue pair and nothing else: no lock, no look at the queue's room.
static void post(Sender &sender, unsigned flags)
{
    ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(sender.bytes), .length = kLength, .lkey = sender.mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = reinterpret_cast<std::uintptr_t>(&sender);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE | flags;
    ibv_send_wr *refused = nullptr;
    check(ibv_post_send(sender.qp, &wr, &refused) == 0);
}

[[gnu::noinline]] void verbs_sends(Sender &sender)
{
    for (int i = 0; i < kBatch; ++i)
        post(sender, IBV_SEND_SIGNALED);
    ibv_wc entries[kBurst];
    for (int left = kBatch; left > 0; left -= kBurst) {
        check(ibv_poll_cq(sender.device_cq, kBurst, entries) == kBurst);
        for (const ibv_wc &entry : entries)
            check(entry.status == IBV_WC_SUCCESS);
    }
}

[[gnu::noinline]] void verbs_injects(Sender &sender)
{
    for (int i = 0; i < kBatch; ++i) {
        const bool tell = ++sender.posted == kQueue / 4;
        post(sender, tell ? IBV_SEND_SIGNALED : 0);
        if (tell) {
            sender.posted = 0;
            ibv_wc entry;
            while (ibv_poll_cq(sender.device_cq, 1, &entry) == 1)
                check(entry.status == IBV_WC_SUCCESS);
        }
    }
}
}

int main(int argc, char **argv)
{
    const std::string_view by = argc == 3 ? argv[1] : "";
    const std::string_view what = argc == 3 ? argv[2] : "";
    const bool injects = what == "inject";
    if ((by != "fi" && by != "verbs") || (what != "send" && !injects)) {
        std::fputs("usage: post_cost fi|verbs send|inject\n", stderr);
        return 2;
    }
    const SimulatedHost host;
    RdmaPair pair({.tx_size = kQueue, .rx_size = kQueue});
    Memory out(pair.a.domain(), kLength);
    Memory in(pair.b.domain(), kLength);
    const auto &endpoint = *reinterpret_cast<verbs::Endpoint *>(pair.a.ep);
    Sender sender = {.ep = pair.a.ep,
                     .cq = pair.a.cq(),
                     .qp = endpoint.qp,
                     .device_cq = endpoint.tx_queue->cq,
                     .bytes = out.bytes.data(),
                     .desc = out.desc(),
                     .mr = static_cast<ibv_mr *>(static_cast<ofi::DeviceMr *>(out.desc())->handle)};
    for (int batch = 0; batch < kBatches; ++batch) {
        for (int i = 0; i < kBatch; ++i)
            check(fi_recv(pair.b.ep, in.bytes.data(), kLength, in.desc(), 0, nullptr) == 0);
        if (by == "fi")
            injects ? fi_injects(sender) : fi_sends(sender);
        else
            injects ? verbs_injects(sender) : verbs_sends(sender);
        for (int i = 0; i < kBatch; ++i)
            entry_of(pair.b.cq());
    }
    std::printf("%d\n", kBatch * kBatches);
    return 0;
}
