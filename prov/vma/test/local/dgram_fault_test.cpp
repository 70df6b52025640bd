// SPDX-License-Identifier: BSD-2-Clause
// Datagrams and the dead, other network namespaces, and peers that write what they should not.
#include "prov/vma/test/local/dgram_pair.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "local/cm/fdmsg.hpp"
#include "local/ring/memory.hpp"

using namespace vma;
using namespace vma::test;
using local::RingMemory;

namespace {

// A datagram: its number, then bytes that follow from number and length.
std::size_t make_numbered(std::uint64_t number, std::size_t length, unsigned char *out)
{
    std::memcpy(out, &number, sizeof number);
    for (std::size_t i = sizeof number; i < length; ++i)
        out[i] = static_cast<unsigned char>(number + length + i);
    return length;
}

bool is_whole(const unsigned char *data, std::size_t length)
{
    std::uint64_t number = 0;
    std::memcpy(&number, data, sizeof number);
    for (std::size_t i = sizeof number; i < length; ++i) {
        if (data[i] != static_cast<unsigned char>(number + length + i))
            return false;
    }
    return length >= sizeof number;
}

[[noreturn]] void send_for_ever(std::uint16_t port, std::uint64_t seed)
{
    Random random(seed);
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    const fi_addr_t to = a.insert(port);
    std::vector<unsigned char> data(65507);
    for (std::uint64_t i = 0;; ++i) {
        const std::size_t length = 8 + random.below(random.below(4) == 0 ? 65500 : 200);
        make_numbered(i, length, data.data());
        REQUIRE(fi_send(a.ep, data.data(), length, nullptr, to, nullptr) == 0);
    }
}

std::uint16_t port_of(const Dgram &endpoint)
{
    return ntohs(endpoint.name.sin_port);
}

// Killed at some point while it writes: what came is whole and in order, and the next sender is heard.
void a_killed_sender_harms_nobody(void **)
{
    OwnDirectory directory;
    Random random;
    Dgram b;
    std::vector<unsigned char> buffer(65536);
    for (int round = 0; round < 30; ++round) {
        const std::uint64_t seed = random();
        const pid_t pid = child([&] { send_for_ever(port_of(b), seed); });
        const std::uint64_t until = 1 + random.below(2000);
        std::uint64_t last = 0;
        for (std::uint64_t i = 0; i < until; ++i) {
            REQUIRE(fi_recv(b.ep, buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
            const fi_cq_data_entry entry = next_entry(b.cq);
            REQUIRE(is_whole(buffer.data(), entry.len));
            std::uint64_t number = 0;
            std::memcpy(&number, buffer.data(), sizeof number);
            REQUIRE(i == 0 || number > last);
            last = number;
        }
        REQUIRE(kill(pid, SIGKILL) == 0);
        REQUIRE(waitpid(pid, nullptr, 0) == pid);
        // What is left in its ring, to the end.
        fi_cq_data_entry entry{};
        for (ssize_t got = 1; got == 1;) {
            REQUIRE(fi_recv(b.ep, buffer.data(), buffer.size(), nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
            got = fi_cq_sread(b.cq, &entry, 1, nullptr, 0);
            REQUIRE(got != 1 || is_whole(buffer.data(), entry.len));
            if (got != 1)
                REQUIRE(fi_cancel(&b.ep->fid, nullptr) == 0 && next_error(b.cq).err == FI_ECANCELED);
        }
    }
}

// Receives until it is killed; tells of the first.
[[noreturn]] void take_for_ever(const char *port, int ready)
{
    Dgram b(port);
    char buffer[8];
    bool first = true;
    for (;;) {
        REQUIRE(fi_recv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        fi_cq_data_entry entry{};
        REQUIRE(fi_cq_sread(b.cq, &entry, 1, nullptr, -1) == 1);
        if (first)
            REQUIRE(write(ready, "r", 1) == 1);
        first = false;
    }
}

// The name of a killed receiver is another's, and the sender finds it by itself.
void a_killed_receiver_is_replaced(void **)
{
    OwnDirectory directory;
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    const fi_addr_t to = a.insert(std::uint16_t{12321});
    for (int round = 0; round < 5; ++round) {
        int ready[2];
        REQUIRE(pipe2(ready, O_NONBLOCK) == 0);
        const pid_t pid = child([&] { take_for_ever("12321", ready[1]); });
        char token = 0;
        for (const patience::Deadline deadline; read(ready[0], &token, 1) != 1;) {
            REQUIRE(fi_inject(a.ep, "x", 1, to) == 0);
            a.look();
            REQUIRE(!deadline.over());
        }
        REQUIRE(kill(pid, SIGKILL) == 0);
        REQUIRE(waitpid(pid, nullptr, 0) == pid);
        close(ready[0]);
        close(ready[1]);
    }
}

bool may_make_network()
{
    int status = 0;
    const pid_t pid = child([] { _exit(unshare(CLONE_NEWNET) == 0 ? 0 : 77); });
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return status == 0;
}

// The same port in two network namespaces: two endpoints, and nothing goes across.
void namespaces_never_meet(void **)
{
    if (!may_make_network()) // asked first: what there is by now would not be freed
        UNIT_SKIP("no right to make a network namespace");
    OwnDirectory directory;
    Dgram here("12400");
    char buffer = 0;
    REQUIRE(fi_recv(here.ep, &buffer, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    const pid_t pid = child([] {
        REQUIRE(unshare(CLONE_NEWNET) == 0);
        Dgram there("12400");
        Dgram sender;
        char got = 0;
        REQUIRE(fi_recv(there.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(fi_inject(sender.ep, "t", 1, sender.insert(there.name)) == 0);
        REQUIRE(next_entry(there.cq).len == 1 && got == 't');
    });
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
    for (int i = 0; i < 3000; ++i)
        assert_true(fi_cq_read(here.cq, nullptr, 0) == -FI_EAGAIN);
    assert_int_equal(buffer, 0);
}

// A sender that is none of ours: it speaks the protocol of rings and then writes what it likes.
struct Hostile {
    core::UniqueFd socket;
    local::SharedMemory memory;
    RingMemory *ring = nullptr;

    explicit Hostile(const std::string &directory, std::uint16_t port, std::size_t size = sizeof(RingMemory))
    {
        socket = core::make_fd([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); });
        struct stat space {
        };
        REQUIRE(stat("/proc/thread-self/ns/net", &space) == 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%lu-d%u", directory.c_str(),
                      static_cast<unsigned long>(space.st_ino), unsigned{port});
        REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
        REQUIRE(local::create_shared("hostile", size, memory) == 0);
        ring = reinterpret_cast<RingMemory *>(memory.mapping.data());
    }
    void greet(const local::RingGreeting &greeting)
    {
        const int fd = memory.fd.get();
        REQUIRE(local::send_packet(socket.get(), &greeting, sizeof greeting, {&fd, 1}));
    }
    void greet(const sockaddr_in &to)
    {
        local::RingGreeting greeting{};
        greeting.magic = local::kGreetingMagic;
        greeting.ring_size = sizeof(RingMemory);
        std::memcpy(&greeting.source, &to, sizeof to);
        std::memcpy(&greeting.destination, &to, sizeof to);
        greet(greeting);
    }
    // The receiver has given it up.
    bool is_cut(Dgram &receiver)
    {
        char answer[64];
        for (int i = 0; i < 1'000'000; ++i) {
            receiver.look();
            if (recv(socket.get(), answer, sizeof answer, MSG_DONTWAIT) == 0)
                return true;
        }
        return false;
    }
};

void still_hears(Dgram &b)
{
    Dgram a;
    char buffer[16] = {};
    REQUIRE(fi_recv(b.ep, buffer, sizeof buffer, nullptr, FI_ADDR_UNSPEC, &buffer) == 0);
    REQUIRE(fi_inject(a.ep, "well", 4, a.insert(b.name)) == 0);
    for (;;) { // what the hostile wrote may come before
        const fi_cq_data_entry entry = next_entry(b.cq);
        if (entry.op_context == &buffer)
            break;
    }
}

void a_hostile_ring_is_cut(void **)
{
    OwnDirectory directory;
    Dgram b;
    const std::uint64_t lies[] = {
        1,                                               // no record at all
        local::kRecordValid | (local::kMaxDatagram + 1), // too long
        local::kRecordValid | 0xffffffff,                // far too long
        local::kRecordValid | UINT64_C(1) << 63,         // unknown flags
        ~UINT64_C(0),
    };
    for (const std::uint64_t lie : lies) {
        Hostile peer(directory.path(), port_of(b));
        reinterpret_cast<local::Record *>(peer.ring->data)->word.store(lie);
        peer.greet(b.name);
        assert_true(peer.is_cut(b));
    }
    still_hears(b);
}

// Random words at all the places of headers, while the receiver reads: it goes on or cuts, and touches nothing else.
void random_rings(void **)
{
    OwnDirectory directory;
    Random random;
    Dgram b;
    std::vector<unsigned char> guard(70000, 0xa5);
    unsigned char *const buffer = guard.data() + 1000;
    for (int round = 0; round < 40; ++round) {
        Hostile peer(directory.path(), port_of(b));
        for (std::size_t at = 0; at < local::kRingBytes; at += local::kRecordAlign) {
            const std::uint64_t flags = random.below(8) == 0 ? random() << 32 : local::kRecordValid;
            const std::uint64_t wrap = random.below(16) == 0   ? local::kRecordWrap
                                       : random.below(64) == 0 ? local::kRecordTurn
                                                               : 0;
            const std::uint64_t length = random.below(random.below(64) == 0 ? UINT32_MAX : 2000);
            reinterpret_cast<local::Record *>(peer.ring->data + at)->word.store(flags | wrap | length);
        }
        peer.greet(b.name);
        for (int i = 0; i < 3000; ++i) {
            const ssize_t posted = fi_recv(b.ep, buffer, 1000, nullptr, FI_ADDR_UNSPEC, nullptr);
            REQUIRE(posted == 0 || posted == -FI_EAGAIN);
            fi_cq_data_entry entry{};
            if (fi_cq_read(b.cq, &entry, 1) == -FI_EAVAIL)
                REQUIRE(next_error(b.cq).len <= 1000);
        }
    }
    for (std::size_t i = 0; i < guard.size(); ++i)
        REQUIRE((i >= 1000 && i < 2000) || guard[i] == 0xa5);
}

void malformed_greetings(void **)
{
    OwnDirectory directory;
    Dgram b;
    local::RingGreeting good{};
    good.magic = local::kGreetingMagic;
    good.ring_size = sizeof(RingMemory);
    std::memcpy(&good.source, &b.name, sizeof b.name);
    std::memcpy(&good.destination, &b.name, sizeof b.name);
    for (int kind = 0; kind < 6; ++kind) {
        Hostile peer(directory.path(), port_of(b), kind == 0 ? 4096 : sizeof(RingMemory));
        local::RingGreeting greeting = good;
        greeting.magic += kind == 1;
        greeting.ring_size += kind == 2 ? 4096 : 0;
        greeting.source.sin6_family = kind == 3 ? AF_UNIX : greeting.source.sin6_family;
        greeting.destination.sin6_family = kind == 4 ? AF_UNSPEC : greeting.destination.sin6_family;
        greeting.is_group = kind == 5; // of which it is no member
        peer.greet(greeting);
        assert_true(peer.is_cut(b));
    }
    still_hears(b);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_sender_harms_nobody),
        cmocka_unit_test(a_killed_receiver_is_replaced),
        cmocka_unit_test(namespaces_never_meet),
        cmocka_unit_test(a_hostile_ring_is_cut),
        cmocka_unit_test(random_rings),
        cmocka_unit_test(malformed_greetings),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
