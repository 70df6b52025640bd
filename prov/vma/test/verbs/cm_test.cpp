// SPDX-License-Identifier: BSD-2-Clause
// Connections and their ends on the verbs device, over the simulated NIC.
#include "prov/vma/test/verbs/pair.hpp"

#include "verbs/endpoint.hpp"
#include "verbs/wire.hpp"

using namespace vma;
using namespace vma::test;

namespace {

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

// The entry would have no context, which only those expect who have asked for silence: ofi_rxm follows it.
void the_failure_of_an_injected_one_has_no_entry(void **)
{
    const SimulatedHost host;
    int after = 0;
    for (const bool silent : {false, true}) {
        RdmaPair pair({.bind_flags = silent ? std::uint64_t{FI_SELECTIVE_COMPLETION} : 0});
        Memory readable(pair.b.domain(), 8, FI_REMOTE_READ);
        assert_int_equal(fi_inject_write(pair.a.ep, "x", 1, 0, readable.address(), readable.key()), 0);
        const ssize_t next = fi_send(pair.a.ep, "y", 1, nullptr, 0, &after); // it may have ended already
        assert_true(next == 0 || next == -FI_ENOTCONN);
        if (silent) {
            const fi_cq_err_entry error = error_of(pair.a.cq());
            assert_null(error.op_context);
            assert_int_equal(error.err, FI_EACCES);
        } else if (next == 0) {
            assert_ptr_equal(error_of(pair.a.cq()).op_context, &after);
        }
        assert_true(is_quiet(pair.a.cq()));
        assert_int_equal(next_event(pair.a.net, pair.b.net).event, FI_SHUTDOWN);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
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
        cmocka_unit_test(the_failure_of_an_injected_one_has_no_entry),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
