// SPDX-License-Identifier: BSD-2-Clause
// FI_VMA_TELL_DROP: fi_sendmsg() says what became of a datagram that could not be placed.
#include "prov/vma/test/local/dgram_pair.hpp"

#include <csignal>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kTell = FI_VMA_TELL_DROP | FI_COMPLETION;

ssize_t send_told(Dgram &from, const void *bytes, std::size_t length, fi_addr_t to, std::uint64_t flags = kTell)
{
    const iovec iov{const_cast<void *>(bytes), length};
    fi_msg message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = to;
    message.context = &from;
    return fi_sendmsg(from.ep, &message, flags);
}

// Sends until the answer is another than `while_this`, for as long as a broken provider may take.
ssize_t first_other(Dgram &from, fi_addr_t to, ssize_t while_this)
{
    fi_cq_data_entry entry{};
    for (int i = 0; i < kPatience; ++i) {
        const ssize_t result = send_told(from, "x", 1, to);
        if (result != while_this)
            return result;
        static_cast<void>(fi_cq_sread(from.cq, &entry, 1, nullptr, 1));
    }
    return while_this;
}

void nobody_has_the_name(void **)
{
    OwnDirectory directory;
    Dgram a;
    const fi_addr_t to = a.insert(std::uint16_t{12321});
    for (std::uint64_t i = 1; i <= 3; ++i) {
        assert_int_equal(send_told(a, "x", 1, to), -FI_ECONNREFUSED);
        assert_int_equal(a.drops(FI_OPT_VMA_TX_DROPS), i);
    }
    assert_true(no_entry(a.cq));
    assert_int_equal(send_told(a, "x", 1, to, FI_COMPLETION), 0); // without the flag as ever
    assert_int_equal(next_entry(a.cq).flags, FI_MSG | FI_SEND);
    Dgram b("12321");
    assert_int_equal(first_other(a, to, -FI_ECONNREFUSED), 0);
    assert_ptr_equal(next_entry(a.cq).op_context, &a);
}

int warm(Dgram &from, fi_addr_t to, std::uint64_t length)
{
    const fi_vma_warm wanted = {to, 0, length};
    return fi_setopt(&from.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_WARM), &wanted, sizeof wanted);
}

// A ring is filled with warming in between, over its end and into the spill: what arrives is what was sent.
void warming_changes_nothing(void **)
{
    OwnDirectory directory;
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    Dgram b;
    const fi_addr_t to = a.insert(b.name);
    assert_int_equal(warm(a, to, 12), -FI_ENOTCONN); // nothing was sent yet
    assert_int_equal(warm(a, to + 100, 12), -FI_ENOTCONN);
    std::uint64_t sent = 0;
    std::uint64_t value = 0;
    for (std::uint64_t read = 0; read < 20000;) {
        for (int i = 0; i < 7000 && sent < 20000; ++i, ++sent) {
            REQUIRE(send_told(a, &sent, sizeof sent, to, FI_VMA_TELL_DROP) == 0);
            REQUIRE(warm(a, to, sent % 3 == 0 ? 12 : sent % 3 == 1 ? 1500 : UINT64_MAX) == 0);
        }
        for (; read < sent; ++read) {
            REQUIRE(fi_recv(b.ep, &value, sizeof value, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
            REQUIRE(next_entry(b.cq).len == sizeof value && value == read);
        }
    }
    assert_true(no_entry(b.cq));
    assert_int_equal(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_WARM), &value, 4), -FI_EINVAL);
}

void the_room_is_full(void **)
{
    OwnDirectory directory;
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    Dgram b;
    const fi_addr_t to = a.insert(b.name);
    std::uint64_t sent = 0;
    ssize_t result;
    while ((result = send_told(a, &sent, sizeof sent, to, FI_VMA_TELL_DROP)) == 0)
        ++sent;
    assert_int_equal(result, -FI_EAGAIN);
    assert_true(sent > 1000);
    for (int i = 0; i < 4; ++i)
        assert_int_equal(send_told(a, &sent, sizeof sent, to), -FI_EAGAIN);
    assert_true(no_entry(a.cq));
    assert_int_equal(a.drops(FI_OPT_VMA_TX_DROPS), 5);
    assert_int_equal(fi_cntr_read(a.sends), sent); // those that were lost are not among them
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < sent; ++i) {
        REQUIRE(fi_recv(b.ep, &value, sizeof value, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(next_entry(b.cq).len == sizeof value && value == i);
    }
    assert_int_equal(b.drops(FI_OPT_VMA_RX_DROPS), 5);
    assert_int_equal(send_told(a, &sent, sizeof sent, to), 0);
    assert_ptr_equal(next_entry(a.cq).op_context, &a);
}

// No room for the completion: nothing was sent, nothing is counted.
void the_queue_is_full(void **)
{
    OwnDirectory directory;
    Dgram a({.cq_size = 1});
    Dgram b;
    const fi_addr_t to = a.insert(b.name);
    assert_int_equal(send_told(a, "1", 1, to), 0);
    assert_int_equal(send_told(a, "2", 1, to), -FI_EAGAIN);
    assert_int_equal(a.drops(FI_OPT_VMA_TX_DROPS), 0);
    static_cast<void>(next_entry(a.cq));
    assert_int_equal(send_told(a, "3", 1, to), 0);
    char got[2] = {};
    for (char &byte : got) {
        REQUIRE(fi_recv(b.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        static_cast<void>(next_entry(b.cq));
    }
    assert_memory_equal(got, "13", 2);
}

// One that closes is told of by the next datagram, whatever the receiver's queue did with its ring.
void the_receiver_has_closed(void **)
{
    OwnDirectory directory;
    Dgram a;
    const fi_addr_t to = a.insert(std::uint16_t{12322});
    for (const bool reads : {false, true, true}) {
        Dgram b("12322");
        assert_int_equal(first_other(a, to, -FI_ECONNREFUSED), 0);
        if (reads) {
            char got = 0;
            REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
            static_cast<void>(next_entry(b.cq));
        }
        REQUIRE(fi_close(&b.ep->fid) == 0);
        b.ep = nullptr;
        // A ring that the receiver never took has only its socket's end to tell, which is looked for now and then.
        const ssize_t result = reads ? send_told(a, "x", 1, to) : first_other(a, to, 0);
        assert_int_equal(result, -FI_ECONNREFUSED);
    }
}

// Nobody reads an event queue, and the sender's queue tells it nothing either.
void the_receiver_was_killed(void **)
{
    OwnDirectory directory;
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    const pid_t pid = child([&] {
        Dgram b;
        char got = 0;
        REQUIRE(write(pair[1], &b.name, sizeof b.name) == sizeof b.name);
        REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        static_cast<void>(next_entry(b.cq));
        raise(SIGKILL);
    });
    sockaddr_in peer{};
    REQUIRE(read(pair[0], &peer, sizeof peer) == sizeof peer);
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    const fi_addr_t to = a.insert(peer);
    REQUIRE(send_told(a, "x", 1, to, FI_VMA_TELL_DROP) == 0);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ssize_t result = 0;
    const patience::Deadline deadline;
    while ((result = send_told(a, "x", 1, to, FI_VMA_TELL_DROP)) != -FI_ECONNREFUSED) {
        REQUIRE(result == 0 || result == -FI_EAGAIN);
        REQUIRE(!deadline.over());
    }
    close(pair[0]);
    close(pair[1]);
}

int meet(const Dgram &from, fi_addr_t to)
{
    return fi_setopt(&from.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_MEET), &to, sizeof to);
}

void say(int fd)
{
    REQUIRE(write(fd, "", 1) == 1);
}

void hear(int fd)
{
    char word = 0;
    REQUIRE(read(fd, &word, 1) == 1);
}

// The receiver finds in one look what was sent after it was met.
void look_once_when_told(int control)
{
    Dgram b;
    char got = 0;
    fi_cq_data_entry entry{};
    REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(write(control, &b.name, sizeof b.name) == sizeof b.name);
    hear(control);
    while (recv(control, &got, 1, MSG_DONTWAIT) < 0)
        REQUIRE(fi_cq_sread(b.cq, &entry, 1, nullptr, 1) == -FI_EAGAIN);
    say(control);
    hear(control);
    REQUIRE(fi_cq_read(b.cq, &entry, 1) == 1 && got == 'x');
}

void the_receiver_is_met_first(void **)
{
    OwnDirectory directory;
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    const pid_t pid = child([&] { look_once_when_told(pair[1]); });
    sockaddr_in peer{};
    REQUIRE(read(pair[0], &peer, sizeof peer) == sizeof peer);
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    const fi_addr_t to = a.insert(peer);
    for (int i = 0; i < 3; ++i)
        assert_int_equal(meet(a, to), -FI_EINPROGRESS); // it doesn't look yet
    say(pair[0]);
    int result = 0;
    for (const patience::Deadline deadline; (result = meet(a, to)) != 0;) {
        REQUIRE(result == -FI_EINPROGRESS && !deadline.over());
        sched_yield();
    }
    say(pair[0]); // that it shall look no more
    hear(pair[0]);
    REQUIRE(send_told(a, "x", 1, to, FI_VMA_TRY) == 0);
    say(pair[0]);
    ends_well(pid);
    close(pair[0]);
    close(pair[1]);
}

void who_cannot_be_met(void **)
{
    OwnDirectory directory;
    Dgram a;
    const fi_addr_t to = a.insert(std::uint16_t{20323});
    assert_int_equal(meet(a, to), -FI_ECONNREFUSED);
    assert_int_equal(meet(a, to + 1), -FI_EINVAL);
    assert_int_equal(meet(a, FI_ADDR_UNSPEC), -FI_EINVAL);
    assert_int_equal(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_MEET), &to, 4), -FI_EINVAL);
    assert_int_equal(a.drops(FI_OPT_VMA_TX_DROPS), 0);
    Dgram own;
    const fi_addr_t to_own = a.insert(own.name);
    assert_int_equal(meet(a, to_own), -FI_EINPROGRESS);
    int result = 0;
    for (const patience::Deadline deadline; (result = meet(a, to_own)) != 0;) {
        REQUIRE(result == -FI_EINPROGRESS && !deadline.over());
        own.look();
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nobody_has_the_name),       cmocka_unit_test(the_room_is_full),
        cmocka_unit_test(warming_changes_nothing),   cmocka_unit_test(the_queue_is_full),
        cmocka_unit_test(the_receiver_has_closed),   cmocka_unit_test(the_receiver_was_killed),
        cmocka_unit_test(the_receiver_is_met_first), cmocka_unit_test(who_cannot_be_met),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
