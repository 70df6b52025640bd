// SPDX-License-Identifier: BSD-2-Clause
// Connections from fi_connect to fi_close between two fabrics of one process.
#include "prov/vma/test/local/cm_pair.hpp"

#include <csignal>
#include <poll.h>
#include <set>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

using namespace vma;
using namespace vma::test;

namespace {

void private_data_reaches_both_sides(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    fid_ep *active = client.endpoint();
    const std::string ask_data = pattern(ofi::kCmDataSize, 1);
    const std::string answer_data = pattern(ofi::kCmDataSize, 2);
    assert_int_equal(fi_connect(active, &address.v6, ask_data.data(), ask_data.size()), 0);

    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    assert_true(request.data == ask_data);
    assert_string_equal(request.info->fabric_attr->prov_name, "vma");
    assert_ptr_equal(request.info->fabric_attr->fabric, server.fabric);
    ofi::Address peer;
    assert_true(peer.assign(request.info->dest_addr, request.info->dest_addrlen));
    assert_true(peer.same_host(name_of(&active->fid)));
    assert_int_equal(peer.port(), name_of(&active->fid).port());

    fid_ep *passive = server.endpoint(request.info.get());
    assert_int_equal(fi_accept(passive, answer_data.data(), answer_data.size()), 0);
    expect(server.wait(), FI_CONNECTED, &passive->fid);
    const Event established = client.wait();
    expect(established, FI_CONNECTED, &active->fid);
    assert_true(established.data == answer_data);

    std::size_t length = sizeof(sockaddr_in6);
    assert_int_equal(fi_getpeer(active, &peer.v6, &length), 0);
    assert_int_equal(peer.port(), address.port());
    assert_int_equal(name_of(&passive->fid).port(), address.port());
    close_all({&active->fid, &passive->fid, &pep->fid});
}

void too_much_private_data(void **)
{
    const OwnDirectory directory;
    Net net;
    ofi::Address address;
    fid_pep *pep = net.listen(address);
    fid_ep *ep = net.endpoint();
    const std::string data = pattern(ofi::kCmDataSize + 1, 0);
    assert_int_equal(fi_connect(ep, &address.v6, data.data(), data.size()), -FI_EINVAL);
    std::size_t room = 0;
    std::size_t length = sizeof(room);
    assert_int_equal(fi_getopt(&pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &room, &length), 0);
    assert_int_equal(room, ofi::kCmDataSize);
    close_all({&ep->fid, &pep->fid});
}

void reject_carries_its_data(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    const std::string why = pattern(ofi::kCmDataSize, 3);
    assert_int_equal(fi_reject(pep, request.info->handle, why.data(), why.size()), 0);
    assert_int_equal(fi_reject(pep, request.info->handle, nullptr, 0), -FI_EINVAL); // once
    const Event refused = client.wait();
    expect_refused(refused, &ep->fid);
    assert_true(refused.data == why);
    close_all({&ep->fid, &pep->fid});
}

void nobody_listens(void **)
{
    const OwnDirectory directory;
    Net net;
    ofi::Address address;
    fid_pep *pep = net.listen(address);
    assert_int_equal(fi_close(&pep->fid), 0);
    fid_ep *ep = net.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    expect_refused(net.wait(), &ep->fid);
    // The endpoint may try again.
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    expect_refused(net.wait(), &ep->fid);
    assert_int_equal(fi_close(&ep->fid), 0);
}

// The link of an earlier connection leads to a process that doesn't listen any more; another one does.
void a_port_that_moved(void **)
{
    const OwnDirectory directory;
    Net client;
    Net first;
    Net second;
    const Pair pair = connected(client, first);
    assert_int_equal(fi_close(&pair.pep->fid), 0);
    fid_pep *pep = nullptr;
    assert_true(ofi::set_source(*second.info, pair.address));
    assert_int_equal(fi_passive_ep(second.fabric, second.info.get(), &pep, nullptr), 0);
    assert_int_equal(fi_pep_bind(pep, &second.eq->fid, 0), 0);
    assert_int_equal(fi_listen(pep), 0);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &pair.address.v6, nullptr, 0), 0);
    while (true) {
        first.poll();
        client.poll();
        const Event request = second.poll();
        if (request.result == -FI_EAGAIN)
            continue;
        expect(request, FI_CONNREQ, &pep->fid);
        break;
    }
    close_all({&ep->fid, &pep->fid, &pair.client->fid, &pair.server->fid});
}

void a_fabric_connects_to_itself(void **)
{
    const OwnDirectory directory;
    Net net;
    ofi::Address address;
    fid_pep *pep = net.listen(address);
    fid_ep *one = net.endpoint();
    assert_int_equal(fi_connect(one, &address.v6, nullptr, 0), 0);
    const Event request = net.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    fid_ep *two = net.endpoint(request.info.get());
    assert_int_equal(fi_accept(two, nullptr, 0), 0);
    expect(net.wait(), FI_CONNECTED, &two->fid);
    expect(net.wait(), FI_CONNECTED, &one->fid);
    assert_int_equal(fi_shutdown(one, 0), 0);
    expect(net.wait(), FI_SHUTDOWN, &one->fid);
    expect(net.wait(), FI_SHUTDOWN, &two->fid);
    close_all({&one->fid, &two->fid, &pep->fid});
}

void simultaneous_connects(void **)
{
    const OwnDirectory directory;
    Net left;
    Net right;
    ofi::Address left_address;
    ofi::Address right_address;
    fid_pep *left_pep = left.listen(left_address);
    fid_pep *right_pep = right.listen(right_address);
    fid_ep *left_ep = left.endpoint();
    fid_ep *right_ep = right.endpoint();
    assert_int_equal(fi_connect(left_ep, &right_address.v6, "l", 1), 0);
    assert_int_equal(fi_connect(right_ep, &left_address.v6, "r", 1), 0);
    const Event at_left = left.wait();
    const Event at_right = right.wait();
    expect(at_left, FI_CONNREQ, &left_pep->fid);
    expect(at_right, FI_CONNREQ, &right_pep->fid);
    assert_string_equal(at_left.data.c_str(), "r");
    assert_string_equal(at_right.data.c_str(), "l");
    assert_int_equal(fi_reject(left_pep, at_left.info->handle, "no", 2), 0);
    fid_ep *accepted = right.endpoint(at_right.info.get());
    assert_int_equal(fi_accept(accepted, nullptr, 0), 0);
    expect(left.wait(), FI_CONNECTED, &left_ep->fid);
    expect(right.wait(), FI_CONNECTED, &accepted->fid);
    const Event refused = right.wait();
    expect_refused(refused, &right_ep->fid);
    assert_string_equal(refused.data.c_str(), "no");
    close_all({&left_ep->fid, &right_ep->fid, &accepted->fid, &left_pep->fid, &right_pep->fid});
}

void closing_tells_the_peer(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    const Pair pair = connected(client, server);
    assert_int_equal(fi_close(&pair.server->fid), 0);
    expect(client.wait(), FI_SHUTDOWN, &pair.client->fid);
    assert_int_equal(fi_shutdown(pair.client, 0), 0); // once more does no harm
    assert_int_equal(client.poll().result, -FI_EAGAIN);
    close_all({&pair.client->fid, &pair.pep->fid});
}

void shutting_down_before_a_connection(void **)
{
    const OwnDirectory directory;
    Net net;
    fid_ep *ep = net.endpoint();
    assert_int_equal(fi_shutdown(ep, 0), -FI_ENOTCONN);
    assert_int_equal(fi_accept(ep, nullptr, 0), -FI_EOPBADSTATE);
    ofi::Address peer;
    std::size_t length = sizeof(sockaddr_in6);
    assert_int_equal(fi_getpeer(ep, &peer.v6, &length), -FI_ENOTCONN);
    assert_int_equal(fi_close(&ep->fid), 0);
}

void a_closed_endpoint_leaves_no_event(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    const Pair pair = connected(client, server);
    assert_int_equal(fi_shutdown(pair.client, 0), 0); // an event for each side
    assert_int_equal(fi_close(&pair.client->fid), 0);
    assert_int_equal(client.poll().result, -FI_EAGAIN);
    expect(server.wait(), FI_SHUTDOWN, &pair.server->fid);
    close_all({&pair.server->fid, &pair.pep->fid});
}

// ofi_rxm reads the completion queue, then the event queue, and closes the endpoint at FI_SHUTDOWN, unread or not.
void what_arrived_is_read_before_the_end(void **)
{
    const OwnDirectory directory;
    for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN}) {
        Net client;
        Net server;
        server.info->domain_attr->threading = threading;
        const Pair pair = connected(client, server);
        char in[8] = {};
        assert_int_equal(fi_recv(pair.server, in, sizeof in, nullptr, 0, in), 0);
        fi_cq_data_entry entry{};
        assert_int_equal(fi_inject(pair.client, "last", 5, 0), 0);
        assert_int_equal(fi_close(&pair.client->fid), 0);
        bool received = false;
        Event event = server.poll();
        for (; event.result == -FI_EAGAIN; event = server.poll()) {
            const ssize_t result = fi_cq_read(server.cq, &entry, 1);
            assert_true(result == 1 || result == -FI_EAGAIN);
            received |= result == 1;
        }
        expect(event, FI_SHUTDOWN, &pair.server->fid);
        assert_true(received);
        assert_string_equal(in, "last");
        close_all({&pair.server->fid, &pair.pep->fid});
    }
}

// Who sleeps for an event reads no completions meanwhile.
void who_waits_for_the_end_is_told(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    const Pair pair = connected(client, server);
    char in[8] = {};
    assert_int_equal(fi_recv(pair.server, in, sizeof in, nullptr, 0, in), 0);
    assert_int_equal(fi_inject(pair.client, "last", 5, 0), 0);
    assert_int_equal(fi_close(&pair.client->fid), 0);
    expect(server.wait(), FI_SHUTDOWN, &pair.server->fid);
    fi_cq_data_entry entry{};
    assert_int_equal(fi_cq_read(server.cq, &entry, 1), 1);
    assert_string_equal(in, "last");
    close_all({&pair.server->fid, &pair.pep->fid});
}

void a_withdrawn_request_cannot_be_accepted(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    assert_int_equal(fi_close(&ep->fid), 0);
    assert_int_equal(server.poll().result, -FI_EAGAIN); // reads the withdrawal
    fid_ep *late = server.endpoint(request.info.get());
    assert_int_equal(fi_accept(late, nullptr, 0), -FI_ECONNABORTED);
    close_all({&late->fid, &pep->fid});
}

void an_accept_that_crosses_a_close(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    const Event request = server.wait();
    fid_ep *accepted = server.endpoint(request.info.get());
    assert_int_equal(fi_close(&ep->fid), 0);
    assert_int_equal(fi_accept(accepted, nullptr, 0), 0);
    expect(server.wait(), FI_CONNECTED, &accepted->fid);
    expect(server.wait(), FI_SHUTDOWN, &accepted->fid);
    assert_int_equal(client.poll().result, -FI_EAGAIN);
    close_all({&accepted->fid, &pep->fid});
}

void requests_that_nobody_read_are_refused_with_their_listener(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    fid_t waited = &server.eq->fid;
    while (fi_trywait(server.fabric, &waited, 1) == 0) // until the request lies in the queue
        client.poll();
    assert_int_equal(fi_close(&pep->fid), 0);
    expect_refused(client.wait(), &ep->fid);
    assert_int_equal(server.poll().result, -FI_EAGAIN);
    assert_int_equal(fi_close(&ep->fid), 0);
}

void a_full_backlog_is_tried_again(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    int backlog = 1;
    assert_int_equal(fi_control(&pep->fid, FI_BACKLOG, &backlog), 0);
    fid_ep *first = client.endpoint();
    fid_ep *second = client.endpoint();
    assert_int_equal(fi_connect(first, &address.v6, "1", 1), 0);
    const Event one = server.wait();
    expect(one, FI_CONNREQ, &pep->fid);
    assert_int_equal(fi_connect(second, &address.v6, "2", 1), 0);
    for (int i = 0; i < 20; ++i) { // told to come again, not refused
        assert_int_equal(server.poll().result, -FI_EAGAIN);
        assert_int_equal(client.poll().result, -FI_EAGAIN);
    }
    assert_int_equal(fi_reject(pep, one.info->handle, nullptr, 0), 0);
    expect_refused(client.wait(), &first->fid);
    Event two;
    do {
        assert_int_equal(client.poll().result, -FI_EAGAIN);
        two = server.poll();
    } while (two.result == -FI_EAGAIN);
    expect(two, FI_CONNREQ, &pep->fid);
    assert_string_equal(two.data.c_str(), "2");
    close_all({&first->fid, &second->fid, &pep->fid});
}

void a_listener_of_another_address_refuses(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server("127.0.0.2");
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    ofi::Address wrong = address;
    wrong.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &wrong.v6, nullptr, 0), 0);
    fid_t waited = &client.eq->fid;
    while (fi_trywait(client.fabric, &waited, 1) == 0)
        assert_int_equal(server.poll().result, -FI_EAGAIN);
    expect_refused(client.wait(), &ep->fid);
    close_all({&ep->fid, &pep->fid});
}

void a_wildcard_listener_is_reached_by_any_address(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server("0.0.0.0");
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    assert_true(address.is_wildcard());
    address.v4.sin_addr.s_addr = htonl(0x7f000005);
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    ofi::Address own;
    assert_true(own.assign(request.info->src_addr, request.info->src_addrlen));
    assert_true(own.same_host(address));
    close_all({&ep->fid, &pep->fid});
}

void ipv6(void **)
{
    const OwnDirectory directory;
    int error = 0;
    ask("::1", "0", FI_SOURCE, nullptr, &error);
    if (error != 0)
        UNIT_SKIP("this host has no IPv6");
    Net client("::1");
    Net server("::");
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    address = address.reachable();
    fid_ep *ep = client.endpoint();
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    assert_int_equal(request.info->addr_format, FI_SOCKADDR_IN6);
    assert_int_equal(request.info->dest_addrlen, sizeof(sockaddr_in6));
    assert_int_equal(fi_reject(pep, request.info->handle, nullptr, 0), 0);
    expect_refused(client.wait(), &ep->fid);
    // Its wildcard takes IPv4 too, as a socket's does.
    Net old;
    fid_ep *four = old.endpoint();
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_port = htons(address.port());
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(fi_connect(four, &loopback, nullptr, 0), 0);
    const Event second = server.wait();
    expect(second, FI_CONNREQ, &pep->fid);
    assert_int_equal(second.info->addr_format, FI_SOCKADDR_IN);
    close_all({&ep->fid, &four->fid, &pep->fid});
}

// As fi_msg_sockets does: a bound passive endpoint becomes an active one, on either side, and keeps its name.
void a_passive_endpoint_becomes_an_active_one(void **)
{
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *listener = server.listen(address);
    fid_pep *pep = nullptr;
    assert_int_equal(fi_passive_ep(client.fabric, client.info.get(), &pep, nullptr), 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(fi_setname(&pep->fid, &any, sizeof(any)), 0);
    const ofi::Address bound = name_of(&pep->fid);
    assert_int_not_equal(bound.port(), 0);
    const ofi::InfoPtr info = ofi::copy_info(*client.info);
    info->handle = &pep->fid;
    fid_ep *ep = client.endpoint(info.get());
    assert_int_equal(name_of(&ep->fid).port(), bound.port());
    assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &listener->fid);
    ofi::Address peer;
    assert_true(peer.assign(request.info->dest_addr, request.info->dest_addrlen));
    assert_int_equal(peer.port(), bound.port());
    fid_ep *accepted = server.endpoint(request.info.get());
    assert_int_equal(fi_accept(accepted, nullptr, 0), 0);
    expect(client.wait(), FI_CONNECTED, &ep->fid);
    assert_int_equal(name_of(&ep->fid).port(), bound.port());
    close_all({&ep->fid, &accepted->fid, &pep->fid, &listener->fid});
}

void a_handle_that_is_none(void **)
{
    const OwnDirectory directory;
    Net net;
    fid_ep *ep = net.endpoint();
    const ofi::InfoPtr info = ofi::copy_info(*net.info);
    fid stranger{};
    stranger.fclass = FI_CLASS_CONNREQ;
    info->handle = &stranger;
    fid_ep *refused = nullptr;
    assert_int_equal(fi_endpoint(net.domain, info.get(), &refused, nullptr), -FI_EINVAL);
    assert_int_equal(fi_close(&ep->fid), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(private_data_reaches_both_sides),
        cmocka_unit_test(too_much_private_data),
        cmocka_unit_test(reject_carries_its_data),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_port_that_moved),
        cmocka_unit_test(a_fabric_connects_to_itself),
        cmocka_unit_test(simultaneous_connects),
        cmocka_unit_test(closing_tells_the_peer),
        cmocka_unit_test(shutting_down_before_a_connection),
        cmocka_unit_test(a_closed_endpoint_leaves_no_event),
        cmocka_unit_test(what_arrived_is_read_before_the_end),
        cmocka_unit_test(who_waits_for_the_end_is_told),
        cmocka_unit_test(a_withdrawn_request_cannot_be_accepted),
        cmocka_unit_test(an_accept_that_crosses_a_close),
        cmocka_unit_test(requests_that_nobody_read_are_refused_with_their_listener),
        cmocka_unit_test(a_full_backlog_is_tried_again),
        cmocka_unit_test(a_listener_of_another_address_refuses),
        cmocka_unit_test(a_wildcard_listener_is_reached_by_any_address),
        cmocka_unit_test(ipv6),
        cmocka_unit_test(a_passive_endpoint_becomes_an_active_one),
        cmocka_unit_test(a_handle_that_is_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
