// SPDX-License-Identifier: BSD-2-Clause
// Datagram endpoints by their less common calls: fi_sendmsg() and fi_recvmsg() with their flags, counters,
// FI_SOURCE_ERR.
#include "prov/vma/test/local/dgram_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

ssize_t send_message(const Dgram &from, fi_addr_t to, const iovec *iov, std::size_t count, std::uint64_t flags,
                     void *context, std::uint64_t data = 0)
{
    fi_msg message{};
    message.msg_iov = iov;
    message.iov_count = count;
    message.addr = to;
    message.context = context;
    message.data = data;
    return fi_sendmsg(from.ep, &message, flags);
}

ssize_t receive_message(const Dgram &at, const iovec *iov, std::size_t count, std::uint64_t flags, void *context)
{
    fi_msg message{};
    message.msg_iov = iov;
    message.iov_count = count;
    message.addr = FI_ADDR_UNSPEC;
    message.context = context;
    return fi_recvmsg(at.ep, &message, flags);
}

void messages_in_pieces(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b;
    const fi_addr_t to = a.insert(b.name);
    std::vector<char> large(1000, 'l');
    char parts[3][700] = {};
    const iovec out[] = {{const_cast<char *>("head"), 4}, {nullptr, 0}, {large.data(), large.size()}};
    const iovec in[] = {{parts[0], 2}, {parts[1], 700}, {parts[2], 700}};
    REQUIRE(receive_message(b, in, 3, 0, parts) == 0);
    REQUIRE(send_message(a, to, out, 3, FI_REMOTE_CQ_DATA, &a, 99) == 0);
    const fi_cq_data_entry got = next_entry(b.cq);
    assert_ptr_equal(got.op_context, parts);
    assert_ptr_equal(got.buf, parts[0]);
    assert_int_equal(got.len, 1004);
    assert_int_equal(got.flags, FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA);
    assert_int_equal(got.data, 99);
    assert_memory_equal(parts[0], "he", 2);
    assert_memory_equal(parts[1], "adlll", 5);
    assert_int_equal(parts[2][1004 - 702 - 1], 'l');
    assert_int_equal(parts[2][1004 - 702], 0);
    const fi_cq_data_entry sent = next_entry(a.cq);
    assert_ptr_equal(sent.op_context, &a);
    assert_int_equal(sent.len, 1004);
}

void impossible_messages(void **)
{
    OwnDirectory directory;
    Dgram a;
    const fi_addr_t to = a.insert(a.name);
    char byte = 0;
    const iovec many[] = {{&byte, 1}, {&byte, 1}, {&byte, 1}, {&byte, 1}, {&byte, 1}};
    const iovec endless[] = {{&byte, SIZE_MAX}, {&byte, 2}};
    const iovec large[] = {{&byte, 65508}};
    assert_int_equal(send_message(a, to, many, 5, 0, nullptr), -FI_EINVAL);
    assert_int_equal(send_message(a, to, nullptr, 1, 0, nullptr), -FI_EINVAL);
    assert_int_equal(send_message(a, to, endless, 2, 0, nullptr), -FI_EMSGSIZE);
    assert_int_equal(send_message(a, to, large, 1, 0, nullptr), -FI_EMSGSIZE);
    assert_int_equal(receive_message(a, many, 5, 0, nullptr), -FI_EINVAL);
    assert_int_equal(receive_message(a, nullptr, 1, 0, nullptr), -FI_EINVAL);
    assert_int_equal(receive_message(a, endless, 2, 0, nullptr), -FI_EINVAL);
    assert_int_equal(fi_cntr_read(a.sends), 0);
    assert_true(no_entry(a.cq));
}

// With FI_SELECTIVE_COMPLETION only what asks for it has a completion; the counters count all.
void completions_on_request(void **)
{
    OwnDirectory directory;
    Dgram a("0", FI_SELECTIVE_COMPLETION);
    Dgram b("0", FI_SELECTIVE_COMPLETION);
    const fi_addr_t to = a.insert(b.name);
    char got[4] = {};
    for (int i = 0; i < 4; ++i) {
        const iovec in{&got[i], 1};
        const iovec out{const_cast<char *>(&"abcd"[i]), 1};
        const std::uint64_t flags = i % 2 ? FI_COMPLETION : 0;
        REQUIRE(receive_message(b, &in, 1, flags, &got[i]) == 0);
        REQUIRE(send_message(a, to, &out, 1, flags, &got[i]) == 0);
    }
    for (const fid_cq *cq : {a.cq, b.cq}) {
        assert_ptr_equal(next_entry(const_cast<fid_cq *>(cq)).op_context, &got[1]);
        assert_ptr_equal(next_entry(const_cast<fid_cq *>(cq)).op_context, &got[3]);
        assert_true(no_entry(const_cast<fid_cq *>(cq)));
    }
    assert_memory_equal(got, "abcd", 4);
    assert_int_equal(fi_cntr_read(a.sends), 4);
    assert_int_equal(fi_cntr_read(b.receives), 4);
    assert_int_equal(fi_cntr_read(b.sends) + fi_cntr_read(a.receives), 0);
}

// Nothing but counters is bound: waiting for one makes the progress, and wakes for a sender that is new.
void counters_alone(void **)
{
    OwnDirectory directory;
    Dgram b({.queue = false});
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    constexpr std::uint64_t kSent = 100;
    const pid_t pid = child([&] {
        Dgram a({.queue = false});
        const fi_addr_t to = a.insert(b.name);
        for (std::uint64_t i = 0; i < kSent; ++i)
            REQUIRE(fi_send(a.ep, &i, sizeof i, nullptr, to, nullptr) == 0);
        REQUIRE(fi_cntr_wait(a.sends, kSent, kPatience) == 0);
        // More than a queue has room for: what nobody reads fills it, unless who counts makes room.
        for (std::uint64_t i = kSent; i < 5000;) {
            const ssize_t result = fi_send(a.ep, &i, sizeof i, nullptr, to, nullptr);
            REQUIRE(result == 0 || result == -FI_EAGAIN);
            i += result == 0 ? 1 : 0;
            REQUIRE(result == 0 || fi_cntr_read(a.sends) == i);
        }
        char token = 0;
        REQUIRE(read(pair[1], &token, 1) == 1);
    });
    std::uint64_t got[kSent] = {};
    for (std::uint64_t &place : got)
        REQUIRE(fi_recv(b.ep, &place, sizeof place, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    assert_int_equal(fi_cntr_wait(b.receives, kSent, kPatience), 0);
    for (std::uint64_t i = 0; i < kSent; ++i)
        REQUIRE(got[i] == i);
    REQUIRE(write(pair[0], "", 1) == 1);
    ends_well(pid);
    close(pair[0]);
    close(pair[1]);
}

void errors_are_counted(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b({.queue = false});
    char got[2];
    REQUIRE(fi_recv(b.ep, got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(fi_inject(a.ep, "xy", 2, a.insert(b.name)) == 0);
    assert_int_equal(fi_cntr_wait(b.receives, 1, kPatience), -FI_EAVAIL);
    assert_int_equal(fi_cntr_readerr(b.receives), 1);
    assert_int_equal(fi_cntr_read(b.receives), 0);
}

// ---- FI_SOURCE_ERR --------------------------------------------------------------------------------------------------

bool is_address(const void *data, std::size_t length, const sockaddr_in &address)
{
    sockaddr_in said{};
    if (length != sizeof said)
        return false;
    std::memcpy(&said, data, sizeof said);
    return said.sin_family == AF_INET && said.sin_port == address.sin_port &&
           said.sin_addr.s_addr == address.sin_addr.s_addr;
}

fi_cq_err_entry read_error(fid_cq *cq, void *buffer = nullptr, std::size_t size = 0)
{
    fi_cq_data_entry entry{};
    for (const patience::Deadline deadline; fi_cq_read(cq, &entry, 1) != -FI_EAVAIL;)
        REQUIRE(!deadline.over());
    fi_cq_err_entry error{};
    error.err_data = buffer;
    error.err_data_size = size;
    REQUIRE(fi_cq_readerr(cq, &error, 0) == 1);
    return error;
}

// The address of a stranger comes with the datagram; inserted, it is a stranger no more, and removed it is one again.
void strangers_are_told_of(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b({.bind_flags = FI_SELECTIVE_COMPLETION, .more_caps = FI_SOURCE_ERR});
    const fi_addr_t to = a.insert(b.name);
    char got[8] = {};
    REQUIRE(fi_recv(b.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, got) == 0); // no completion was asked for
    REQUIRE(fi_injectdata(a.ep, "hello", 5, 7, to) == 0);
    const fi_cq_err_entry first = read_error(b.cq);
    assert_int_equal(first.err, FI_EADDRNOTAVAIL);
    assert_ptr_equal(first.op_context, got);
    assert_int_equal(first.len, 5);
    assert_int_equal(first.olen, 0);
    assert_int_equal(first.flags, FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA);
    assert_int_equal(first.data, 7);
    assert_memory_equal(got, "hello", 5);
    assert_true(is_address(first.err_data, first.err_data_size, a.name));
    assert_int_equal(fi_cntr_read(b.receives), 1);
    assert_int_equal(fi_cntr_readerr(b.receives), 0);

    fi_addr_t place = FI_ADDR_NOTAVAIL;
    REQUIRE(fi_av_insert(b.av, first.err_data, 1, &place, 0, nullptr) == 1);
    const iovec in{got, sizeof got};
    REQUIRE(receive_message(b, &in, 1, FI_COMPLETION, got) == 0);
    REQUIRE(fi_inject(a.ep, "known", 5, to) == 0);
    fi_cq_data_entry entry{};
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    ssize_t result;
    while ((result = fi_cq_readfrom(b.cq, &entry, 1, &source)) == -FI_EAGAIN) {
    }
    assert_int_equal(result, 1);
    assert_int_equal(source, place);

    REQUIRE(fi_av_remove(b.av, &place, 1, 0) == 0);
    REQUIRE(fi_recv(b.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, got) == 0);
    REQUIRE(fi_inject(a.ep, "again", 5, to) == 0);
    assert_int_equal(read_error(b.cq).err, FI_EADDRNOTAVAIL);
}

// Of a domain with strings for addresses (FI_ADDR_STR) he is told of by a string, which the vector takes.
void strangers_are_told_of_by_strings(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b({.more_caps = FI_SOURCE_ERR, .addr_format = FI_ADDR_STR});
    const std::string name = "fi_sockaddr_in://127.0.0.1:" + std::to_string(ntohs(a.name.sin_port));
    for (const std::size_t room : {std::size_t{0}, std::size_t{12}}) {
        char got[8] = {};
        char own[12] = {};
        REQUIRE(fi_recv(b.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, got) == 0);
        REQUIRE(fi_inject(a.ep, "hello", 5, a.insert(b.name)) == 0);
        const fi_cq_err_entry error = read_error(b.cq, room != 0 ? own : nullptr, room);
        assert_int_equal(error.err, FI_EADDRNOTAVAIL);
        if (room != 0) {
            assert_int_equal(error.err_data_size, room);
            assert_string_equal(own, name.substr(0, room - 1).c_str());
            continue;
        }
        assert_int_equal(error.err_data_size, name.size() + 1);
        assert_string_equal(static_cast<const char *>(error.err_data), name.c_str());
    }
    fi_addr_t place = FI_ADDR_NOTAVAIL;
    const char *const text = name.c_str();
    assert_int_equal(fi_av_insert(b.av, &text, 1, &place, 0, nullptr), 1);
}

// Several wait in the queue; each has its own sender's address, into the program's buffer or ours.
void strangers_are_not_mixed_up(void **)
{
    OwnDirectory directory;
    Dgram b({.more_caps = FI_SOURCE_ERR});
    Dgram senders[3];
    char got[4] = {};
    for (int i = 0; i < 4; ++i)
        REQUIRE(fi_recv(b.ep, &got[i], 1, nullptr, FI_ADDR_UNSPEC, &got[i]) == 0);
    REQUIRE(fi_inject(senders[0].ep, "cut", 3, senders[0].insert(b.name)) == 0);
    const fi_cq_err_entry cut = read_error(b.cq); // too long: that is the error, with nothing beside
    assert_int_equal(cut.err, FI_ETRUNC);
    assert_int_equal(cut.err_data_size, 0);
    for (int i = 0; i < 3; ++i) {
        const char name = static_cast<char>('0' + i);
        REQUIRE(fi_inject(senders[i].ep, &name, 1, senders[i].insert(b.name)) == 0);
    }
    while (fi_cntr_read(b.receives) < 3) { // all are in the queue
    }
    for (int i = 1; i < 4; ++i) {
        sockaddr_in6 space{};
        std::memset(&space, 0x5a, sizeof space);
        const std::size_t sizes[] = {0, sizeof space, 4};
        const fi_cq_err_entry error = read_error(b.cq, &space, sizes[i - 1]);
        assert_int_equal(error.err, FI_EADDRNOTAVAIL);
        assert_true((error.err_data == &space) == (i != 1));
        const sockaddr_in &from = senders[*static_cast<char *>(error.op_context) - '0'].name;
        if (i == 3) { // as much as fits, and no more
            assert_int_equal(error.err_data_size, 4);
            assert_memory_equal(&space, &from, 4);
            assert_int_equal(reinterpret_cast<unsigned char *>(&space)[4], 0x5a);
        } else {
            assert_true(is_address(error.err_data, error.err_data_size, from));
        }
    }
    assert_true(no_entry(b.cq));
}

// The queue outlives the endpoint, and what that left in it goes with it, of each kind.
void strangers_go_with_their_endpoint(void **)
{
    OwnDirectory directory;
    Dgram a;
    Dgram b({.more_caps = FI_SOURCE_ERR});
    const fi_addr_t to = a.insert(b.name);
    char got = 0;
    REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, &b) == 0);
    REQUIRE(fi_inject(a.ep, "1", 1, to) == 0);
    while (fi_cntr_read(b.receives) < 1) {
    }
    REQUIRE(fi_close(&b.ep->fid) == 0);
    assert_true(no_entry(b.cq));
    sockaddr_in name{};
    std::size_t length = sizeof name;
    REQUIRE(fi_endpoint(b.domain, b.info.get(), &b.ep, nullptr) == 0);
    REQUIRE(fi_ep_bind(b.ep, &b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
    REQUIRE(fi_ep_bind(b.ep, &b.av->fid, 0) == 0);
    REQUIRE(fi_enable(b.ep) == 0);
    REQUIRE(fi_getname(&b.ep->fid, &name, &length) == 0);
    REQUIRE(fi_recv(b.ep, &got, 1, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
    Dgram other;
    REQUIRE(fi_inject(other.ep, "2", 1, other.insert(name)) == 0);
    const fi_cq_err_entry error = read_error(b.cq);
    assert_true(is_address(error.err_data, error.err_data_size, other.name));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(messages_in_pieces),
        cmocka_unit_test(impossible_messages),
        cmocka_unit_test(completions_on_request),
        cmocka_unit_test(counters_alone),
        cmocka_unit_test(errors_are_counted),
        cmocka_unit_test(strangers_are_told_of),
        cmocka_unit_test(strangers_are_told_of_by_strings),
        cmocka_unit_test(strangers_are_not_mixed_up),
        cmocka_unit_test(strangers_go_with_their_endpoint),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
