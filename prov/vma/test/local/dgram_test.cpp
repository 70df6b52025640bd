// SPDX-License-Identifier: BSD-2-Clause
// Datagram endpoints: what arrives is what was sent, in order; what is lost is counted; whoever dies harms nobody.
#include "prov/vma/test/local/dgram_pair.hpp"

#include <poll.h>

using namespace vma;
using namespace vma::test;

namespace {

struct Received {
    fi_cq_data_entry entry{};
    fi_addr_t source = FI_ADDR_NOTAVAIL;
};

Received next_from(fid_cq *cq)
{
    Received got;
    for (const patience::Deadline deadline;;) {
        const ssize_t result = fi_cq_readfrom(cq, &got.entry, 1, &got.source);
        if (result == 1)
            return got;
        REQUIRE(result == -FI_EAGAIN);
        REQUIRE(!deadline.over());
    }
}

// In one process, through all the forms of sending.
void arrives_in_one_process(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b;
    const fi_addr_t to_b = a.insert(b.name);
    const fi_addr_t a_at_b = b.insert(a.name);
    char buffer[64] = {};
    REQUIRE(fi_recv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, &buffer) == 0);
    REQUIRE(fi_send(a.ep, "hello", 5, nullptr, to_b, &a) == 0);
    const Received got = next_from(b.cq);
    assert_ptr_equal(got.entry.op_context, &buffer);
    assert_int_equal(got.entry.len, 5);
    assert_int_equal(got.entry.flags, FI_MSG | FI_RECV);
    assert_int_equal(got.source, a_at_b);
    assert_memory_equal(buffer, "hello", 5);
    const fi_cq_data_entry sent = next_entry(a.cq);
    assert_ptr_equal(sent.op_context, &a);
    assert_int_equal(sent.flags, FI_MSG | FI_SEND);

    REQUIRE(fi_recv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(fi_injectdata(a.ep, nullptr, 0, 4711, to_b) == 0);
    const fi_cq_data_entry empty = next_entry(b.cq);
    assert_int_equal(empty.len, 0);
    assert_int_equal(empty.flags, FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA);
    assert_int_equal(empty.data, 4711);
    assert_true(no_entry(a.cq));

    char left[3];
    char right[8];
    const iovec out[] = {{const_cast<char *>("ab"), 2}, {const_cast<char *>("cdef"), 4}};
    const iovec in[] = {{left, sizeof left}, {right, sizeof right}};
    REQUIRE(fi_recvv(b.ep, in, nullptr, 2, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(fi_sendv(a.ep, out, nullptr, 2, to_b, nullptr) == 0);
    assert_int_equal(next_entry(b.cq).len, 6);
    assert_memory_equal(left, "abc", 3);
    assert_memory_equal(right, "def", 3);
}

// To itself, too.
void arrives_at_the_sender(void **)
{
    OwnDirectory directory;
    Dgram a;
    char buffer[8];
    REQUIRE(fi_recv(a.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(fi_inject(a.ep, "self", 4, a.insert(a.name)) == 0);
    assert_int_equal(next_entry(a.cq).len, 4);
    assert_memory_equal(buffer, "self", 4);
}

// A program that keeps its threads apart.
void without_locks(void **)
{
    OwnDirectory directory;
    Dgram a("0", 0, FI_THREAD_DOMAIN);
    Dgram b("0", 0, FI_THREAD_DOMAIN);
    const fi_addr_t to_b = a.insert(b.name);
    for (std::uint64_t i = 0; i < 5000; ++i) {
        std::uint64_t got = 0;
        REQUIRE(fi_recv(b.ep, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(fi_send(a.ep, &i, sizeof i, nullptr, to_b, nullptr) == 0);
        REQUIRE(next_entry(b.cq).len == sizeof got && got == i);
        REQUIRE(next_entry(a.cq).flags == (FI_MSG | FI_SEND));
    }
}

// The wait descriptor tells of the first datagram of a sender that nobody knew, and of the later ones.
void the_descriptor_becomes_readable(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b;
    const fi_addr_t to_b = a.insert(b.name);
    int fd = -1;
    REQUIRE(fi_control(&b.cq->fid, FI_GETWAIT, &fd) == 0);
    char got[4];
    for (int i = 0; i < 4; ++i)
        REQUIRE(fi_recv(b.ep, &got[i], 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    fid *const waits[] = {&b.cq->fid};
    for (int i = 0; i < 4; ++i) {
        fi_cq_data_entry entry{};
        ssize_t result;
        while (fi_trywait(b.fabric, const_cast<fid **>(waits), 1) != 0)
            REQUIRE(fi_cq_read(b.cq, &entry, 1) == -FI_EAGAIN);
        REQUIRE(fi_inject(a.ep, "x", 1, to_b) == 0);
        pollfd waiting{fd, POLLIN, 0};
        REQUIRE(poll(&waiting, 1, kPatience) == 1);
        while ((result = fi_cq_read(b.cq, &entry, 1)) == -FI_EAGAIN) {
            if (fi_trywait(b.fabric, const_cast<fid **>(waits), 1) == 0)
                REQUIRE(poll(&waiting, 1, kPatience) == 1);
        }
        assert_int_equal(result, 1);
    }
}

void long_ones_are_cut(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b;
    const fi_addr_t to_b = a.insert(b.name);
    std::vector<char> datagram(65507, 'x');
    char buffer[100];
    REQUIRE(fi_recv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, &buffer) == 0);
    REQUIRE(fi_inject(a.ep, datagram.data(), datagram.size(), to_b) == 0);
    const fi_cq_err_entry error = next_error(b.cq);
    assert_int_equal(error.err, FI_ETRUNC);
    assert_int_equal(error.len, 100);
    assert_int_equal(error.olen, 65507 - 100);
    assert_ptr_equal(error.op_context, &buffer);
    assert_int_equal(fi_inject(a.ep, datagram.data(), 65508, to_b), -FI_EMSGSIZE);
    assert_int_equal(fi_inject(a.ep, datagram.data(), 1, to_b + 1), -FI_EINVAL);
    assert_int_equal(fi_inject(a.ep, datagram.data(), 1, FI_ADDR_NOTAVAIL), -FI_EINVAL);
}

// What doesn't fit into the ring is lost, exactly that, and both sides count it. The rest comes in order.
void a_slow_receiver_loses(void **)
{
    OwnDirectory directory;
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    Dgram b;
    const fi_addr_t to_b = a.insert(b.name);
    constexpr std::uint64_t kSent = 150000; // more than ring and spill have room for
    for (std::uint64_t i = 0; i < kSent; ++i)
        REQUIRE(fi_send(a.ep, &i, sizeof i, nullptr, to_b, nullptr) == 0);
    const std::uint64_t lost = a.drops(FI_OPT_VMA_TX_DROPS);
    assert_true(lost > 0 && lost < kSent);
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < kSent - lost; ++i) {
        REQUIRE(fi_recv(b.ep, &value, sizeof value, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(next_entry(b.cq).len == sizeof value);
        REQUIRE(value == i); // the first ones found room
    }
    REQUIRE(fi_recv(b.ep, &value, sizeof value, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    assert_true(no_entry(b.cq));
    assert_int_equal(b.drops(FI_OPT_VMA_RX_DROPS), lost);
}

// What is sent to a name that nobody has is lost; who takes it gets what comes then.
void receivers_come_and_go(void **)
{
    OwnDirectory directory;
    Dgram a;
    const fi_addr_t to = a.insert(std::uint16_t{12123});
    REQUIRE(fi_inject(a.ep, "1", 1, to) == 0);
    assert_int_equal(a.drops(FI_OPT_VMA_TX_DROPS), 1);
    for (int i = 0; i < 5; ++i) {
        Dgram b("12123");
        char got = 0;
        REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        fi_cq_data_entry entry{};
        ssize_t result;
        int tries = 0;
        do { // the name is looked at again some milliseconds later
            REQUIRE(fi_inject(a.ep, "2", 1, to) == 0);
            result = fi_cq_sread(b.cq, &entry, 1, nullptr, 1);
        } while (result == -FI_EAGAIN && ++tries < kPatience);
        assert_int_equal(result, 1);
        assert_int_equal(got, '2');
    }
}

void a_name_has_one_endpoint(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b;
    const ofi::InfoPtr info = ofi::copy_info(*b.info);
    ofi::Address taken;
    assert_true(taken.assign(&a.name, sizeof a.name));
    assert_true(ofi::set_source(*info, taken));
    fid_ep *ep = nullptr;
    assert_int_equal(fi_endpoint(b.domain, info.get(), &ep, nullptr), -FI_EADDRINUSE);
    // A port of the connected kind is another.
    fid_pep *pep = nullptr;
    info->ep_attr->type = FI_EP_MSG;
    assert_int_equal(fi_passive_ep(b.fabric, info.get(), &pep, nullptr), 0);
    assert_int_equal(fi_close(&pep->fid), 0);
}

void cancel_and_close(void **)
{
    OwnDirectory directory;
    Dgram a;
    char buffer[8];
    REQUIRE(fi_recv(a.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, &buffer) == 0);
    REQUIRE(fi_cancel(&a.ep->fid, &buffer) == 0);
    assert_int_equal(next_error(a.cq).err, FI_ECANCELED);
    assert_int_equal(fi_cancel(&a.ep->fid, &buffer), -FI_ENOENT);
    assert_int_equal(fi_close(&a.av->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&a.cq->fid), -FI_EBUSY);
}

// ---- two processes --------------------------------------------------------------------------------------------------

// A datagram of the sequence: its number, and bytes that follow from it.
std::size_t fill_numbered(std::uint64_t seed, std::uint64_t number, std::vector<unsigned char> &out)
{
    Random random(seed + number);
    const std::size_t limit = random.below(8) == 0 ? 65507 : 300;
    const std::size_t length = sizeof number + random.below(limit - sizeof number + 1);
    std::memcpy(out.data(), &number, sizeof number);
    for (std::size_t i = sizeof number; i < length; ++i)
        out[i] = static_cast<unsigned char>(number * 31 + i * 7);
    return length;
}

constexpr std::uint64_t kRounds = 3000;

void echo(std::uint64_t seed, int ready)
{
    Dgram b;
    REQUIRE(write(ready, &b.name, sizeof b.name) == sizeof b.name);
    std::vector<unsigned char> in(65536);
    std::vector<unsigned char> out(65536);
    sockaddr_in peer{};
    REQUIRE(read(ready, &peer, sizeof peer) == sizeof peer);
    const fi_addr_t back = b.insert(peer);
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        REQUIRE(fi_recv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        fi_cq_data_entry entry{};
        fi_addr_t source = FI_ADDR_NOTAVAIL;
        REQUIRE(fi_cq_sreadfrom(b.cq, &entry, 1, &source, nullptr, kPatience) == 1);
        const std::size_t length = fill_numbered(seed, i, out);
        REQUIRE(source == back && entry.len == length && std::memcmp(in.data(), out.data(), length) == 0);
        REQUIRE(fi_inject(b.ep, in.data(), length, source) == 0);
    }
}

// Sizes at random, both ways, sleeping in between: not one is lost, the first included.
void ping_pong_between_processes(void **)
{
    OwnDirectory directory;
    Random random;
    const std::uint64_t seed = random();
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    const pid_t pid = child([&] { echo(seed, pair[1]); });
    Dgram a;
    sockaddr_in peer{};
    REQUIRE(read(pair[0], &peer, sizeof peer) == sizeof peer);
    REQUIRE(write(pair[0], &a.name, sizeof a.name) == sizeof a.name);
    const fi_addr_t to = a.insert(peer);
    std::vector<unsigned char> in(65536);
    std::vector<unsigned char> out(65536);
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        const std::size_t length = fill_numbered(seed, i, out);
        REQUIRE(fi_recv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(fi_inject(a.ep, out.data(), length, to) == 0);
        fi_cq_data_entry entry{};
        REQUIRE(fi_cq_sread(a.cq, &entry, 1, nullptr, kPatience) == 1);
        REQUIRE(entry.len == length && std::memcmp(in.data(), out.data(), length) == 0);
    }
    ends_well(pid);
    assert_int_equal(a.drops(FI_OPT_VMA_TX_DROPS), 0);
    close(pair[0]);
    close(pair[1]);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(arrives_in_one_process), cmocka_unit_test(arrives_at_the_sender),
        cmocka_unit_test(without_locks),          cmocka_unit_test(the_descriptor_becomes_readable),
        cmocka_unit_test(long_ones_are_cut),      cmocka_unit_test(a_slow_receiver_loses),
        cmocka_unit_test(receivers_come_and_go),  cmocka_unit_test(a_name_has_one_endpoint),
        cmocka_unit_test(cancel_and_close),       cmocka_unit_test(ping_pong_between_processes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
