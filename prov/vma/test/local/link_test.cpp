// SPDX-License-Identifier: BSD-2-Clause
// Links whose other end breaks every rule there is: nothing it sends may do more than end its own link.
#include "prov/vma/test/local/raw_link.hpp"

#include <functional>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <vector>

#include "ofi/info/attr.hpp"

using namespace vma;
using namespace vma::test;

namespace {

void malformed_packets(void **)
{
    Victim victim;
    const LinkMessage good = message(MessageType::hello);
    const std::size_t lengths[] = {1, sizeof(good) - 1, sizeof(good) + 1, 60000};
    std::vector<char> bytes(60000);
    std::memcpy(bytes.data(), &good, sizeof(good));
    for (const std::size_t length : lengths) {
        const Raw raw = victim.connect();
        assert_int_equal(raw.send_bytes(bytes.data(), length), length);
        victim.expect_end(raw);
    }
    const std::function<void(LinkMessage &)> faults[] = {
        [](LinkMessage &m) { m.magic = 7; },
        [](LinkMessage &m) { ++m.version; },
        [](LinkMessage &m) { m.type = MessageType{}; },
        [](LinkMessage &m) { m.type = static_cast<MessageType>(7); },
        [](LinkMessage &m) { m.type = MessageType::shutdown; }, // no greeting
        [](LinkMessage &m) { m.data_length = ofi::kCmDataSize + 1; },
        [](LinkMessage &m) { m.data_length = UINT32_MAX; },
    };
    for (const auto &fault : faults) {
        const Raw raw = victim.connect();
        LinkMessage bad = good;
        fault(bad);
        raw.send(bad);
        victim.expect_end(raw);
    }
    victim.expect_alive();
}

void messages_out_of_place(void **)
{
    Victim victim;
    const LinkMessage requests[] = {
        message(MessageType::hello), message(MessageType::accept), message(MessageType::reject),
        message(MessageType::request), // without addresses
    };
    for (const LinkMessage &bad : requests) {
        const Raw raw = victim.connect();
        raw.send(message(MessageType::hello));
        raw.send(bad, local::carries_offer(bad.type) ? unsigned{local::kOfferFdCount} : 0U);
        victim.expect_end(raw);
    }
    victim.expect_alive();
}

void wrong_numbers_of_descriptors(void **)
{
    Victim victim;
    const int before = open_descriptors();
    for (const unsigned count : {0U, 1U, unsigned{local::kOfferFdCount} - 1, unsigned{local::kOfferFdCount} + 1, 16U}) {
        const Raw raw = victim.connect();
        raw.send(message(MessageType::hello));
        raw.send(request(victim.address), count);
        victim.expect_end(raw);
    }
    for (const auto &[brings, count] : {std::pair{local::kBringsAll, unsigned{local::kOfferFdCount}},
                                        {local::kBringsAll + 1, local::kLinkFdCount},
                                        {0U, 3U},
                                        {local::kBringsDoorbell, 3U}}) {
        const Raw raw = victim.connect();
        LinkMessage asked = request(victim.address);
        asked.brings = brings;
        raw.send(message(MessageType::hello));
        raw.send(asked, count);
        victim.expect_end(raw);
    }
    {
        const Raw raw = victim.connect();
        LinkMessage over = message(MessageType::shutdown);
        over.brings = local::kBringsVoucher;
        raw.send(message(MessageType::hello));
        raw.send(over);
        victim.expect_end(raw);
    }
    {
        const Raw raw = victim.connect();
        raw.send(message(MessageType::hello), 3);
        victim.expect_end(raw);
    }
    assert_int_equal(open_descriptors(), before);
    victim.expect_alive();
}

void a_number_used_twice(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    raw.send(request(victim.address, 5), local::kOfferFdCount);
    raw.send(request(victim.address, 5), local::kOfferFdCount);
    const Event asked = victim.net.wait();
    assert_int_equal(asked.event, FI_CONNREQ);
    assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
    assert_true(raw.receive().type == MessageType::hello);
    assert_memory_equal(&kNothing, &static_cast<const LinkMessage &>(raw.receive()), sizeof(kNothing));
    // What it asked for before is void.
    fid_ep *ep = victim.net.endpoint(asked.info.get());
    assert_int_equal(fi_accept(ep, nullptr, 0), -FI_ECONNABORTED);
    assert_int_equal(fi_close(&ep->fid), 0);
}

void late_messages_are_no_fault(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    raw.send(message(MessageType::shutdown, 77));
    assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
    assert_true(raw.receive().type == MessageType::hello);
    assert_true(raw.is_empty());
}

// An offer that makes no sense: the program's fi_accept fails, the peer is told.
void an_offer_that_is_nonsense(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    LinkMessage asked = request(victim.address);
    asked.offer.version = 12345;
    asked.offer.segment_size = UINT64_MAX;
    asked.offer.bounce_offset = UINT64_MAX - 10;
    raw.send(asked, local::kOfferFdCount);
    const Event event = victim.net.wait();
    assert_int_equal(event.event, FI_CONNREQ);
    fid_ep *ep = victim.net.endpoint(event.info.get());
    assert_true(fi_accept(ep, nullptr, 0) < 0);
    assert_int_equal(fi_close(&ep->fid), 0);
    assert_true(raw.receive().type == MessageType::hello);
    const LinkMessage answer = raw.receive();
    assert_true(answer.type == MessageType::reject && answer.reason == RejectReason::protocol);
}

// Its link is cut off, of which it reads the end once it reads.
void one_that_asks_and_never_reads(void **)
{
    Victim victim;
    int backlog = 1;
    assert_int_equal(fi_control(&victim.pep->fid, FI_BACKLOG, &backlog), 0);
    const Raw raw = victim.connect();
    const int before = open_descriptors();
    raw.send(message(MessageType::hello));
    ofi::Address nobody = victim.address;
    nobody.set_port(1);
    ssize_t sent = 0;
    for (std::uint32_t i = 1; i < 30000 && sent >= 0; ++i) {
        const LinkMessage asked = request(nobody, i);
        sent = raw.send_bytes(&asked, sizeof(asked), local::kOfferFdCount);
        victim.net.poll();
    }
    assert_true(sent < 0 && errno == EPIPE);
    victim.net.poll();
    assert_int_equal(open_descriptors(), before);
    assert_true(raw.receive().type == MessageType::hello);
    LinkMessage got;
    while ((got = raw.receive()).type == MessageType::reject) {
    }
    assert_memory_equal(&got, &kNothing, sizeof got);
    victim.expect_alive();
}

void another_user_is_refused(void **)
{
    if (::geteuid() != 0)
        UNIT_SKIP("only root can act as another user");
    Victim victim;
    const sockaddr_un name = named(victim.directory, victim.address);
    assert_int_equal(::chmod(victim.directory.path().c_str(), 0755), 0); // as if somebody had opened it
    assert_int_equal(::chmod(name.sun_path, 0777), 0);
    int talk[2];
    assert_int_equal(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, talk), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(talk[0]);
        if (::setresuid(65534, 65534, 65534) != 0)
            _exit(2);
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (::connect(fd, reinterpret_cast<const sockaddr *>(&name), sizeof(name)) != 0)
            _exit(3);
        char byte;
        if (::write(talk[1], "", 1) != 1)
            _exit(4);
        _exit(::recv(fd, &byte, 1, 0) == 0 ? 0 : 1); // the end, and no greeting
    }
    ::close(talk[1]);
    char byte;
    assert_int_equal(::read(talk[0], &byte, 1), 1);
    assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ::close(talk[0]);
    victim.expect_alive();
}

void a_listener_that_hangs_up(void **)
{
    Impostor impostor;
    {
        const Raw raw = impostor.connected();
    }
    impostor.expect_error(FI_ECONNREFUSED);
    {
        const Raw raw = impostor.connected();
        raw.send(message(MessageType::hello));
    }
    impostor.expect_error(FI_ECONNRESET);
}

void answers_that_are_none(void **)
{
    Impostor impostor;
    {
        const Raw raw = impostor.connected(); // accepts before it greets
        raw.send(message(MessageType::accept), local::kOfferFdCount);
        impostor.expect_error(FI_ECONNREFUSED);
    }
    {
        const Raw raw = impostor.connected(); // asks where it should answer
        raw.send(message(MessageType::hello));
        raw.send(request(impostor.address), local::kOfferFdCount);
        impostor.expect_error(FI_ECONNRESET);
    }
    {
        const Raw raw = impostor.connected(); // accepts with an offer that is nonsense
        raw.send(message(MessageType::hello));
        LinkMessage nonsense = message(MessageType::accept);
        nonsense.offer.segment_size = UINT64_MAX;
        raw.send(nonsense, local::kOfferFdCount);
        const Event event = impostor.net.wait();
        assert_int_equal(event.result, -FI_EAVAIL);
        assert_true(raw.receive().type == MessageType::shutdown);
    }
    {
        assert_int_equal(fi_connect(impostor.ep, &impostor.address.v6, nullptr, 0), 0); // refuses, for no known reason
        impostor.net.poll();
        const Raw raw(core::UniqueFd(::accept(impostor.listener.get(), nullptr, nullptr)));
        assert_true(raw.fd.get() >= 0);
        raw.receive();
        raw.receive();
        raw.send(message(MessageType::hello));
        LinkMessage refusal = message(MessageType::reject);
        refusal.reason = static_cast<RejectReason>(99);
        raw.send(refusal);
        impostor.expect_error(FI_ECONNREFUSED);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(malformed_packets),
        cmocka_unit_test(messages_out_of_place),
        cmocka_unit_test(wrong_numbers_of_descriptors),
        cmocka_unit_test(a_number_used_twice),
        cmocka_unit_test(late_messages_are_no_fault),
        cmocka_unit_test(an_offer_that_is_nonsense),
        cmocka_unit_test(one_that_asks_and_never_reads),
        cmocka_unit_test(another_user_is_refused),
        cmocka_unit_test(a_listener_that_hangs_up),
        cmocka_unit_test(answers_that_are_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
