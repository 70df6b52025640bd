// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams where somebody is gone, stopped, or lies: what was under way ends with an error, nothing hangs,
// and nobody else is harmed.
#include "prov/vma/test/rdm/pair.hpp"

#include "local/cm/manager.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <string>

using namespace vma;
using namespace vma::test;

namespace {

// A child with an endpoint, which it names, and then does something with it.
struct Other {
    pid_t pid = -1;
    int socket = -1;
    sockaddr_in name{};

    template <typename Action> explicit Other(const Action &action, const RdmSetup &setup = {})
    {
        int pair[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        pid = child([&] {
            close(pair[0]);
            Rdm me(setup);
            REQUIRE(write(pair[1], &me.name, sizeof me.name) == sizeof me.name);
            sockaddr_in other{};
            REQUIRE(read(pair[1], &other, sizeof other) == sizeof other);
            action(me, me.insert(other), pair[1]);
        });
        close(pair[1]);
        socket = pair[0];
        REQUIRE(read(socket, &name, sizeof name) == sizeof name);
    }
    Other(const Other &) = delete;
    Other &operator=(const Other &) = delete;
    ~Other() { close(socket); }
    void tell(const Rdm &me) const { REQUIRE(write(socket, &me.name, sizeof me.name) == sizeof me.name); }
    void wait_for_word() const
    {
        char word = 0;
        REQUIRE(read(socket, &word, 1) == 1);
    }
    void kill_it()
    {
        REQUIRE(kill(pid, SIGKILL) == 0);
        REQUIRE(waitpid(pid, nullptr, 0) == pid);
    }
};

void say(int socket)
{
    REQUIRE(write(socket, "x", 1) == 1);
}

[[noreturn]] void do_nothing()
{
    for (;;)
        pause();
}

// Reads its queue until it is told to stop, and says so.
[[noreturn]] void read_until_told(Rdm &me, int socket)
{
    char word = 0;
    while (recv(socket, &word, 1, MSG_DONTWAIT) != 1)
        REQUIRE(fi_cq_read(me.cq, nullptr, 0) <= 0);
    say(socket);
    do_nothing();
}

// The other has heard of us and we of it, and it does nothing any more.
void meet_and_stop(Rdm &a, fi_addr_t to, const Other &other)
{
    std::uint64_t value = 0;
    REQUIRE(again([&] { return fi_read(a.ep, &value, sizeof value, nullptr, to, 0, 1, &value); }, {a.cq}) == 0);
    const Entry read = next_of(a.cq);
    REQUIRE(read.error.err == 0 && value == 4711);
    say(other.socket);
    other.wait_for_word();
}

void expose_and_read(Rdm &me, fi_addr_t, int socket)
{
    std::uint64_t cell = 4711;
    me.expose(&cell, sizeof cell, 1);
    read_until_told(me, socket);
}

void nobody_there(void **)
{
    OwnDirectory directory;
    Rdm a;
    sockaddr_in nobody = a.name;
    nobody.sin_port = htons(static_cast<std::uint16_t>(ntohs(a.name.sin_port) ^ 1));
    const fi_addr_t place = a.insert(nobody);
    assert_int_equal(again([&] { return fi_send(a.ep, "x", 1, nullptr, place, nullptr); }, {a.cq}), -FI_ECONNREFUSED);
    assert_int_equal(fi_send(a.ep, "x", 1, nullptr, 12345, nullptr), -FI_EINVAL);
    // Who comes later is found.
    char port[8];
    std::snprintf(port, sizeof port, "%u", static_cast<unsigned>(ntohs(nobody.sin_port)));
    Rdm b({.port = port});
    char got[4] = {};
    REQUIRE(fi_recv(b.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    ssize_t result;
    while ((result = fi_inject(a.ep, "late", 4, place)) != 0)
        REQUIRE(result == -FI_EAGAIN || result == -FI_ECONNREFUSED);
    assert_int_equal(next_of(b.cq).told.len, 4);
}

// Who takes the port of one that has gone is a new peer: nothing of the old one's is in the way, in either direction.
void another_has_the_port(void **)
{
    OwnDirectory directory;
    Rdm a;
    char port[8];
    sockaddr_in name{};
    char got[8] = {};
    {
        Rdm b;
        name = b.name;
        std::snprintf(port, sizeof port, "%u", static_cast<unsigned>(ntohs(name.sin_port)));
        REQUIRE(fi_recv(b.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(again([&] { return fi_inject(a.ep, "first", 5, a.insert(name)); }, {b.cq}) == 0);
        REQUIRE(next_of(b.cq).error.err == 0);
        REQUIRE(again([&] { return fi_inject(b.ep, "unread", 6, b.insert(a.name)); }, {a.cq}) == 0);
        REQUIRE(no_entry(a.cq));
    }
    Rdm c({.port = port});
    const fi_addr_t to_c = a.insert(name);
    const fi_addr_t c_to_a = c.insert(a.name);
    REQUIRE(fi_recv(c.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    ssize_t result;
    while ((result = fi_inject(a.ep, "second", 6, to_c)) != 0) {
        REQUIRE(result == -FI_EAGAIN || result == -FI_ECONNRESET || result == -FI_ECONNREFUSED);
        REQUIRE(fi_cq_read(a.cq, nullptr, 0) <= 0);
    }
    REQUIRE(next_of(c.cq, {a.cq}).error.err == 0);
    assert_memory_equal(got, "second", 6);
    const std::vector<std::byte> bytes = pattern(300000, 1);
    std::vector<std::byte> back(bytes.size());
    REQUIRE(fi_trecv(a.ep, back.data(), back.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr) == 0);
    REQUIRE(again([&] { return fi_tsend(c.ep, bytes.data(), bytes.size(), nullptr, c_to_a, 1, nullptr); },
                  {a.cq, c.cq}) == 0);
    REQUIRE(next_of(a.cq, {c.cq}).error.err == 0);
    REQUIRE(next_of(c.cq, {a.cq}).error.err == 0);
    REQUIRE(back == bytes);
    REQUIRE(fi_recv(a.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) ==
            0); // what the first had sent is still there
    REQUIRE(next_of(a.cq).told.len == 6);
}

// What is offered to one that is killed before it takes it.
void killed_before_it_takes(void **)
{
    for (const bool single_copy : {true, false}) {
        OwnDirectory directory;
        Other other(expose_and_read, {.single_copy = single_copy});
        Rdm a({.single_copy = single_copy});
        other.tell(a);
        const fi_addr_t to = a.insert(other.name);
        const std::vector<std::byte> bytes = pattern(4 << 20, 1);
        meet_and_stop(a, to, other);
        REQUIRE(fi_tsend(a.ep, bytes.data(), bytes.size(), nullptr, to, 1, &a) == 0);
        REQUIRE(no_entry(a.cq));
        other.kill_it();
        const Entry end = next_of(a.cq);
        assert_int_equal(end.error.err, FI_ECONNRESET);
        assert_ptr_equal(end.error.op_context, &a);
        ssize_t result;
        while ((result = fi_inject(a.ep, "hello", 5, to)) != -FI_ECONNREFUSED)
            REQUIRE(result == -FI_EAGAIN || result == -FI_ECONNRESET);
    }
}

// One that is killed with its long message half way: short ones that it had sent are still there.
void killed_while_it_sends(void **)
{
    for (const bool single_copy : {true, false}) {
        OwnDirectory directory;
        Other other(
            [](Rdm &me, fi_addr_t to, int socket) {
                const std::vector<std::byte> bytes = pattern(4 << 20, 1);
                REQUIRE(again([&] { return fi_inject(me.ep, "before", 6, to); }, {me.cq}) == 0);
                REQUIRE(again([&] { return fi_send(me.ep, bytes.data(), bytes.size(), nullptr, to, nullptr); },
                              {me.cq}) == 0);
                say(socket);
                do_nothing();
            },
            {.single_copy = single_copy});
        Rdm a({.single_copy = single_copy});
        other.tell(a);
        // It needs our word on its memory before it can offer some.
        pollfd waiting{other.socket, POLLIN, 0};
        while (poll(&waiting, 1, 0) == 0)
            REQUIRE(fi_cq_read(a.cq, nullptr, 0) <= 0);
        other.wait_for_word();
        other.kill_it();
        char small[8] = {};
        std::vector<std::byte> large(4 << 20);
        REQUIRE(fi_recv(a.ep, small, sizeof small, nullptr, FI_ADDR_UNSPEC, small) == 0);
        REQUIRE(fi_recv(a.ep, large.data(), large.size(), nullptr, FI_ADDR_UNSPEC, large.data()) == 0);
        const Entry first = next_of(a.cq);
        REQUIRE(first.error.err == 0 && first.told.op_context == small);
        const Entry second = next_of(a.cq);
        // What had begun ends in an error. What the dead one never could begin is none of ours: single copy is begun by
        // its offer.
        assert_int_equal(second.error.err, FI_ECONNRESET);
        assert_ptr_equal(second.error.op_context, large.data());
    }
}

// What is sent to one that was killed is lost until somebody has looked, and is told of as sent, as it was put where
// the peer would have read it. Whoever reads the queue of what is sent looks, and is told with the next one, long
// before the ring is full; and the next that has the port is found.
void told_by_the_next_send(void **)
{
    constexpr int kFewer = 3500; // than the ring holds
    for (const bool two_queues : {false, true}) {
        OwnDirectory directory;
        Other other([](Rdm &, fi_addr_t, int socket) {
            say(socket);
            do_nothing();
        });
        Rdm a({.two_queues = two_queues});
        other.tell(a);
        const fi_addr_t to = a.insert(other.name);
        REQUIRE(fi_send(a.ep, "x", 1, nullptr, to, nullptr) == 0);
        REQUIRE(next_of(a.tx_cq).error.err == 0);
        other.wait_for_word();
        other.kill_it();
        int sent = 0;
        ssize_t result;
        while ((result = fi_send(a.ep, "x", 1, nullptr, to, nullptr)) == 0) {
            REQUIRE(next_of(a.tx_cq).error.err == 0);
            REQUIRE(++sent < kFewer);
        }
        REQUIRE(result == -FI_ECONNREFUSED || result == -FI_ECONNRESET);
        const std::string port = std::to_string(ntohs(other.name.sin_port));
        Rdm c({.port = port.c_str()});
        char got = 0;
        REQUIRE(fi_recv(c.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        while ((result = fi_send(a.ep, "y", 1, nullptr, to, nullptr)) != 0)
            REQUIRE(result == -FI_EAGAIN);
        REQUIRE(next_of(c.cq, {a.cq}).error.err == 0 && got == 'y');
    }
}

// Operations on the memory of one that is killed.
void killed_target(void **)
{
    OwnDirectory directory;
    Other other(expose_and_read);
    Rdm a;
    other.tell(a);
    const fi_addr_t to = a.insert(other.name);
    std::uint64_t value = 1;
    meet_and_stop(a, to, other);
    REQUIRE(fi_read(a.ep, &value, 8, nullptr, to, 0, 1, &value) == 0);
    REQUIRE(fi_atomic(a.ep, &value, 1, nullptr, to, 0, 1, FI_UINT64, FI_SUM, &a) == 0);
    other.kill_it();
    assert_int_equal(next_of(a.cq).error.err, FI_ECONNRESET);
    assert_int_equal(next_of(a.cq).error.err, FI_ECONNRESET);
}

// The peer that stops costs the others nothing.
void stopped_peer(void **)
{
    OwnDirectory directory;
    Other other([](Rdm &, fi_addr_t, int socket) {
        say(socket);
        do_nothing();
    });
    Rdm a;
    Rdm b;
    other.tell(a);
    other.wait_for_word();
    REQUIRE(kill(other.pid, SIGSTOP) == 0);
    const fi_addr_t stopped = a.insert(other.name);
    const fi_addr_t to_b = a.insert(b.name);
    const std::vector<std::byte> block = pattern(8192, 2);
    ssize_t result = 0;
    while (result == 0)
        result = fi_send(a.ep, block.data(), block.size(), nullptr, stopped, nullptr);
    assert_int_equal(result, -FI_EAGAIN);
    std::vector<std::byte> got(block.size());
    for (int i = 0; i < 1000; ++i) {
        Entry entry;
        while (read_entry(a.cq, entry))
            REQUIRE(entry.error.err == 0);
        REQUIRE(fi_recv(b.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(again([&] { return fi_inject(a.ep, block.data(), 4096, to_b); }, {b.cq}) == 0);
        REQUIRE(next_of(b.cq).error.err == 0);
    }
    other.kill_it();
}

// A peer's closing, in order: what it sent before arrives.
void closed_after_sending(void **)
{
    OwnDirectory directory;
    Rdm b;
    char got[100][8] = {};
    for (auto &one : got)
        REQUIRE(fi_recv(b.ep, one, sizeof one, nullptr, FI_ADDR_UNSPEC, one) == 0);
    {
        Rdm a;
        const fi_addr_t to_b = a.insert(b.name);
        for (int i = 0; i < 100; ++i)
            REQUIRE(fi_inject(a.ep, &i, sizeof i, to_b) == 0);
    }
    for (int i = 0; i < 100; ++i) {
        REQUIRE(next_of(b.cq).told.op_context == got[i]);
        REQUIRE(std::memcmp(got[i], &i, sizeof i) == 0);
    }
}

rdm::Packet random_packet(Random &random, std::size_t length)
{
    rdm::Packet packet{};
    packet.op = static_cast<rdm::PacketOp>(random.below(14));
    packet.flags = static_cast<std::uint8_t>(random.below(10) == 0 ? random.below(256) : random.below(8));
    packet.error = static_cast<std::uint16_t>(random.below(3));
    packet.id = static_cast<std::uint32_t>(random.below(4));
    packet.tag = random.below(3);
    packet.size = random.below(3) == 0 ? ~std::uint64_t{0} >> random.below(40)
                  : random.below(2)    ? length
                                       : random.below(70000);
    return packet;
}

std::vector<std::byte> random_body(Random &random, std::size_t length)
{
    std::vector<std::byte> body(length);
    for (std::byte &byte : body)
        byte = static_cast<std::byte>(random.below(4) == 0 ? random.below(256) : 0);
    if (length >= 8)
        body[0] = static_cast<std::byte>(random.below(6)); // the count of a list
    return body;
}

// What a ring can say: random packets in a ring that was made as an endpoint makes it. None may do more than end that
// ring.
void lies(void **)
{
    OwnDirectory directory;
    Random random;
    Rdm b;
    Rdm honest;
    const fi_addr_t to_b = honest.insert(b.name);
    std::vector<std::byte> memory(4096);
    fid_mr *const mr = b.expose(memory.data(), memory.size(), 1);
    char buffer[256];
    for (int round = 0; round < 300; ++round) {
        local::ConnectionManager &manager = local::manager_of(*reinterpret_cast<ofi::Fabric *>(honest.fabric));
        int error = 0;
        const std::shared_ptr<local::Directory> names = manager.directory(&error);
        REQUIRE(names);
        bool met = false;
        ofi::Address source;
        ofi::Address target;
        REQUIRE(source.assign(&honest.name, sizeof honest.name) && target.assign(&b.name, sizeof b.name));
        source.set_port(static_cast<std::uint16_t>(40000 + round % 20));
        local::Outlet outlet(manager, *names, source, target, names->name_of(target.port(), local::NameKind::reliable),
                             false, met, nullptr);
        REQUIRE(outlet.open() == 0);
        local::Bell bell;
        const int packets = static_cast<int>(random.below(12)) + 1;
        for (int i = 0; i < packets; ++i) {
            const std::size_t length = random.below(2) ? random.below(200) : random.below(9000);
            const rdm::Packet packet = random_packet(random, length);
            const std::vector<std::byte> body = random_body(random, length);
            const std::size_t total = sizeof packet + length;
            std::byte *const place = outlet.claim_kept(total);
            if (place == nullptr)
                break;
            std::memcpy(place, &packet, sizeof packet);
            if (length != 0)
                std::memcpy(place + sizeof packet, body.data(), length);
            outlet.publish(total, random.below(2) != 0, 1, bell);
        }
        bell.ring();
        // The honest one is served all the same.
        const int number = round;
        REQUIRE(fi_trecv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, 4242, 0, buffer) == 0);
        REQUIRE(again([&] { return fi_tinject(honest.ep, &number, sizeof number, to_b, 4242); }, {b.cq}) == 0);
        for (std::uint64_t i = 0;; ++i) {
            REQUIRE(i < 100'000'000);
            Entry entry;
            if (read_entry(b.cq, entry) && entry.told.op_context == buffer && entry.error.err == 0)
                break;
        }
        REQUIRE(std::memcmp(buffer, &number, sizeof number) == 0);
        manager.progress(true);
        const std::lock_guard guard(manager.mutex());
        outlet.disconnect();
    }
    REQUIRE(fi_close(&mr->fid) == 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(another_has_the_port),
        cmocka_unit_test(killed_before_it_takes),
        cmocka_unit_test(killed_while_it_sends),
        cmocka_unit_test(killed_target),
        cmocka_unit_test(told_by_the_next_send),
        cmocka_unit_test(stopped_peer),
        cmocka_unit_test(closed_after_sending),
        cmocka_unit_test(lies),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
