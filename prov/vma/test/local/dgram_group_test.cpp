// SPDX-License-Identifier: BSD-2-Clause
// Groups of datagram endpoints: every member gets what is sent to one, once, and nobody else does.
#include "prov/vma/test/local/dgram_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

sockaddr_in group_address(std::uint8_t last, std::uint16_t port)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(0xefff0000U | last);
    return address;
}

fid_mc *join(Dgram &member, const sockaddr_in &group, std::uint64_t flags = 0)
{
    fid_mc *mc = nullptr;
    REQUIRE(fi_join(member.ep, &group, flags, &mc, nullptr) == 0);
    return mc;
}

void close_group(fid_mc *mc)
{
    REQUIRE(fi_close(&mc->fid) == 0);
}

// The members of this process, the sender too, each once; another group is another, by its address or its port.
void members_of_one_process(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b;
    Dgram c;
    Dgram outsider;
    fid_mc *const of_b = join(b, group_address(1, 7000));
    fid_mc *const of_c = join(c, group_address(1, 7000));
    fid_mc *const other_address = join(outsider, group_address(2, 7000));
    fid_mc *const other_port = join(outsider, group_address(1, 7001));
    fid_mc *const of_a = join(a, group_address(1, 7000));
    std::uint32_t values[4] = {};
    Dgram *const all[] = {&a, &b, &c, &outsider};
    for (int i = 0; i < 4; ++i) {
        for (int twice = 0; twice < 2; ++twice)
            REQUIRE(fi_recv(all[i]->ep, &values[i], sizeof values[i], nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    }
    const std::uint32_t sent = 4711;
    REQUIRE(fi_inject(a.ep, &sent, sizeof sent, fi_mc_addr(of_a)) == 0);
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(next_entry(all[i]->cq).len, sizeof sent);
        assert_int_equal(values[i], sent);
        assert_true(no_entry(all[i]->cq));
    }
    // New senders are looked for every thousand reads.
    for (int i = 0; i < 3000; ++i)
        assert_true(fi_cq_read(outsider.cq, nullptr, 0) == -FI_EAGAIN);
    assert_int_equal(fi_close(&a.ep->fid), -FI_EBUSY);
    for (fid_mc *mc : {of_a, of_b, of_c, other_address, other_port})
        close_group(mc);
}

void what_cannot_be_joined(void **)
{
    OwnDirectory directory;
    Dgram a;
    const sockaddr_in group = group_address(1, 7000);
    fid_mc *mc = nullptr;
    assert_int_equal(fi_join(a.ep, &a.name, 0, &mc, nullptr), -FI_EINVAL);
    assert_int_equal(fi_join(a.ep, &group, FI_PEEK, &mc, nullptr), -FI_EBADFLAGS);
    fid_mc *const first = join(a, group);
    assert_int_equal(fi_join(a.ep, &group, 0, &mc, nullptr), -FI_EADDRINUSE);
    close_group(first);
    // Only to send: it gets nothing itself.
    fid_mc *const sender = join(a, group, FI_SEND);
    assert_int_equal(fi_inject(a.ep, "x", 1, fi_mc_addr(sender)), 0);
    assert_true(no_entry(a.cq));
    const fi_addr_t place = fi_mc_addr(sender);
    close_group(sender);
    assert_int_equal(fi_inject(a.ep, "x", 1, place), -FI_EINVAL);
}

// Of a domain with strings for addresses (FI_ADDR_STR); members of one that has none are in the same group.
void groups_are_named_by_strings(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b({.addr_format = FI_ADDR_STR});
    fid_mc *mc = nullptr;
    for (const char *const none :
         {"fi_sockaddr_in://127.0.0.1:7000", "fi_sockaddr_in://239.255.0.1:70000", "239.255.0.1:7000", ""})
        assert_int_equal(fi_join(b.ep, none, 0, &mc, nullptr), -FI_EINVAL);
    REQUIRE(fi_join(b.ep, "fi_sockaddr_in://239.255.0.1:7000", 0, &mc, nullptr) == 0);
    fid_mc *const sender = join(a, group_address(1, 7000), FI_SEND);
    char got = 0;
    REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(fi_inject(a.ep, "x", 1, fi_mc_addr(sender)) == 0);
    assert_int_equal(next_entry(b.cq).len, 1);
    assert_int_equal(got, 'x');
    close_group(sender);
    close_group(mc);
}

// Who has left gets nothing more, who joins later gets what is sent from some milliseconds after that.
void members_come_and_go(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b;
    fid_mc *const sender = join(a, group_address(9, 9), FI_SEND);
    REQUIRE(fi_inject(a.ep, "0", 1, fi_mc_addr(sender)) == 0);
    for (int round = 0; round < 3; ++round) {
        fid_mc *const mc = join(b, group_address(9, 9));
        char got = 0;
        REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        fi_cq_data_entry entry{};
        ssize_t result;
        int tries = 0;
        do {
            REQUIRE(fi_inject(a.ep, "1", 1, fi_mc_addr(sender)) == 0);
            result = fi_cq_sread(b.cq, &entry, 1, nullptr, 1);
        } while (result == -FI_EAGAIN && ++tries < kPatience);
        assert_int_equal(result, 1);
        close_group(mc);
        REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(fi_inject(a.ep, "2", 1, fi_mc_addr(sender)) == 0);
        for (int i = 0; i < 3000; ++i)
            assert_true(fi_cq_read(b.cq, nullptr, 0) == -FI_EAGAIN);
        REQUIRE(fi_cancel(&b.ep->fid, nullptr) == 0);
        REQUIRE(next_error(b.cq).err == FI_ECANCELED);
    }
    close_group(sender);
}

constexpr std::uint64_t kCount = 3000;

void take_all(int ready)
{
    Dgram b;
    fid_mc *const mc = join(b, group_address(7, 5000));
    std::uint64_t value = 0;
    REQUIRE(write(ready, "r", 1) == 1);
    for (std::uint64_t i = 0; i < kCount; ++i) {
        REQUIRE(fi_recv(b.ep, &value, sizeof value, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        fi_cq_data_entry entry{};
        REQUIRE(fi_cq_sread(b.cq, &entry, 1, nullptr, kPatience) == 1);
        REQUIRE(entry.len == sizeof value && value == i);
    }
    REQUIRE(b.drops(FI_OPT_VMA_RX_DROPS) == 0);
    close_group(mc);
}

// Three other processes, each gets all of it in order.
void members_of_other_processes(void **)
{
    OwnDirectory directory;
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_t members[3];
    for (pid_t &member : members)
        member = child([&] { take_all(ready[1]); });
    char token;
    for (int i = 0; i < 3; ++i)
        REQUIRE(read(ready[0], &token, 1) == 1);
    {
        Dgram a;
        fid_mc *const mc = join(a, group_address(7, 5000), FI_SEND);
        for (std::uint64_t i = 0; i < kCount; ++i)
            REQUIRE(fi_inject(a.ep, &i, sizeof i, fi_mc_addr(mc)) == 0);
        for (const pid_t member : members)
            ends_well(member);
        assert_int_equal(a.drops(FI_OPT_VMA_TX_DROPS), 0);
        close_group(mc);
    }
    close(ready[0]);
    close(ready[1]);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(members_of_one_process),      cmocka_unit_test(what_cannot_be_joined),
        cmocka_unit_test(groups_are_named_by_strings), cmocka_unit_test(members_come_and_go),
        cmocka_unit_test(members_of_other_processes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
