// SPDX-License-Identifier: BSD-2-Clause
// Links whose other end breaks every rule there is: nothing it sends may do more than end its own link.
#include "prov/vma/test/fixture.hpp"

#include <functional>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <vector>

#include "core/fd.hpp"
#include "local/cm/message.hpp"
#include "ofi/info/attr.hpp"

using namespace vma;
using namespace vma::test;
using local::LinkMessage;
using local::MessageType;
using local::RejectReason;

namespace {

sockaddr_un named(const OwnDirectory &directory, const ofi::Address &address)
{
    struct stat net {
    };
    assert_int_equal(::stat("/proc/thread-self/ns/net", &net), 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::snprintf(name.sun_path, sizeof(name.sun_path), "%s/%lu-%u", directory.path().c_str(),
                  static_cast<unsigned long>(net.st_ino), unsigned{address.port()});
    return name;
}

LinkMessage message(MessageType type, std::uint32_t connection = 1)
{
    LinkMessage made{};
    made.magic = local::kMessageMagic;
    made.version = local::kMessageVersion;
    made.type = type;
    made.connection = connection;
    if (local::carries_offer(type)) {
        made.offer.doorbell = 1;
        made.offer.tx_doorbell = 2;
        made.brings = local::kBringsDoorbell | local::kBringsTxDoorbell;
    }
    return made;
}

LinkMessage request(const ofi::Address &to, std::uint32_t connection = 1)
{
    LinkMessage made = message(MessageType::request, connection);
    std::memcpy(&made.source, &to.v6, to.size());
    std::memcpy(&made.destination, &to.v6, to.size());
    return made;
}

// One end of a link in the test's own hands.
struct Raw {
    core::UniqueFd fd;

    explicit Raw(core::UniqueFd made) : fd(std::move(made)) {}
    explicit Raw(const sockaddr_un &name) : fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))
    {
        assert_int_equal(::connect(fd.get(), reinterpret_cast<const sockaddr *>(&name), sizeof(name)), 0);
    }

    ssize_t send_bytes(const void *data, std::size_t length, unsigned descriptors = 0) const
    {
        iovec payload{const_cast<void *>(data), length};
        alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
        msghdr header{};
        header.msg_iov = &payload;
        header.msg_iovlen = 1;
        const core::UniqueFd any(::eventfd(0, EFD_CLOEXEC));
        if (descriptors > 0) {
            header.msg_control = control;
            header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
            cmsghdr *rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
            for (unsigned i = 0; i < descriptors; ++i) {
                const int number = any.get();
                std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &number, sizeof(int));
            }
        }
        return ::sendmsg(fd.get(), &header, MSG_NOSIGNAL);
    }
    void send(const LinkMessage &sent, unsigned descriptors = 0) const
    {
        assert_int_equal(send_bytes(&sent, sizeof(sent), descriptors), sizeof(sent));
    }
    // What arrived by now: a message, or its type 0 where the link has ended.
    LinkMessage receive() const
    {
        LinkMessage got{};
        const ssize_t length = ::recv(fd.get(), &got, sizeof(got), MSG_DONTWAIT);
        if (length < 0 && errno == ECONNRESET) // it ended with something of ours unread
            return {};
        assert_true(length == 0 || length == sizeof(got));
        return got;
    }
    bool is_empty() const
    {
        char byte;
        return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    }
};

const LinkMessage kNothing{};

// A listening fabric and what it makes of a sequence of messages.
struct Victim {
    OwnDirectory directory;
    Net net;
    ofi::Address address;
    fid_pep *pep;

    Victim() : pep(net.listen(address)) {}
    ~Victim() { assert_int_equal(fi_close(&pep->fid), 0); }

    Raw connect() { return Raw(named(directory, address)); }
    void expect_end(const Raw &raw)
    {
        assert_int_equal(net.poll().result, -FI_EAGAIN);
        LinkMessage got = raw.receive();
        if (got.type == MessageType::hello)
            got = raw.receive();
        assert_memory_equal(&got, &kNothing, sizeof(got));
    }
    // Still serves those who keep to the rules.
    void expect_alive()
    {
        const Raw raw = connect();
        raw.send(message(MessageType::hello));
        raw.send(request(address), local::kOfferFdCount);
        const Event asked = net.wait();
        assert_int_equal(asked.event, FI_CONNREQ);
        assert_int_equal(fi_reject(pep, asked.info->handle, "x", 1), 0);
        assert_true(raw.receive().type == MessageType::hello);
        const LinkMessage answer = raw.receive();
        assert_true(answer.type == MessageType::reject && answer.reason == RejectReason::program);
    }
};

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
                                        {local::kBringsDoorbell, 2U}}) {
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

// A number that came with descriptors is known by itself from then on. One that is not known is answered as what was
// lost, and the link goes on.
void a_doorbell_comes_once(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    raw.send(request(victim.address, 1), local::kOfferFdCount);
    LinkMessage later = request(victim.address, 2);
    later.brings = 0;
    raw.send(later, 1);
    for (int i = 0; i < 2; ++i) {
        const Event asked = victim.net.wait();
        assert_int_equal(asked.event, FI_CONNREQ);
        assert_int_equal(fi_reject(victim.pep, asked.info->handle, nullptr, 0), 0);
    }
    assert_true(raw.receive().type == MessageType::hello);
    for (int i = 0; i < 2; ++i)
        assert_true(raw.receive().reason == RejectReason::program);
    const std::uint64_t unknown[] = {0, 3, 9, UINT64_MAX};
    for (const std::uint64_t number : unknown) {
        later.connection += 1;
        later.offer.tx_doorbell = number;
        raw.send(later, 1);
        assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
        const LinkMessage answer = raw.receive();
        assert_true(answer.type == MessageType::reject && answer.reason == RejectReason::resources);
    }
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

void one_that_asks_and_never_reads(void **)
{
    Victim victim;
    int backlog = 1;
    assert_int_equal(fi_control(&victim.pep->fid, FI_BACKLOG, &backlog), 0);
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    ofi::Address nobody = victim.address;
    nobody.set_port(1);
    ssize_t sent = 0;
    for (std::uint32_t i = 1; i < 30000 && sent >= 0; ++i) {
        const LinkMessage asked = request(nobody, i);
        sent = raw.send_bytes(&asked, sizeof(asked), local::kOfferFdCount);
        victim.net.poll();
    }
    assert_true(sent < 0 || raw.receive().type == MessageType::hello);
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

// The other role: the test listens, the provider connects.
struct Impostor {
    OwnDirectory directory;
    Net net;
    ofi::Address address;
    sockaddr_un name{};
    core::UniqueFd listener{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    fid_ep *ep = nullptr;

    Impostor()
    {
        // The first use of a directory tries all its names: let that be over.
        assert_int_equal(fi_close(&net.listen(address)->fid), 0);
        address = ofi::Address();
        address.v4.sin_family = AF_INET;
        address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.set_port(7777);
        name = named(directory, address);
        assert_int_equal(::bind(listener.get(), reinterpret_cast<const sockaddr *>(&name), sizeof(name)), 0);
        assert_int_equal(::listen(listener.get(), 1), 0);
        ep = net.endpoint();
    }
    ~Impostor() { assert_int_equal(fi_close(&ep->fid), 0); }

    Raw connected()
    {
        assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
        Raw raw(core::UniqueFd(::accept(listener.get(), nullptr, nullptr)));
        assert_true(raw.receive().type == MessageType::hello);
        assert_true(raw.receive().type == MessageType::request);
        return raw;
    }
    void expect_error(int err)
    {
        const Event event = net.wait();
        assert_int_equal(event.result, -FI_EAVAIL);
        assert_ptr_equal(event.fid, &ep->fid);
        assert_int_equal(event.err, err);
    }
};

// Until the peer says that it has lost something.
void a_doorbell_is_sent_once(void **)
{
    Impostor impostor;
    const Raw raw = impostor.connected();
    raw.send(message(MessageType::hello));
    LinkMessage refusal = message(MessageType::reject);
    const auto asked_again = [&](RejectReason reason) {
        refusal.reason = reason;
        raw.send(refusal);
        impostor.expect_error(FI_ECONNREFUSED);
        assert_int_equal(fi_connect(impostor.ep, &impostor.address.v6, nullptr, 0), 0);
        const LinkMessage asked = raw.receive();
        assert_true(asked.type == MessageType::request);
        refusal.connection = asked.connection;
        return asked.brings & (local::kBringsDoorbell | local::kBringsTxDoorbell);
    };
    assert_int_equal(asked_again(RejectReason::program), 0);
    assert_int_not_equal(asked_again(RejectReason::resources), 0);
    assert_int_equal(asked_again(RejectReason::program), 0);
    raw.send(refusal);
    impostor.expect_error(FI_ECONNREFUSED);
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
        cmocka_unit_test(a_doorbell_comes_once),
        cmocka_unit_test(late_messages_are_no_fault),
        cmocka_unit_test(an_offer_that_is_nonsense),
        cmocka_unit_test(one_that_asks_and_never_reads),
        cmocka_unit_test(another_user_is_refused),
        cmocka_unit_test(a_doorbell_is_sent_once),
        cmocka_unit_test(a_listener_that_hangs_up),
        cmocka_unit_test(answers_that_are_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
