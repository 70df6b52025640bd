// SPDX-License-Identifier: BSD-2-Clause
// Connected endpoints of the verbs device over the simulated NIC, both ends in this process, and what tests do with
// them.
#pragma once

#include "prov/vma/test/fixture.hpp"

#include <memory>
#include <utility>

#include <rdma/fi_rma.h>

#include "contrib/lab/sim/sim.hpp"
#include "ofi/info/attr.hpp"
#include "rdma/fi_ext_vma.h"
#include "verbs/nic.hpp"

namespace vma::test {

inline constexpr int kRdmaModes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

// A host whose loopback addresses belong to an RDMA device. Nothing of it may be left at the end.
class SimulatedHost
{
public:
    explicit SimulatedHost(sim::DeviceConfig device = {}, sim::Clock clock = sim::Clock::manual)
    {
        device.addresses = {"127.0.0.1", "::1"};
        sim::Config config;
        config.devices = {device};
        config.clock = clock;
        sim::reset(config);
        verbs::use_table(sim::table());
    }
    ~SimulatedHost() { assert_int_equal(sim::stats().live.total(), 0); }
    SimulatedHost(const SimulatedHost &) = delete;
    SimulatedHost &operator=(const SimulatedHost &) = delete;
};

inline ofi::InfoPtr rdma_hints()
{
    ofi::InfoPtr hints = ofi::make_info();
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_RX_CQ_DATA;
    *hints->tx_attr = {};
    *hints->rx_attr = {};
    const fi_ep_type type = FI_EP_MSG;
    *hints->ep_attr = {};
    hints->ep_attr->type = type;
    std::free(hints->domain_attr->name);
    *hints->domain_attr = {};
    hints->domain_attr->mr_mode = kRdmaModes;
    std::free(hints->fabric_attr->name);
    hints->fabric_attr->name = ::strdup(verbs::kFabricName);
    return hints;
}

struct Memory {
    std::vector<unsigned char> bytes;
    fid_mr *mr = nullptr;

    Memory(fid_domain *domain, std::size_t length,
           std::uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
        : bytes(length)
    {
        assert_int_equal(fi_mr_reg(domain, bytes.data(), length, access, 0, 0, 0, &mr, nullptr), 0);
    }
    ~Memory() { assert_int_equal(fi_close(&mr->fid), 0); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    void *desc() const { return fi_mr_desc(mr); }
    std::uint64_t key() const { return fi_mr_key(mr); }
    std::uint64_t address(std::size_t offset = 0) const
    {
        return reinterpret_cast<std::uintptr_t>(bytes.data()) + offset;
    }
    void fill(unsigned seed)
    {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<unsigned char>(i * 31 + seed + i / 256);
    }
};

struct PairSetup {
    std::uint64_t bind_flags = 0; // FI_SELECTIVE_COMPLETION
    std::size_t region = 0;
    std::size_t device_memory = 0;
    std::size_t tx_size = 0;
    std::size_t rx_size = 0;
    std::size_t inject_size = SIZE_MAX; // of the device, if it has less
    bool shared_receive = false;
    fi_wait_obj wait = FI_WAIT_FD;
    fi_threading threading = FI_THREAD_UNSPEC;
    std::uint64_t cq_flags = 0; // FI_VMA_TIMESTAMP: entries are fi_cq_tagged_entry
};

// One side of a connection: everything from the fabric on is its own.
struct RdmaSide {
    Net net;
    PairSetup setup;
    fid_ep *srx = nullptr;
    fid_ep *ep = nullptr;

    explicit RdmaSide(const PairSetup &wanted, const char *node = "127.0.0.1")
        : net(node, rdma_hints().get()), setup(wanted)
    {
        if (setup.tx_size)
            net.info->tx_attr->size = setup.tx_size;
        if (setup.rx_size)
            net.info->rx_attr->size = setup.rx_size;
        net.info->tx_attr->inject_size = std::min(net.info->tx_attr->inject_size, setup.inject_size);
        if (setup.threading != FI_THREAD_UNSPEC)
            net.info->domain_attr->threading = setup.threading;
        fi_cq_attr attr{};
        attr.format = (setup.cq_flags & FI_VMA_TIMESTAMP) != 0 ? FI_CQ_FORMAT_TAGGED : FI_CQ_FORMAT_DATA;
        attr.flags = setup.cq_flags;
        attr.wait_obj = setup.wait;
        assert_int_equal(fi_domain(net.fabric, net.info.get(), &net.domain, nullptr), 0);
        assert_int_equal(fi_cq_open(net.domain, &attr, &net.cq, nullptr), 0);
        if (setup.shared_receive)
            assert_int_equal(fi_srx_context(net.domain, net.info->rx_attr, &srx, nullptr), 0);
    }
    ~RdmaSide()
    {
        if (ep != nullptr)
            assert_int_equal(fi_close(&ep->fid), 0);
        if (srx != nullptr)
            assert_int_equal(fi_close(&srx->fid), 0);
    }
    RdmaSide(const RdmaSide &) = delete;
    RdmaSide &operator=(const RdmaSide &) = delete;

    fid_ep *open(fi_info *model, void *context)
    {
        fid_ep *opened = nullptr;
        assert_int_equal(fi_endpoint(net.domain, model, &opened, context), 0);
        assert_int_equal(fi_ep_bind(opened, &net.eq->fid, 0), 0);
        assert_int_equal(fi_ep_bind(opened, &net.cq->fid, FI_TRANSMIT | FI_RECV | setup.bind_flags), 0);
        if (srx != nullptr)
            assert_int_equal(fi_ep_bind(opened, &srx->fid, 0), 0);
        if (setup.region != 0)
            assert_int_equal(fi_setopt(&opened->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION),
                                       &setup.region, sizeof setup.region),
                             0);
        if (setup.device_memory != 0)
            assert_int_equal(fi_setopt(&opened->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_DEVICE_MEMORY),
                                       &setup.device_memory, sizeof setup.device_memory),
                             0);
        return opened;
    }
    fid_domain *domain() const { return net.domain; }
    fid_cq *cq() const { return net.cq; }
};

// The next event of one side while the other, too, looks at its own. Asked as one who would wait: FI_SHUTDOWN at once.
inline Event next_event(Net &of, Net &other)
{
    for (const patience::Deadline deadline; !deadline.over();) {
        Event event = of.wait(0);
        if (event.result != -FI_EAGAIN)
            return event;
        std::uint32_t kind = 0;
        char entry[512];
        fi_eq_read(other.eq, &kind, entry, sizeof entry, FI_PEEK);
    }
    UNIT_FAIL("an event does not come");
    return {};
}

// Connects a's endpoint with one of b's, which `open(info)` makes of the request. The listening endpoint, to be closed.
template <typename Open> fid_pep *join(RdmaSide &a, RdmaSide &b, Open &&open)
{
    ofi::Address address;
    fid_pep *pep = b.net.listen(address);
    assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), 0);
    const Event request = next_event(b.net, a.net);
    assert_int_equal(request.event, FI_CONNREQ);
    b.ep = open(request.info.get());
    assert_int_equal(fi_accept(b.ep, nullptr, 0), 0);
    assert_int_equal(next_event(a.net, b.net).event, FI_CONNECTED);
    assert_int_equal(next_event(b.net, a.net).event, FI_CONNECTED);
    return pep;
}
inline fid_pep *join(RdmaSide &a, RdmaSide &b)
{
    return join(a, b, [&b](fi_info *info) { return b.open(info, nullptr); });
}

// What fi_setopt() says.
template <typename Value> int set_option(fid_ep *ep, unsigned name, const Value &value)
{
    return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(name), &value, sizeof value);
}

// A connected pair: a asked, b was asked.
struct RdmaPair {
    RdmaSide a;
    RdmaSide b;
    fid_pep *pep = nullptr;

    explicit RdmaPair(const PairSetup &setup = {}, const char *node = "127.0.0.1") : a(setup, node), b(setup, node)
    {
        std::tie(a.ep, b.ep) = connect_one(&a, &b);
    }
    ~RdmaPair()
    {
        if (pep != nullptr)
            assert_int_equal(fi_close(&pep->fid), 0);
    }

    std::pair<fid_ep *, fid_ep *> connect_one(void *context_a, void *context_b)
    {
        if (pep == nullptr)
            pep = b.net.listen(address_);
        fid_ep *active = a.open(a.net.info.get(), context_a);
        assert_int_equal(fi_connect(active, &address_.v6, "ask", 3), 0);
        const Event request = next_event(b.net, a.net);
        assert_int_equal(request.event, FI_CONNREQ);
        assert_true(request.data == "ask");
        fid_ep *passive = b.open(request.info.get(), context_b);
        assert_int_equal(fi_accept(passive, "yes", 3), 0);
        const Event answered = next_event(a.net, b.net);
        assert_int_equal(answered.event, FI_CONNECTED);
        assert_ptr_equal(answered.fid, &active->fid);
        assert_true(answered.data == "yes");
        const Event connected = next_event(b.net, a.net);
        assert_int_equal(connected.event, FI_CONNECTED);
        assert_ptr_equal(connected.fid, &passive->fid);
        return {active, passive};
    }

private:
    ofi::Address address_;
};

inline fi_cq_data_entry entry_of(fid_cq *cq)
{
    fi_cq_data_entry entry{};
    for (const patience::Deadline deadline; !deadline.over();) {
        const ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1)
            return entry;
        assert_int_equal(got, -FI_EAGAIN);
    }
    UNIT_FAIL("a completion does not come");
    return entry;
}

inline fi_cq_err_entry error_of(fid_cq *cq)
{
    fi_cq_data_entry entry{};
    fi_cq_err_entry error{};
    ssize_t got = -FI_EAGAIN;
    for (const patience::Deadline deadline; got == -FI_EAGAIN && !deadline.over();)
        got = fi_cq_read(cq, &entry, 1);
    assert_int_equal(got, -FI_EAVAIL);
    assert_int_equal(fi_cq_readerr(cq, &error, 0), 1);
    return error;
}

inline bool is_quiet(fid_cq *cq)
{
    fi_cq_data_entry entry{};
    return fi_cq_read(cq, &entry, 1) == -FI_EAGAIN;
}

} // namespace vma::test
