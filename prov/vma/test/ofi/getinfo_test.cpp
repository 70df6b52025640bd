// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo: every hint that can't be met is refused, every other is honoured, and addresses are those that were
// meant.
#include "prov/vma/test/fixture.hpp"

#include <cstring>
#include <functional>

#include <rdma/fi_atomic.h>

#include "ofi/info/attr.hpp"

using namespace vma;
using namespace vma::test;

namespace {

using Change = std::function<void(fi_info &)>;

int result_of(const Change &change, std::uint32_t version = kApi)
{
    const ofi::InfoPtr hints = ofi::make_info();
    *hints->tx_attr = {};
    *hints->rx_attr = {};
    *hints->ep_attr = {};
    std::free(hints->domain_attr->name);
    *hints->domain_attr = {};
    std::free(hints->fabric_attr->name);
    hints->fabric_attr->name = nullptr;
    hints->caps = 0;
    change(*hints);
    fi_info *info = nullptr;
    const int result = fi_prov_ini()->getinfo(version, nullptr, nullptr, 0, hints.get(), &info);
    ofi::free_info(info);
    return result;
}

void empty_hints_fit(void **)
{
    assert_int_equal(result_of([](fi_info &) {}), 0);
}

void hints_without_attributes_fit(void **)
{
    fi_fabric_attr fabric{};
    fi_info hints{};
    hints.fabric_attr = &fabric;
    hints.mode = ~UINT64_C(0);
    assert_non_null(ask(nullptr, nullptr, 0, &hints).get());
}

// What can't be had, one hint at a time.
const Change kRefused[] = {
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_MSG;
        h.caps = FI_TAGGED;
    },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_MSG;
        h.caps = FI_MSG | FI_ATOMIC;
    },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_DGRAM;
        h.caps = FI_TAGGED;
    },
    [](fi_info &h) { h.caps = FI_MSG | FI_REMOTE_COMM, h.ep_attr->type = FI_EP_MSG; },
    [](fi_info &h) { h.caps = FI_TAGGED | FI_MULTICAST; },
    [](fi_info &h) { h.caps = FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR; },
    [](fi_info &h) { h.caps = FI_MSG | FI_SOURCE_ERR; },
    [](fi_info &h) { h.caps = FI_MSG | FI_RMA | FI_SOURCE | FI_SOURCE_ERR; },
    [](fi_info &h) { h.caps = FI_MSG | FI_PEER, h.ep_attr->type = FI_EP_MSG; },
    [](fi_info &h) { h.domain_attr->caps = FI_PEER, h.ep_attr->type = FI_EP_DGRAM; },
    [](fi_info &h) { h.addr_format = FI_SOCKADDR_IB; },
    [](fi_info &h) {
        const int stream = 4; // FI_EP_SOCK_STREAM, which libfabric 2.x has no type for
        std::memcpy(&h.ep_attr->type, &stream, sizeof stream);
    },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_RDM;
        h.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_DGRAM;
        h.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; // connections share receives, datagram endpoints don't
    },
    [](fi_info &h) { h.ep_attr->protocol = FI_PROTO_SOCK_TCP; },
    [](fi_info &h) { h.ep_attr->protocol_version = ofi::kProtocolVersion + 1; },
    [](fi_info &h) { h.ep_attr->max_msg_size = ofi::kMaxMessageSize + 1; },
    [](fi_info &h) { h.ep_attr->max_order_waw_size = ofi::kMaxMessageSize + 1; },
    [](fi_info &h) { h.ep_attr->tx_ctx_cnt = 2; },
    [](fi_info &h) { h.ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT; },
    [](fi_info &h) { h.ep_attr->rx_ctx_cnt = 2; },
    [](fi_info &h) { h.ep_attr->auth_key_size = 8; },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_MSG;
        h.tx_attr->caps = FI_TAGGED;
    },
    [](fi_info &h) { h.tx_attr->op_flags = FI_COMMIT_COMPLETE; },
    [](fi_info &h) { h.tx_attr->comp_order = ofi::kOrderData; },
    [](fi_info &h) { h.tx_attr->inject_size = ofi::kMaxDatagramSize + 1; },
    [](fi_info &h) { h.tx_attr->size = ofi::kMaxQueueSize + 1; },
    [](fi_info &h) { h.tx_attr->iov_limit = ofi::kIovLimit + 1; },
    [](fi_info &h) { h.tx_attr->rma_iov_limit = ofi::kRmaIovLimit + 1; },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_MSG;
        h.tx_attr->msg_order = FI_ORDER_ATOMIC_WAW;
    },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_RDM;
        h.tx_attr->comp_order = ofi::kOrderStrict;
    },
    [](fi_info &h) {
        h.ep_attr->type = FI_EP_MSG;
        h.rx_attr->op_flags = FI_MULTI_RECV;
    },
    [](fi_info &h) { h.rx_attr->size = ofi::kRdmRxSize + 1; },
    [](fi_info &h) { h.rx_attr->iov_limit = ofi::kIovLimit + 1; },
    [](fi_info &h) { h.rx_attr->total_buffered_recv = 1; },
    [](fi_info &h) { h.domain_attr->data_progress = FI_PROGRESS_AUTO; },
    [](fi_info &h) { h.domain_attr->mr_key_size = 9; },
    [](fi_info &h) { h.domain_attr->cq_data_size = 9; },
    [](fi_info &h) { h.domain_attr->max_ep_stx_ctx = 1; },
    [](fi_info &h) { h.domain_attr->max_ep_tx_ctx = 2; },
    [](fi_info &h) { h.domain_attr->ep_cnt = SIZE_MAX; },
    [](fi_info &h) { h.domain_attr->auth_key_size = 1; },
    [](fi_info &h) { h.domain_attr->caps = FI_SHARED_AV; },
    [](fi_info &h) { h.domain_attr->mr_mode = ofi::kMrBasic | FI_MR_LOCAL; },
    [](fi_info &h) { h.domain_attr->name = ::strdup("other"); },
    [](fi_info &h) { h.fabric_attr->name = ::strdup("other"); },
};

void refused_hints(void **)
{
    int number = 0;
    for (const Change &change : kRefused) {
        if (result_of(change) != -FI_ENODATA) {
            print_error("hint number %d\n", number);
            UNIT_FAIL("a hint that can't be met was not refused");
        }
        ++number;
    }
}

void accepted_hints(void **)
{
    const Change accepted[] = {
        [](fi_info &h) { h.caps = FI_MSG | FI_RMA; },
        [](fi_info &h) { h.caps = FI_MSG | FI_SEND | FI_LOCAL_COMM; },
        [](fi_info &h) { h.addr_format = FI_SOCKADDR; },
        [](fi_info &h) { h.addr_format = FI_SOCKADDR_IN; },
        [](fi_info &h) { h.mode = ~UINT64_C(0); },
        [](fi_info &h) { h.ep_attr->type = FI_EP_MSG; },
        [](fi_info &h) { h.ep_attr->type = FI_EP_DGRAM; },
        [](fi_info &h) { h.ep_attr->type = FI_EP_RDM; },
        [](fi_info &h) { h.caps = FI_TAGGED | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE; },
        [](fi_info &h) { h.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT | FI_FENCE; },
        [](fi_info &h) {
            h.caps = FI_TAGGED;
            h.ep_attr->mem_tag_format = 0x30ff; // fields, which any format of single bits has
        },
        [](fi_info &h) { h.tx_attr->op_flags = FI_MATCH_COMPLETE; },
        [](fi_info &h) { h.rx_attr->op_flags = FI_MULTI_RECV; },
        [](fi_info &h) { h.tx_attr->msg_order = FI_ORDER_ATOMIC_WAW; },
        [](fi_info &h) { h.caps = FI_MSG | FI_SOURCE | FI_MULTICAST; },
        [](fi_info &h) { h.caps = FI_MSG | FI_SOURCE | FI_SOURCE_ERR; },
        [](fi_info &h) { h.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; },
        [](fi_info &h) { h.tx_attr->op_flags = FI_TRANSMIT_COMPLETE; },
        [](fi_info &h) { h.tx_attr->msg_order = FI_ORDER_SAS; },
        [](fi_info &h) { h.domain_attr->control_progress = FI_PROGRESS_MANUAL; },
        [](fi_info &h) { h.domain_attr->control_progress = FI_PROGRESS_AUTO; },
        [](fi_info &h) { h.domain_attr->threading = FI_THREAD_DOMAIN; },
        [](fi_info &h) { h.domain_attr->mr_mode = ofi::kMrBasic; },
        [](fi_info &h) { h.domain_attr->mr_mode = ofi::kMrScalable; },
        [](fi_info &h) { h.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY; },
        [](fi_info &h) { h.caps = FI_TAGGED | FI_PEER | FI_AV_USER_ID; },
        [](fi_info &h) { h.domain_attr->caps = FI_PEER | FI_AV_USER_ID | FI_LOCAL_COMM; },
        [](fi_info &h) { h.domain_attr->av_type = FI_AV_TABLE; },
        [](fi_info &h) { h.domain_attr->name = ::strdup("local"); },
    };
    int number = 0;
    for (const Change &change : accepted) {
        if (result_of(change) != 0) {
            print_error("hint number %d\n", number);
            UNIT_FAIL("a hint that can be met was refused");
        }
        ++number;
    }
}

void what_is_offered_is_accepted_as_hints(void **)
{
    const ofi::InfoPtr offered = ask(nullptr, nullptr, 0, nullptr);
    for (const fi_info *item = offered.get(); item != nullptr; item = item->next) {
        const ofi::InfoPtr again = ask(nullptr, nullptr, 0, item);
        assert_non_null(again.get());
        assert_int_equal(again->ep_attr->type, item->ep_attr->type);
        assert_int_equal(again->caps, item->caps);
        assert_int_equal(again->tx_attr->size, item->tx_attr->size);
    }
}

void directions_are_filled_in(void **)
{
    fi_info hints{};
    hints.caps = FI_MSG;
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints);
    assert_true((info->caps & (FI_SEND | FI_RECV)) == (FI_SEND | FI_RECV));
    assert_true((info->caps & FI_RMA) == 0);
    assert_true((info->tx_attr->caps & FI_RECV) == 0);
}

void tags_are_for_reliable_datagrams(void **)
{
    fi_info hints{};
    hints.caps = FI_TAGGED | FI_DIRECTED_RECV;
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints);
    assert_int_equal(info->ep_attr->type, FI_EP_RDM);
    assert_int_equal(info->ep_attr->protocol, ofi::kRdmProtocol);
    assert_true(info->ep_attr->mem_tag_format == ofi::kTagFormat);
    assert_true(info->caps == (FI_TAGGED | FI_DIRECTED_RECV | FI_SEND | FI_RECV | FI_LOCAL_COMM));
    assert_true(info->tx_attr->caps == (FI_TAGGED | FI_SEND));
    assert_true(info->rx_attr->caps == (FI_TAGGED | FI_DIRECTED_RECV | FI_RECV));
    for (const fi_info *item = info.get(); item != nullptr; item = item->next)
        assert_int_equal(item->ep_attr->type, FI_EP_RDM);
    hints.caps |= FI_LOCAL_COMM | FI_REMOTE_COMM; // as Open MPI asks, wherever its ranks are
    assert_true(ask(nullptr, nullptr, 0, &hints)->caps & FI_REMOTE_COMM);
}

// fi_peer(3) and FI_AV_USER_ID are there for who asks, and then at both places.
void owners_ask_for_peers(void **)
{
    constexpr std::uint64_t kBoth = FI_PEER | FI_AV_USER_ID;
    fi_info hints{};
    fi_domain_attr domain{};
    hints.domain_attr = &domain;
    hints.caps = FI_TAGGED;
    const ofi::InfoPtr nobody = ask(nullptr, nullptr, 0, &hints);
    assert_true((nobody->caps & kBoth) == 0 && (nobody->domain_attr->caps & kBoth) == 0);
    for (const bool of_domain : {false, true}) {
        hints.caps = FI_TAGGED | (of_domain ? 0 : kBoth);
        domain.caps = of_domain ? kBoth : 0;
        const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints);
        assert_int_equal(info->ep_attr->type, FI_EP_RDM);
        assert_true((info->caps & kBoth) == kBoth && (info->domain_attr->caps & kBoth) == kBoth);
        assert_true((info->tx_attr->caps & kBoth) == 0 && (info->rx_attr->caps & kBoth) == 0);
    }
    hints.caps = 0;
    domain.caps = FI_PEER;
    assert_true((ask(nullptr, nullptr, 0, &hints)->caps & FI_PEER) != 0);
}

// fi_getinfo(3): without a direction, atomic operations have all of them.
void atomics_are_for_reliable_datagrams(void **)
{
    fi_info hints{};
    hints.caps = FI_ATOMIC;
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints);
    assert_int_equal(info->ep_attr->type, FI_EP_RDM);
    assert_true(info->tx_attr->caps == (FI_ATOMIC | FI_READ | FI_WRITE));
    assert_true(info->rx_attr->caps == (FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE));
    hints.caps = FI_ATOMIC | FI_WRITE;
    const ofi::InfoPtr writer = ask(nullptr, nullptr, 0, &hints);
    assert_true(writer->caps == (FI_ATOMIC | FI_WRITE | FI_LOCAL_COMM));
}

void a_domain_tells_its_atomics(void **)
{
    fi_info hints{};
    hints.caps = FI_MSG | FI_ATOMIC;
    Net net("127.0.0.1", &hints);
    assert_int_equal(fi_domain(net.fabric, net.info.get(), &net.domain, nullptr), 0);
    fi_atomic_attr attr{};
    assert_int_equal(fi_query_atomic(net.domain, FI_INT64, FI_SUM, &attr, 0), 0);
    assert_int_equal(attr.size, 8);
    assert_int_equal(attr.count, ofi::kAtomicBytes / 8);
    assert_int_equal(fi_query_atomic(net.domain, FI_LONG_DOUBLE_COMPLEX, FI_PROD, &attr, FI_FETCH_ATOMIC), 0);
    assert_int_equal(attr.size, 2 * sizeof(long double));
    assert_int_equal(attr.count, ofi::kAtomicBytes / (2 * sizeof(long double)));
    assert_int_equal(fi_query_atomic(net.domain, FI_UINT8, FI_MSWAP, &attr, FI_COMPARE_ATOMIC), 0);
    assert_int_equal(attr.count, ofi::kAtomicBytes);
    assert_int_equal(fi_query_atomic(net.domain, FI_UINT8, FI_MSWAP, &attr, 0), -FI_EOPNOTSUPP);
    assert_int_equal(fi_query_atomic(net.domain, FI_FLOAT, FI_BOR, &attr, 0), -FI_EOPNOTSUPP);
    assert_int_equal(fi_query_atomic(net.domain, FI_INT64, FI_SUM, &attr, FI_TAGGED), -FI_EOPNOTSUPP);
    assert_int_equal(fi_query_atomic(net.domain, FI_INT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
                     -FI_EINVAL);
}

void a_domain_of_connections_has_no_atomics(void **)
{
    Net net;
    assert_int_equal(fi_domain(net.fabric, net.info.get(), &net.domain, nullptr), 0);
    fi_atomic_attr attr{};
    assert_int_equal(fi_query_atomic(net.domain, FI_INT64, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
}

// fi_getinfo(3): to send to groups is a capability of who sends.
void groups_are_sent_to(void **)
{
    fi_ep_attr datagrams{};
    datagrams.type = FI_EP_DGRAM;
    fi_info hints{};
    hints.ep_attr = &datagrams;
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints);
    assert_true((info->caps & info->tx_attr->caps & FI_MULTICAST) != 0);
    assert_int_equal(info->rx_attr->caps & FI_MULTICAST, 0);
}

void some_are_only_for_who_asks(void **)
{
    const ofi::InfoPtr all = ask(nullptr, nullptr, 0, nullptr);
    for (const fi_info *item = all.get(); item != nullptr; item = item->next)
        assert_true(((item->caps | item->rx_attr->caps) & FI_SOURCE_ERR) == 0);
    fi_info hints{};
    hints.caps = FI_MSG | FI_SOURCE | FI_SOURCE_ERR;
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints);
    assert_int_equal(info->ep_attr->type, FI_EP_DGRAM);
    assert_true((info->caps & FI_SOURCE_ERR) != 0 && (info->rx_attr->caps & FI_SOURCE_ERR) != 0);
}

void old_programs_get_an_old_mr_mode(void **)
{
    fi_info *info = nullptr;
    assert_int_equal(fi_prov_ini()->getinfo(FI_VERSION(1, 4), nullptr, nullptr, 0, nullptr, &info), 0);
    assert_int_equal(info->domain_attr->mr_mode, ofi::kMrScalable);
    ofi::free_info(info);
    assert_int_equal(result_of([](fi_info &h) { h.domain_attr->mr_mode = FI_MR_LOCAL; }, FI_VERSION(1, 4)),
                     -FI_ENODATA);
}

void names_are_there_and_the_provider_s_is_not(void **)
{
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, nullptr);
    for (const fi_info *item = info.get(); item != nullptr; item = item->next) {
        assert_string_equal(item->domain_attr->name, "local");
        assert_string_equal(item->fabric_attr->name, "local");
        assert_null(item->fabric_attr->prov_name);
        assert_non_null(item->src_addr);
        assert_null(item->dest_addr);
    }
}

ofi::Address address_of(const void *addr, std::size_t length)
{
    ofi::Address address;
    assert_true(address.assign(addr, length));
    return address;
}

void source_without_a_node_is_the_wildcard(void **)
{
    const ofi::InfoPtr info = ask(nullptr, "9228", FI_SOURCE, nullptr);
    const ofi::Address source = address_of(info->src_addr, info->src_addrlen);
    assert_true(source.is_wildcard());
    assert_int_equal(source.port(), 9228);
    assert_null(info->dest_addr);
}

void node_and_service_are_the_destination(void **)
{
    const ofi::InfoPtr info = ask("127.0.0.1", "9228", FI_NUMERICHOST, nullptr);
    const ofi::Address destination = address_of(info->dest_addr, info->dest_addrlen);
    assert_string_equal(ofi::AddressText(destination).c_str(), "127.0.0.1:9228");
    const ofi::Address source = address_of(info->src_addr, info->src_addrlen);
    assert_true(source.same_host(destination));
    assert_int_equal(source.port(), 0);
    assert_int_equal(info->addr_format, FI_SOCKADDR_IN);
}

void ipv6_addresses(void **)
{
    fi_info hints{};
    hints.addr_format = FI_SOCKADDR_IN6;
    int error = 0;
    const ofi::InfoPtr info = ask("::1", "9", 0, &hints, &error);
    if (error == -FI_ENODATA)
        UNIT_SKIP("this host has no IPv6");
    assert_int_equal(error, 0);
    assert_int_equal(info->addr_format, FI_SOCKADDR_IN6);
    assert_int_equal(info->dest_addrlen, sizeof(sockaddr_in6));
    hints.addr_format = FI_SOCKADDR_IN;
    ask("::1", "9", 0, &hints, &error);
    assert_int_equal(error, -FI_ENODATA);
}

void other_hosts_are_not_reached(void **)
{
    int error = 0;
    ask("192.0.2.1", "80", FI_NUMERICHOST, nullptr, &error); // RFC 5737: nobody's
    assert_int_equal(error, -FI_ENODATA);
    ask("not-an-address", "80", FI_NUMERICHOST, nullptr, &error);
    assert_int_equal(error, -FI_ENODATA);
}

void addresses_in_hints(void **)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(4711);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fi_info hints{};
    hints.addr_format = FI_SOCKADDR;
    hints.dest_addr = &address;
    hints.dest_addrlen = sizeof(address);
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints);
    assert_int_equal(info->addr_format, FI_SOCKADDR);
    assert_int_equal(address_of(info->dest_addr, info->dest_addrlen).port(), 4711);
    hints.dest_addrlen = 3; // no address is so short
    int error = 0;
    ask(nullptr, nullptr, 0, &hints, &error);
    assert_int_equal(error, -FI_ENODATA);
}

void attributes_only(void **)
{
    const ofi::InfoPtr info = ask("192.0.2.1", "80", FI_PROV_ATTR_ONLY, nullptr);
    assert_null(info->src_addr);
    assert_int_equal(info->ep_attr->type, FI_EP_MSG);
    assert_non_null(info->next);
    assert_int_equal(info->next->ep_attr->type, FI_EP_DGRAM);
    assert_non_null(info->next->next);
    assert_int_equal(info->next->next->ep_attr->type, FI_EP_RDM);
    assert_null(info->next->next->next);
}

void copies_are_deep(void **)
{
    const ofi::InfoPtr info = ask("127.0.0.1", "9228", 0, nullptr);
    const ofi::InfoPtr copy = ofi::copy_info(*info);
    assert_ptr_not_equal(copy->dest_addr, info->dest_addr);
    assert_memory_equal(copy->dest_addr, info->dest_addr, info->dest_addrlen);
    assert_string_equal(copy->domain_attr->name, "local");
    assert_ptr_not_equal(copy->domain_attr->name, info->domain_attr->name);
    assert_null(copy->next);
}

} // namespace

int main()
{
    setenv("FI_VMA_DEVICE", "local", 1); // what else a machine has, and its user may use, is not known here
    const CMUnitTest tests[] = {
        cmocka_unit_test(empty_hints_fit),
        cmocka_unit_test(hints_without_attributes_fit),
        cmocka_unit_test(refused_hints),
        cmocka_unit_test(accepted_hints),
        cmocka_unit_test(what_is_offered_is_accepted_as_hints),
        cmocka_unit_test(directions_are_filled_in),
        cmocka_unit_test(owners_ask_for_peers),
        cmocka_unit_test(tags_are_for_reliable_datagrams),
        cmocka_unit_test(atomics_are_for_reliable_datagrams),
        cmocka_unit_test(a_domain_tells_its_atomics),
        cmocka_unit_test(a_domain_of_connections_has_no_atomics),
        cmocka_unit_test(groups_are_sent_to),
        cmocka_unit_test(some_are_only_for_who_asks),
        cmocka_unit_test(old_programs_get_an_old_mr_mode),
        cmocka_unit_test(names_are_there_and_the_provider_s_is_not),
        cmocka_unit_test(source_without_a_node_is_the_wildcard),
        cmocka_unit_test(node_and_service_are_the_destination),
        cmocka_unit_test(ipv6_addresses),
        cmocka_unit_test(other_hosts_are_not_reached),
        cmocka_unit_test(addresses_in_hints),
        cmocka_unit_test(attributes_only),
        cmocka_unit_test(copies_are_deep),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
