// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo, connections and their ends on the verbs device, over the simulated NIC.
#include "prov/vma/test/verbs/pair.hpp"

#include "verbs/endpoint.hpp"
#include "verbs/wire.hpp"

using namespace vma;
using namespace vma::test;

namespace {

int ask_error(const fi_info *hints)
{
    int error = 0;
    const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, hints, &error);
    return error;
}

// ---- fi_getinfo ----------------------------------------------------------------------------------------------------

void devices_are_listed_behind_the_local_one(void **)
{
    const SimulatedHost host;
    const ofi::InfoPtr info = ask("127.0.0.1", "7471", FI_SOURCE, nullptr);
    assert_string_equal(info->domain_attr->name, "local");
    const fi_info *last = info.get();
    while (last->next != nullptr)
        last = last->next;
    assert_string_equal(last->domain_attr->name, "sim0");
    assert_string_equal(last->fabric_attr->name, "verbs");
    assert_int_equal(last->domain_attr->mr_mode, kRdmaModes);
    assert_int_equal(last->ep_attr->type, FI_EP_MSG);
    assert_int_equal(last->tx_attr->inject_size, 256);
    assert_int_equal(last->tx_attr->rma_iov_limit, 1);
    ofi::Address address;
    assert_true(address.assign(last->src_addr, last->src_addrlen));
    assert_int_equal(address.port(), 7471);
}

void the_nic_is_described(void **)
{
    const SimulatedHost host;
    const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, rdma_hints().get());
    assert_non_null(info->nic);
    fid_nic *copy = nullptr;
    assert_int_equal(fi_control(&info->nic->fid, FI_DUP, &copy), 0);
    assert_ptr_not_equal(copy->device_attr->name, info->nic->device_attr->name);
    for (const fid_nic *nic : {info->nic, copy}) {
        assert_int_equal(nic->fid.fclass, FI_CLASS_NIC);
        assert_string_equal(nic->device_attr->name, "sim0");
        assert_int_equal(nic->bus_attr->bus_type, FI_BUS_UNKNOWN);
        assert_string_equal(nic->link_attr->address, "127.0.0.1");
        assert_int_equal(nic->link_attr->mtu, 4096);
        assert_int_equal(nic->link_attr->state, FI_LINK_UP);
        char text[1000] = "before\n";
        assert_int_equal(nic->fid.ops->tostr(&nic->fid, text, sizeof text), 0);
        assert_non_null(std::strstr(text, "before\n"));
        assert_non_null(std::strstr(text, "name: sim0\n"));
        char small[20] = "before\n";
        assert_int_equal(nic->fid.ops->tostr(&nic->fid, small, sizeof small), 0);
        assert_true(std::strlen(small) < sizeof small);
    }
    assert_int_equal(fi_close(&copy->fid), 0);
}

void what_a_program_must_promise(void **)
{
    const SimulatedHost host;
    ofi::InfoPtr hints = rdma_hints();
    assert_int_equal(ask_error(hints.get()), 0);
    for (const int missing : {FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY}) {
        hints->domain_attr->mr_mode = kRdmaModes & ~missing;
        assert_int_equal(ask_error(hints.get()), -FI_ENODATA);
    }
    // Messages alone need no keys.
    hints->caps = FI_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL;
    assert_int_equal(ask_error(hints.get()), 0);
    hints->caps = FI_MSG | FI_RMA;
    hints->domain_attr->mr_mode = FI_MR_SCALABLE;
    assert_int_equal(ask_error(hints.get()), -FI_ENODATA);
    hints->domain_attr->mr_mode = FI_MR_BASIC;
    assert_int_equal(ask_error(hints.get()), -FI_ENODATA);
    hints->mode |= FI_LOCAL_MR;
    assert_int_equal(ask_error(hints.get()), 0);
    // Remote CQ data takes a receive, which a program has to know.
    hints = rdma_hints();
    hints->mode = 0;
    assert_int_equal(ask("127.0.0.1", "0", FI_SOURCE, hints.get())->domain_attr->cq_data_size, 0);
    hints->domain_attr->cq_data_size = 4;
    assert_int_equal(ask_error(hints.get()), -FI_ENODATA);
    hints->mode = FI_RX_CQ_DATA;
    const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, hints.get());
    assert_int_equal(info->domain_attr->cq_data_size, 4);
    assert_int_equal(info->mode, FI_RX_CQ_DATA);
    // Without attributes of a domain nothing was said of memory: as without hints. ofi_rxm asks so, for a fabric by its name.
    fi_fabric_attr fabric{};
    fabric.name = const_cast<char *>("verbs");
    fi_info bare{};
    bare.fabric_attr = &fabric;
    bare.mode = ~std::uint64_t{0};
    const ofi::InfoPtr found = ask(nullptr, nullptr, 0, &bare);
    assert_non_null(found.get());
    assert_string_equal(found->domain_attr->name, "sim0");
    assert_int_equal(found->domain_attr->mr_mode, kRdmaModes);
    // An acknowledgement says that the peer's device has it.
    hints->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
    assert_int_equal(ask_error(hints.get()), 0);
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    assert_int_equal(ask_error(hints.get()), -FI_ENODATA);
}

void a_peer_is_reached_by_the_device_of_the_route(void **)
{
    const SimulatedHost host;
    const ofi::InfoPtr hints = rdma_hints();
    const ofi::InfoPtr info = ask("127.0.0.1", "4000", 0, hints.get());
    assert_string_equal(info->domain_attr->name, "sim0");
    ofi::Address source;
    ofi::Address destination;
    assert_true(source.assign(info->src_addr, info->src_addrlen));
    assert_true(destination.assign(info->dest_addr, info->dest_addrlen));
    assert_int_equal(source.port(), 0);
    assert_int_equal(destination.port(), 4000);
    assert_null(info->next);
}

void the_user_chooses(void **)
{
    const SimulatedHost host;
    const ofi::InfoPtr any = ofi::make_info();
    std::free(any->domain_attr->name);
    std::free(any->fabric_attr->name);
    *any->domain_attr = {};
    any->fabric_attr->name = nullptr;
    any->domain_attr->mr_mode = kRdmaModes;
    *any->ep_attr = {};
    *any->tx_attr = {};
    *any->rx_attr = {};
    any->caps = FI_MSG;
    const auto names = [&any] {
        int error = 0;
        const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, any.get(), &error);
        std::string found;
        for (const fi_info *one = info.get(); one != nullptr; one = one->next) {
            if (one->ep_attr->type == FI_EP_MSG)
                found += std::string(one->domain_attr->name) + ' ';
        }
        return found;
    };
    assert_true(names() == "local sim0 ");
    const struct {
        const char *variable;
        const char *value;
        const char *left;
    } cases[] = {
        {"FI_VMA_DEVICE", "sim0", "sim0 "},         {"FI_VMA_DEVICE", "^sim0", "local "},
        {"FI_VMA_INTERFACE", "lo", "local sim0 "},  {"FI_VMA_INTERFACE", "^lo", "local "},
        {"FI_VMA_ADDRESS", "10.0.0.0/8", "local "}, {"FI_VMA_ADDRESS", "127.0.0.0/8", "local sim0 "},
        {"FI_VMA_ADDRESS", "nonsense", ""},
    };
    for (const auto &one : cases) {
        ::setenv(one.variable, one.value, 1);
        assert_string_equal(names().c_str(), one.left);
        ::unsetenv(one.variable);
    }
}

// Where the program asks for no port, the user may.
void ports_of_the_user(void **)
{
    const SimulatedHost host;
    RdmaSide b({});
    ::setenv("FI_VMA_PORT", "7000-7001", 1);
    ofi::Address first;
    ofi::Address second;
    fid_pep *one = b.net.listen(first);
    fid_pep *two = b.net.listen(second);
    assert_int_equal(first.port(), 7000);
    assert_int_equal(second.port(), 7001);
    fid_pep *none = nullptr;
    assert_int_equal(fi_passive_ep(b.net.fabric, b.net.info.get(), &none, nullptr), -FI_EADDRINUSE);
    ::unsetenv("FI_VMA_PORT");
    assert_int_equal(fi_close(&one->fid), 0);
    assert_int_equal(fi_close(&two->fid), 0);
}

// As on a machine without rdma-core.
void no_library_no_device(void **)
{
    verbs::use_table(nullptr);
    assert_int_equal(ask_error(rdma_hints().get()), -FI_ENODATA);
    const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, nullptr);
    for (const fi_info *one = info.get(); one != nullptr; one = one->next)
        assert_string_equal(one->domain_attr->name, "local");
    fi_fabric_attr attr{};
    char name[] = "verbs";
    attr.name = name;
    fid_fabric *fabric = nullptr;
    assert_int_equal(fi_prov_ini()->fabric(&attr, &fabric, nullptr), -FI_ENODEV);
}

// ---- connections ---------------------------------------------------------------------------------------------------

void private_data_of_the_longest(void **)
{
    const SimulatedHost host;
    RdmaSide a({});
    RdmaSide b({});
    ofi::Address address;
    fid_pep *pep = b.net.listen(address);
    std::size_t room = 0;
    std::size_t length = sizeof room;
    assert_int_equal(fi_getopt(&pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &room, &length), 0);
    assert_true(room >= 24); // ofi_rxm needs so much
    const std::string question(room, 'q');
    const std::string answer(room, 'a');
    a.ep = a.open(a.net.info.get(), nullptr);
    assert_int_equal(fi_connect(a.ep, &address.v6, question.data(), room + 1), -FI_EINVAL);
    assert_int_equal(fi_connect(a.ep, &address.v6, question.data(), room), 0);
    assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), -FI_EOPBADSTATE);
    const Event request = next_event(b.net, a.net);
    assert_true(request.data == question);
    assert_string_equal(request.info->domain_attr->name, "sim0");
    assert_string_equal(request.info->fabric_attr->prov_name, "vma");
    b.ep = b.open(request.info.get(), nullptr);
    assert_int_equal(fi_accept(b.ep, answer.data(), room), 0);
    assert_true(next_event(a.net, b.net).data == answer);
    assert_int_equal(next_event(b.net, a.net).event, FI_CONNECTED);
    ofi::Address peer;
    length = sizeof(sockaddr_in6);
    assert_int_equal(fi_getpeer(a.ep, &peer.v6, &length), 0);
    assert_int_equal(peer.port(), address.port());
    assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), -FI_EISCONN);
    assert_int_equal(fi_close(&pep->fid), 0);
}

void a_rejection_carries_its_data(void **)
{
    const SimulatedHost host;
    RdmaSide a({});
    RdmaSide b({});
    ofi::Address address;
    fid_pep *pep = b.net.listen(address);
    a.ep = a.open(a.net.info.get(), nullptr);
    assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), 0);
    const Event request = next_event(b.net, a.net);
    assert_int_equal(fi_reject(pep, request.info->handle, "because", 7), 0);
    assert_int_equal(fi_reject(pep, request.info->handle, nullptr, 0), -FI_EINVAL); // once
    const Event refused = next_event(a.net, b.net);
    assert_int_equal(refused.result, -FI_EAVAIL);
    assert_int_equal(refused.err, FI_ECONNREFUSED);
    assert_true(refused.data == "because");
    assert_int_equal(fi_close(&pep->fid), 0);
}

void nobody_listens(void **)
{
    const SimulatedHost host;
    RdmaSide a({});
    ofi::Address address;
    fid_pep *pep = a.net.listen(address);
    assert_int_equal(fi_close(&pep->fid), 0);
    a.ep = a.open(a.net.info.get(), nullptr);
    assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), 0);
    const Event refused = next_event(a.net, a.net);
    assert_int_equal(refused.result, -FI_EAVAIL);
    assert_int_equal(refused.err, FI_ECONNREFUSED);
}

void requests_of_a_closed_listener_are_refused(void **)
{
    const SimulatedHost host;
    RdmaSide a({});
    RdmaSide b({});
    ofi::Address address;
    fid_pep *pep = b.net.listen(address);
    a.ep = a.open(a.net.info.get(), nullptr);
    assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), 0);
    std::uint32_t kind = 0;
    char entry[512];
    while (fi_eq_read(b.net.eq, &kind, entry, sizeof entry, FI_PEEK) < 0)
        a.net.poll();
    assert_int_equal(fi_close(&pep->fid), 0); // nobody has read it
    const Event refused = next_event(a.net, b.net);
    assert_int_equal(refused.err, FI_ECONNREFUSED);
    assert_int_equal(b.net.poll().result, -FI_EAGAIN);
}

// Somebody who speaks librdmacm and not our private data.
void a_stranger_is_refused(void **)
{
    const SimulatedHost host;
    RdmaSide b({});
    ofi::Address address;
    fid_pep *pep = b.net.listen(address);
    const verbs::Table &table = *sim::table();
    rdma_event_channel *channel = table.create_event_channel();
    rdma_cm_id *id = nullptr;
    assert_int_equal(table.create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    const auto wait_for = [&](rdma_cm_event_type type) {
        rdma_cm_event *event = nullptr;
        assert_int_equal(table.get_cm_event(channel, &event), 0);
        assert_int_equal(event->event, type);
        table.ack_cm_event(event);
    };
    ofi::Address source = address;
    source.set_port(0);
    assert_int_equal(table.resolve_addr(id, &source.sa, &address.sa, 1000), 0);
    wait_for(RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(table.resolve_route(id, 1000), 0);
    wait_for(RDMA_CM_EVENT_ROUTE_RESOLVED);
    rdma_conn_param param{};
    param.private_data = "hello, this is another protocol";
    param.private_data_len = 31;
    assert_int_equal(table.connect(id, &param), 0);
    for (int i = 0; i < 100; ++i)
        assert_int_equal(b.net.poll().result, -FI_EAGAIN);
    wait_for(RDMA_CM_EVENT_REJECTED);
    table.destroy_id(id);
    table.destroy_event_channel(channel);
    assert_int_equal(fi_close(&pep->fid), 0);
}

// The peer gives up while its request waits for an answer, before or after an endpoint was made of it.
void a_peer_that_gives_up(void **)
{
    for (const bool opened_before : {false, true}) {
        const SimulatedHost host;
        RdmaSide a({});
        RdmaSide b({});
        ofi::Address address;
        fid_pep *pep = b.net.listen(address);
        a.ep = a.open(a.net.info.get(), nullptr);
        assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), 0);
        const Event request = next_event(b.net, a.net);
        fid_ep *ep = nullptr;
        if (opened_before)
            assert_int_equal(fi_endpoint(b.domain(), request.info.get(), &ep, nullptr), 0);
        assert_int_equal(fi_close(&a.ep->fid), 0);
        a.ep = nullptr;
        for (int i = 0; i < 100; ++i)
            assert_int_equal(b.net.poll().result, -FI_EAGAIN);
        if (!opened_before) {
            const int result = fi_endpoint(b.domain(), request.info.get(), &ep, nullptr);
            assert_true(result == 0 || result == -FI_ECONNABORTED);
        }
        if (ep != nullptr) {
            assert_int_equal(fi_ep_bind(ep, &b.net.eq->fid, 0), 0);
            assert_int_equal(fi_ep_bind(ep, &b.cq()->fid, FI_TRANSMIT | FI_RECV), 0);
            static_cast<void>(fi_accept(ep, nullptr, 0)); // too late, or the device finds out
            assert_int_equal(fi_close(&ep->fid), 0);
        }
        assert_int_equal(fi_close(&pep->fid), 0);
    }
}

// ---- the end of connections ----------------------------------------------------------------------------------------

void expect_flushed(RdmaSide &side, void *context)
{
    const fi_cq_err_entry error = error_of(side.cq());
    assert_ptr_equal(error.op_context, context);
    assert_int_equal(error.err, FI_ECANCELED);
    assert_int_equal(error.prov_errno, IBV_WC_WR_FLUSH_ERR);
}

void shutdown_reaches_both_sides(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory in(pair.b.domain(), 8);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, &in), 0);
    assert_int_equal(fi_shutdown(pair.a.ep, 0), 0);
    assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    expect_flushed(pair.b, &in);
    assert_int_equal(fi_shutdown(pair.a.ep, 0), 0);
    assert_int_equal(pair.a.net.poll().result, -FI_EAGAIN); // told once
}

// As on the local device (cm_test).
void what_arrived_is_read_before_the_end(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory in(pair.b.domain(), 8);
    Memory out(pair.a.domain(), 8);
    assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, &in), 0);
    assert_int_equal(fi_send(pair.a.ep, out.bytes.data(), 8, out.desc(), 0, &out), 0);
    assert_ptr_equal(entry_of(pair.a.cq()).op_context, &out);
    assert_int_equal(fi_shutdown(pair.a.ep, 0), 0);
    bool received = false;
    Event event = pair.b.net.poll();
    for (; event.result == -FI_EAGAIN; event = pair.b.net.poll()) {
        fi_cq_data_entry entry{};
        received |= fi_cq_read(pair.b.cq(), &entry, 1) == 1 && entry.op_context == &in;
    }
    assert_int_equal(event.event, FI_SHUTDOWN);
    assert_true(received);
}

void closing_leaves_nothing_in_the_queue(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    Memory in(pair.b.domain(), 8);
    for (int i = 0; i < 10; ++i) {
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, nullptr), 0);
        assert_int_equal(fi_send(pair.a.ep, "left", 4, nullptr, 0, nullptr), 0);
    }
    const auto [other_a, other_b] = pair.connect_one(nullptr, nullptr);
    assert_int_equal(fi_close(&pair.a.ep->fid), 0);
    assert_int_equal(fi_close(&pair.b.ep->fid), 0);
    pair.a.ep = other_a;
    pair.b.ep = other_b;
    assert_true(is_quiet(pair.a.cq()) && is_quiet(pair.b.cq()));
    assert_int_equal(fi_recv(other_b, in.bytes.data(), 8, in.desc(), 0, &in), 0);
    assert_int_equal(fi_inject(other_a, "next", 4, 0), 0);
    assert_ptr_equal(entry_of(pair.b.cq()).op_context, &in);
}

void a_device_that_is_pulled_out(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    {
        Memory in(pair.b.domain(), 8);
        assert_int_equal(fi_recv(pair.b.ep, in.bytes.data(), 8, in.desc(), 0, &in), 0);
        sim::remove_device(0);
        assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
        assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
        expect_flushed(pair.b, &in);
        assert_true(fi_send(pair.a.ep, "x", 1, nullptr, 0, nullptr) < 0);
    }
}

void a_peer_that_is_somebody_else_now(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    sim::replace_peers(0);
    assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
    assert_true(fi_send(pair.a.ep, "x", 1, nullptr, 0, nullptr) < 0);
}

void a_queue_pair_that_breaks(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    sim::break_qp(reinterpret_cast<verbs::Endpoint *>(pair.a.ep)->qp->qp_num);
    assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
    assert_int_equal(next_event(pair.b.net, pair.a.net).event, FI_SHUTDOWN);
}

// Nobody answers any more: the device gives up after its retries, the program is told what was not sent.
void a_silent_peer(void **)
{
    const SimulatedHost host;
    RdmaPair pair;
    sim::port_down(0);
    assert_int_equal(fi_send(pair.a.ep, "anybody?", 8, nullptr, 0, &pair), 0);
    fi_cq_data_entry entry{};
    ssize_t got;
    for (int i = 0; (got = fi_cq_read(pair.a.cq(), &entry, 1)) == -FI_EAGAIN && i < 1000; ++i)
        sim::advance(std::chrono::milliseconds(100));
    assert_int_equal(got, -FI_EAVAIL);
    fi_cq_err_entry error{};
    assert_int_equal(fi_cq_readerr(pair.a.cq(), &error, 0), 1);
    assert_ptr_equal(error.op_context, &pair);
    assert_int_equal(error.err, FI_ETIMEDOUT);
    assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
}

void failures_on_the_way_up_leave_nothing(void **)
{
    const char *const kCalls[] = {"create_id", "resolve_addr", "create_qp", "modify_qp"};
    for (const char *call : kCalls) {
        const SimulatedHost host;
        RdmaSide a({});
        ofi::Address address;
        fid_pep *pep = a.net.listen(address);
        a.ep = a.open(a.net.info.get(), nullptr);
        assert_true(sim::fail_call(call, 1, ENOMEM));
        assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), -FI_ENOMEM);
        assert_int_equal(fi_close(&pep->fid), 0);
    }
    const char *const kLater[] = {"resolve_route", "connect"};
    for (const char *call : kLater) {
        const SimulatedHost host;
        RdmaSide a({});
        ofi::Address address;
        fid_pep *pep = a.net.listen(address);
        a.ep = a.open(a.net.info.get(), nullptr);
        assert_true(sim::fail_call(call, 1, ENOMEM));
        assert_int_equal(fi_connect(a.ep, &address.v6, nullptr, 0), 0);
        assert_int_equal(next_event(a.net, a.net).err, FI_ENOMEM);
        assert_int_equal(fi_close(&pep->fid), 0);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_listed_behind_the_local_one),
        cmocka_unit_test(the_nic_is_described),
        cmocka_unit_test(what_a_program_must_promise),
        cmocka_unit_test(a_peer_is_reached_by_the_device_of_the_route),
        cmocka_unit_test(the_user_chooses),
        cmocka_unit_test(ports_of_the_user),
        cmocka_unit_test(no_library_no_device),
        cmocka_unit_test(private_data_of_the_longest),
        cmocka_unit_test(a_rejection_carries_its_data),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(requests_of_a_closed_listener_are_refused),
        cmocka_unit_test(a_stranger_is_refused),
        cmocka_unit_test(a_peer_that_gives_up),
        cmocka_unit_test(shutdown_reaches_both_sides),
        cmocka_unit_test(what_arrived_is_read_before_the_end),
        cmocka_unit_test(closing_leaves_nothing_in_the_queue),
        cmocka_unit_test(a_device_that_is_pulled_out),
        cmocka_unit_test(a_peer_that_is_somebody_else_now),
        cmocka_unit_test(a_queue_pair_that_breaks),
        cmocka_unit_test(a_silent_peer),
        cmocka_unit_test(failures_on_the_way_up_leave_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
