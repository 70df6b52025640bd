// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams between hosts: who is who out there, who is gone, and what strangers send. The hosts are two
// endpoints of one process that take each other for remote; what messages and memory do is in rdm_test and
// rdm/remote_test, by both ways.
#include "prov/vma/test/rdm/pair.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <poll.h>

#include "fabtests/patience.hpp"
#include "rdm/network.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr RdmSetup kRemote{.network = true};
constexpr std::uint64_t kTag = 0x4711;

ssize_t send_tagged(Rdm &a, fi_addr_t peer, const void *bytes, std::size_t length, void *context, const Rdm &other)
{
    return again([&] { return fi_tsend(a.ep, bytes, length, nullptr, peer, kTag, context); }, {a.cq, other.cq});
}

// The source of a message is its sender's place in the receiver's address vector, by whichever of both spoke first.
void knows_who_sends(void **)
{
    OwnDirectory directory;
    Rdm a(kRemote);
    Rdm b(kRemote);
    Rdm c(kRemote);
    const fi_addr_t c_at_a = a.insert(c.name);
    const fi_addr_t c_at_b = b.insert(c.name);
    char buffer[8] = {};
    REQUIRE(fi_trecv(c.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr) == 0);
    REQUIRE(send_tagged(a, c_at_a, "a", 1, nullptr, c) == 0);
    assert_int_equal(next_of(c.cq, {a.cq}).source, FI_ADDR_NOTAVAIL);
    const fi_addr_t b_at_c = c.insert(b.name);
    const fi_addr_t a_at_c = c.insert(a.name);
    for (const bool from_a : {true, false, true}) {
        REQUIRE(fi_trecv(c.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr) == 0);
        REQUIRE(send_tagged(from_a ? a : b, from_a ? c_at_a : c_at_b, "x", 1, nullptr, c) == 0);
        assert_int_equal(next_of(c.cq, {a.cq, b.cq}).source, from_a ? a_at_c : b_at_c);
    }
    // Only from one of them, and back.
    REQUIRE(fi_trecv(c.ep, buffer, sizeof buffer, nullptr, b_at_c, kTag, 0, &b) == 0);
    REQUIRE(send_tagged(a, c_at_a, "a", 1, nullptr, c) == 0);
    REQUIRE(send_tagged(b, c_at_b, "b", 1, nullptr, c) == 0);
    assert_ptr_equal(next_of(c.cq, {a.cq, b.cq}).told.op_context, &b);
    assert_memory_equal(buffer, "b", 1);
    REQUIRE(fi_trecv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, kTag, 0, &c) == 0);
    REQUIRE(send_tagged(c, b_at_c, "c", 1, nullptr, b) == 0);
    Entry got;
    do {
        got = next_of(b.cq, {c.cq});
    } while ((got.told.flags & FI_SEND) != 0);
    assert_ptr_equal(got.told.op_context, &c);
}

// Each in order, and more than the buffers of either side hold, before and after the receives.
void many_at_once(void **)
{
    OwnDirectory directory;
    Rdm a(kRemote);
    Rdm b(kRemote);
    const fi_addr_t to_b = a.insert(b.name);
    constexpr std::uint32_t kMessages = 2000;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
        REQUIRE(again([&] { return fi_tinject(a.ep, &i, sizeof i, to_b, kTag); }, {a.cq, b.cq}) == 0);
    }
    for (std::uint32_t i = 0; i < kMessages; ++i) {
        std::uint32_t got = 0;
        REQUIRE(fi_trecv(b.ep, &got, sizeof got, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr) == 0);
        REQUIRE(next_of(b.cq, {a.cq}).error.err == 0);
        REQUIRE(got == i);
    }
}

// Who sleeps on the queue's descriptor hears of what comes from another host.
void wakes_who_sleeps(void **)
{
    OwnDirectory directory;
    Rdm a(kRemote);
    Rdm b(kRemote);
    const fi_addr_t to_b = a.insert(b.name);
    int fd = -1;
    REQUIRE(fi_control(&b.cq->fid, FI_GETWAIT, &fd) == 0);
    for (int i = 0; i < 20; ++i) {
        char got = 0;
        REQUIRE(fi_trecv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr) == 0);
        REQUIRE(send_tagged(a, to_b, "x", 1, nullptr, b) == 0);
        Entry entry;
        while (!read_entry(b.cq, entry)) {
            fid *objects[] = {&b.cq->fid};
            if (fi_trywait(b.fabric, objects, 1) == 0) {
                pollfd sleeper{fd, POLLIN, 0};
                while (::poll(&sleeper, 1, 0) == 0) // who sends has to go on, and does so in this thread
                    REQUIRE(fi_cq_read(a.cq, nullptr, 0) <= 0);
            }
        }
        REQUIRE(entry.error.err == 0 && got == 'x');
        REQUIRE(next_of(a.cq, {b.cq}).error.err == 0); // it was sent
    }
}

// Another endpoint at an address that one had which was talked to.
void another_has_its_address(void **)
{
    OwnDirectory directory;
    Rdm a(kRemote);
    auto first = std::make_unique<Rdm>(kRemote);
    const sockaddr_in name = first->name;
    const fi_addr_t peer = a.insert(name);
    char got[4] = {};
    REQUIRE(fi_trecv(first->ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr) == 0);
    REQUIRE(send_tagged(a, peer, "1", 1, nullptr, *first) == 0);
    REQUIRE(next_of(first->cq, {a.cq}).error.err == 0);
    REQUIRE(next_of(a.cq).error.err == 0);
    first.reset();
    const std::string port = std::to_string(ntohs(name.sin_port));
    RdmSetup setup = kRemote;
    setup.port = port.c_str();
    Rdm second(setup);
    assert_int_equal(second.name.sin_port, name.sin_port);
    const fi_addr_t back = second.insert(a.name);
    char again_got[4] = {};
    REQUIRE(fi_trecv(a.ep, again_got, sizeof again_got, nullptr, FI_ADDR_UNSPEC, kTag, 0, again_got) == 0);
    REQUIRE(send_tagged(second, back, "2", 1, nullptr, a) == 0);
    Entry entry = next_of(a.cq, {second.cq});
    assert_ptr_equal(entry.told.op_context, again_got);
    assert_memory_equal(again_got, "2", 1);
    REQUIRE(fi_trecv(second.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, kTag, 0, got) == 0);
    REQUIRE(send_tagged(a, peer, "3", 1, nullptr, second) == 0);
    do {
        entry = next_of(second.cq, {a.cq});
        REQUIRE(entry.error.err == 0);
    } while (entry.told.op_context != got);
    assert_memory_equal(got, "3", 1);
}

// Once a program was told that a message is sent, it may do something else for ever: the message arrives.
void leaves_by_itself(void **)
{
    OwnDirectory directory;
    Rdm a(kRemote);
    Rdm b(kRemote);
    const fi_addr_t to_b = a.insert(b.name);
    for (const std::size_t length : {std::size_t{8}, std::size_t{100000}, std::size_t{4} << 20}) {
        const std::vector<std::byte> bytes = pattern(length, length);
        std::vector<std::byte> got(length);
        REQUIRE(fi_trecv(b.ep, got.data(), length, nullptr, FI_ADDR_UNSPEC, kTag, 0, &got) == 0);
        REQUIRE(send_tagged(a, to_b, bytes.data(), length, &a, b) == 0);
        Entry received;
        bool arrived = false;
        for (Entry sent; !read_entry(a.cq, sent);) {
            if (!arrived)
                arrived = read_entry(b.cq, received);
        }
        while (!arrived)
            arrived = read_entry(b.cq, received);
        REQUIRE(received.error.err == 0 && got == bytes);
    }
}

// Who waits for an answer from an endpoint that is gone hears of it, also one that sleeps meanwhile; and later calls
// say so too.
void somebody_is_gone(void **)
{
    OwnDirectory directory;
    Rdm a(kRemote);
    auto b = std::make_unique<Rdm>(kRemote);
    const fi_addr_t peer = a.insert(b->name);
    char got[4] = {};
    REQUIRE(fi_trecv(b->ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, kTag, 0, nullptr) == 0);
    REQUIRE(send_tagged(a, peer, "1", 1, nullptr, *b) == 0);
    REQUIRE(next_of(b->cq, {a.cq}).error.err == 0);
    REQUIRE(next_of(a.cq).error.err == 0);
    const std::vector<std::byte> bytes = pattern(300000, 1);
    REQUIRE(send_tagged(a, peer, bytes.data(), bytes.size(), &a, *b) == 0); // nobody receives it
    REQUIRE(no_entry(a.cq));
    b.reset();
    Entry entry;
    while (!read_entry(a.cq, entry)) {
        int fd = -1;
        REQUIRE(fi_control(&a.cq->fid, FI_GETWAIT, &fd) == 0);
        fid *objects[] = {&a.cq->fid};
        pollfd sleeper{fd, POLLIN, 0};
        if (fi_trywait(a.fabric, objects, 1) == 0)
            REQUIRE(::poll(&sleeper, 1, patience::milliseconds()) == 1);
    }
    assert_ptr_equal(entry.error.op_context, &a);
    assert_int_equal(entry.error.err, FI_ECONNRESET);
    assert_int_equal(again([&] { return fi_tinject(a.ep, "2", 1, peer, kTag); }, {a.cq}), -FI_ECONNREFUSED);
}

// A stranger with an endpoint of the same provider, who sends what it likes.
struct Stranger {
    int error = 0;
    std::unique_ptr<rdm::Network> network;
    rdm::Peer peer;

    explicit Stranger(const sockaddr_in &victim, std::uint16_t port)
    {
        ofi::Address name;
        REQUIRE(name.assign_whole(&victim));
        const ofi::Address to = name;
        name.set_port(port);
        network = rdm::Network::open(name, error);
        REQUIRE(network != nullptr);
        peer.net = network->meet(to, peer);
        REQUIRE(peer.net != nullptr);
    }
    ~Stranger() { peer.net.reset(); }
    void say(const std::vector<std::byte> &packet, Rdm &victim)
    {
        std::byte *place = nullptr;
        while ((place = network->claim(*peer.net)) == nullptr) {
            network->progress();
            static_cast<void>(fi_cq_read(victim.cq, nullptr, 0));
        }
        std::copy(packet.begin(), packet.end(), place);
        network->publish(*peer.net, packet.size(), false, 0);
    }
};

// Nothing of it crashes us, reaches the program, or hinders others.
void strangers_are_not_believed(void **)
{
    OwnDirectory directory;
    Rdm a(kRemote);
    Rdm b(kRemote);
    const fi_addr_t to_b = a.insert(b.name);
    std::uint64_t state = 20; // always the same
    Stranger stranger(b.name, static_cast<std::uint16_t>(ntohs(b.name.sin_port) ^ 1));
    char buffer[64] = {};
    REQUIRE(fi_trecv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, kTag, 0, buffer) == 0);
    for (int i = 0; i < 2000; ++i) {
        std::vector<std::byte> packet = pattern(state % 300, state);
        state = state * 6364136223846793005U + 1442695040888963407U;
        if (!packet.empty())
            packet[0] = static_cast<std::byte>(i % 14);
        if (packet.size() > 1)
            packet[1] &= std::byte{15};
        stranger.say(packet, b);
    }
    REQUIRE(no_entry(b.cq));
    REQUIRE(send_tagged(a, to_b, "good", 4, nullptr, b) == 0);
    const Entry entry = next_of(b.cq, {a.cq});
    assert_ptr_equal(entry.told.op_context, buffer);
    assert_memory_equal(buffer, "good", 4);
}

// What a packet's head says of its sender.
void names_in_packets(void **)
{
    for (const char *text : {"192.0.2.1", "2001:db8::1"}) {
        ofi::Address name;
        const bool v4 = inet_pton(AF_INET, text, &name.v4.sin_addr) == 1;
        REQUIRE(v4 || inet_pton(AF_INET6, text, &name.v6.sin6_addr) == 1);
        name.sa.sa_family = v4 ? AF_INET : AF_INET6;
        name.set_port(4711);
        rdm::NetworkHead head{};
        rdm::set_name(head, name);
        ofi::Address got;
        REQUIRE(rdm::name_in(head, got));
        REQUIRE(got.same_host(name));
        // It is the same peer, whatever a program's sockaddr has besides.
        if (v4)
            std::memset(name.v4.sin_zero, 0x55, sizeof name.v4.sin_zero);
        else
            name.v6.sin6_flowinfo = 0x55;
        REQUIRE(got.key() == name.key());
        assert_int_equal(got.port(), 4711);
        for (const unsigned family : {0U, 5U, 7U, 0xffffU}) {
            rdm::NetworkHead wrong = head;
            wrong.family = static_cast<std::uint16_t>(family);
            REQUIRE(!rdm::name_in(wrong, got));
        }
        rdm::NetworkHead without = head;
        without.port = 0;
        REQUIRE(!rdm::name_in(without, got));
        without = head;
        std::memset(without.host, 0, sizeof without.host);
        REQUIRE(!rdm::name_in(without, got));
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(knows_who_sends),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(wakes_who_sleeps),
        cmocka_unit_test(another_has_its_address),
        cmocka_unit_test(leaves_by_itself),
        cmocka_unit_test(somebody_is_gone),
        cmocka_unit_test(strangers_are_not_believed),
        cmocka_unit_test(names_in_packets),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
