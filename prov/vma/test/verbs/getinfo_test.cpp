// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo on the verbs device, over the simulated NIC.
#include "prov/vma/test/named_config.hpp"
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
    hints->domain_attr->mr_mode = ofi::kMrScalable;
    assert_int_equal(ask_error(hints.get()), -FI_ENODATA);
    hints->domain_attr->mr_mode = ofi::kMrBasic;
    assert_int_equal(ask_error(hints.get()), -FI_ENODATA);
    hints->mode |= ofi::kLocalMr;
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
    // Without attributes of a domain nothing was said of memory: as without hints. ofi_rxm asks so, for a fabric by its
    // name.
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
    const struct {
        const char *text;
        const char *left;
    } files[] = {
        {"[a]\ntransport = verbs\n", "sim0 "},
        {"[a]\ntransport = sm\n", "local "},
        {"[a]\ntransport = sm\n[b]\ntransport = verbs\n", "local sim0 "},
        {"[a]\ntransport = sm\n[b]\ntransport = verbs\npriority = 51\n", "sim0 local "},
        {"[a]\ntransport = sm\npriority = 100\n[b]\ntransport = verbs\ndefault = 1\n", "sim0 local "},
        {"[a]\ntransport = verbs\nip = 127.0.0.1\ninterface = ib0\n", "sim0 "}, // ip wins
        {"[a]\ntransport = verbs\ninterface = ib0\n", ""},
        {"[a]\ntransport = verbs\ninterface = lo\ndevice = sim0\n", "sim0 "},
        {"[a]\ntransport = verbs\ndevice = sim1\n", ""},
        {"[a]\ntransport = verbs\nip = 10.0.0.1\n", ""},
    };
    for (const auto &one : files) {
        const NamedConfig file(one.text);
        assert_string_equal(names().c_str(), one.left);
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

// The file says it too, for the device that has the address, where the variable does not.
void ports_of_the_file(void **)
{
    const SimulatedHost host;
    const NamedConfig file("[other]\ntransport = verbs\nip = 10.0.0.1\nport = 7002\n"
                           "[sim]\ntransport = Verbs\nip = 127.0.0.1\nport = 7003\n");
    RdmaSide b({});
    ofi::Address address;
    fid_pep *pep = b.net.listen(address);
    assert_int_equal(address.port(), 7003);
    assert_int_equal(fi_close(&pep->fid), 0);
    ::setenv("FI_VMA_PORT", "7004", 1);
    pep = b.net.listen(address);
    assert_int_equal(address.port(), 7004);
    ::unsetenv("FI_VMA_PORT");
    assert_int_equal(fi_close(&pep->fid), 0);
}

// Strings for addresses, by a device of its own connection manager.
void names_that_are_strings(void **)
{
    const SimulatedHost host;
    const ofi::InfoPtr hints = rdma_hints();
    hints->addr_format = FI_ADDR_STR;
    const ofi::InfoPtr info = ask("verbs://127.0.0.1:7005", nullptr, FI_SOURCE, hints.get());
    assert_string_equal(static_cast<const char *>(info->src_addr), "fi_sockaddr_in://127.0.0.1:7005");
    assert_int_equal(info->src_addrlen, std::strlen("fi_sockaddr_in://127.0.0.1:7005") + 1);
    fid_fabric *fabric = nullptr;
    fid_pep *pep = nullptr;
    assert_int_equal(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr), 0);
    assert_int_equal(fi_passive_ep(fabric, info.get(), &pep, nullptr), 0);
    char name[64];
    std::size_t length = sizeof name;
    assert_int_equal(fi_getname(&pep->fid, name, &length), 0);
    assert_string_equal(name, "fi_sockaddr_in://127.0.0.1:7005");
    assert_int_equal(fi_close(&pep->fid), 0);
    assert_int_equal(fi_close(&fabric->fid), 0);
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
        cmocka_unit_test(ports_of_the_file),
        cmocka_unit_test(names_that_are_strings),
        cmocka_unit_test(no_library_no_device),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
