// SPDX-License-Identifier: BSD-2-Clause
// Words in place of vouchers, over links whose other end tries with words that are not its own.
#include "prov/vma/test/local/cm/words.hpp"
#include "prov/vma/test/local/guest_meeting.hpp"
#include "prov/vma/test/local/raw_link.hpp"

#include <functional>

#include "local/cm/sock_diag.hpp"
#include "local/msg/endpoint.hpp"
#include "vma/passed.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// What the other side has said of its memory, which is this process's too.
CmaMark greeted(const Raw &raw)
{
    const LinkMessage hello = raw.receive();
    assert_true(hello.type == MessageType::hello);
    return {hello.probe_address, hello.probe_nonce};
}

Statement of(const LinkMessage &message, local::SocketInode end)
{
    return {message.tcp_socket, end, message.connection, static_cast<std::uint32_t>(message.type)};
}

// One end of a link to a listener, that has greeted and knows where the listener's secret is.
struct Speaker {
    Victim &victim;
    Raw raw = victim.connect();
    CmaMark mark{};

    explicit Speaker(Victim &asked) : victim(asked)
    {
        raw.send(message(MessageType::hello));
        assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
        mark = greeted(raw);
    }
    LinkMessage says(std::uint32_t number, const core::UniqueFd &socket) const
    {
        LinkMessage asked = request(victim.address, number);
        asked.tcp_socket = local::inode_of(socket.get());
        asked.word = word_for(mark, of(asked, local::inode_of(raw.fd.get())));
        return asked;
    }
    // By what fi_accept() says: -FI_EINVAL of the offer, which makes no sense, where the word is believed.
    int heard(const LinkMessage &asked, const core::UniqueFd &beside, std::uint64_t pause_ns = 0) const
    {
        raw.send(asked, local::kOfferFdCount);
        const Event event = victim.net.wait();
        assert_int_equal(event.event, FI_CONNREQ);
        g_ahead_ns += pause_ns;
        fid_ep *const ep = victim.net.endpoint(event.info.get());
        assert_int_equal(stand_beside(ep, beside), 0);
        const int result = fi_accept(ep, nullptr, 0);
        assert_int_equal(fi_close(&ep->fid), 0);
        assert_true(raw.receive().reason == RejectReason::protocol);
        return result;
    }
    void expect_not_believed(const LinkMessage &asked) const
    {
        raw.send(asked, local::kOfferFdCount);
        assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
        const LinkMessage answer = raw.receive();
        assert_true(answer.type == MessageType::reject && answer.reason == RejectReason::resources);
        assert_int_equal(answer.connection, asked.connection);
    }
};

void who_gives_its_word_is_believed(void **)
{
    Victim victim;
    const TcpPair tcp;
    const TcpPair other;
    const Speaker peer(victim);
    assert_int_equal(peer.heard(peer.says(1, tcp.client), tcp.server), -FI_EINVAL);
    assert_int_equal(peer.heard(peer.says(2, tcp.server), tcp.server), -FI_EACCES);
    assert_int_equal(peer.heard(peer.says(3, other.client), tcp.server), -FI_EACCES);
    assert_int_equal(peer.heard(request(victim.address, 4), tcp.server), -FI_EACCES);
    LinkMessage about_nothing = peer.says(5, tcp.client);
    about_nothing.tcp_socket = 0;
    assert_int_equal(peer.heard(about_nothing, tcp.server), -FI_EACCES);
    // It counts when it comes, however long the program takes.
    assert_int_equal(peer.heard(peer.says(6, tcp.client), tcp.server, kHourNs), -FI_EINVAL);
    peer.expect_not_believed([&] {
        LinkMessage old = request(victim.address, 7);
        old.tcp_socket = local::inode_of(tcp.client.get());
        return old;
    }());
    assert_int_equal(peer.heard(peer.says(8, tcp.client), tcp.server), -FI_EINVAL);
    const LinkMessage old = peer.says(9, tcp.client);
    g_ahead_ns += kHourNs;
    peer.expect_not_believed(old);
}

void no_word_is_used_elsewhere(void **)
{
    Victim victim;
    Victim elsewhere;
    const TcpPair tcp;
    const Speaker peer(victim);
    const Speaker other(victim);
    const Speaker far(elsewhere);
    const LinkMessage good = peer.says(1, tcp.client);
    other.expect_not_believed(good);
    far.expect_not_believed(good);
    const std::function<void(LinkMessage &)> changes[] = {
        [](LinkMessage &m) { m.connection = 77; },
        [&](LinkMessage &m) { m.tcp_socket = local::inode_of(tcp.server.get()); },
        [](LinkMessage &m) { m.tcp_socket |= std::uint64_t{1} << 32; },
        [](LinkMessage &m) { ++m.word; },
        [](LinkMessage &m) { m.word = 0; },
        [&](LinkMessage &m) { m.word = far.says(1, tcp.client).word; },
        [&](LinkMessage &m) { m.word = word_for(peer.mark, of(message(MessageType::accept), 0)); },
        [&](LinkMessage &m) {
            LinkMessage answer = m;
            answer.type = MessageType::accept;
            m.word = word_for(peer.mark, of(answer, local::inode_of(peer.raw.fd.get())));
        },
    };
    for (const auto &change : changes) {
        LinkMessage bad = good;
        change(bad);
        peer.expect_not_believed(bad);
    }
    assert_int_equal(peer.heard(good, tcp.server), -FI_EINVAL);
    victim.expect_alive();
}

// One who was asked by an endpoint that stands beside a connection, and answers.
void an_answer_has_a_word(void **)
{
    const TcpPair tcp;
    const struct {
        MessageType type;
        bool own_end;
        std::uint64_t late_ns;
        int error;
    } answers[] = {
        {MessageType::accept, true, 0, FI_EINVAL}, // believed, and then it is the offer
        {MessageType::request, true, 0, FI_ECONNREFUSED},
        {MessageType::accept, false, 0, FI_ECONNREFUSED},
        {MessageType::accept, true, kHourNs, FI_ECONNREFUSED}, // who asked was stopped meanwhile
    };
    for (const auto &wanted : answers) {
        Impostor impostor;
        assert_int_equal(stand_beside(impostor.ep, tcp.server), 0);
        assert_int_equal(fi_connect(impostor.ep, &impostor.address.v6, nullptr, 0), 0);
        const Raw raw(core::UniqueFd(::accept(impostor.listener.get(), nullptr, nullptr)));
        const CmaMark mark = greeted(raw);
        const LinkMessage asked = raw.receive();
        assert_true((asked.brings & local::kBringsVoucher) != 0 &&
                    asked.tcp_socket == 0); // the first, before a greeting
        raw.send(message(MessageType::hello));
        LinkMessage answer = message(wanted.type, asked.connection);
        answer.tcp_socket = local::inode_of(tcp.client.get());
        answer.word = word_for(mark, of(answer, wanted.own_end ? local::inode_of(raw.fd.get()) : asked.connection));
        answer.type = MessageType::accept;
        raw.send(answer, local::kOfferFdCount);
        g_ahead_ns += wanted.late_ns;
        impostor.expect_error(wanted.error);
        assert_true(raw.receive().type == MessageType::shutdown);
    }
}

// An endpoint that asks again and again over one link.
struct Asking {
    Impostor impostor;
    const TcpPair tcp;
    Raw raw{core::UniqueFd()};
    LinkMessage refusal = message(MessageType::reject);

    explicit Asking(const CmaMark &told)
    {
        assert_int_equal(stand_beside(impostor.ep, tcp.client), 0);
        raw = impostor.connected();
        LinkMessage hello = message(MessageType::hello);
        hello.probe_address = told.address;
        hello.probe_nonce = told.number;
        raw.send(hello);
        refuse(RejectReason::program);
    }
    void refuse(RejectReason reason)
    {
        refusal.reason = reason;
        raw.send(refusal);
        if (reason == RejectReason::program)
            impostor.expect_error(FI_ECONNREFUSED);
        else
            assert_int_equal(impostor.net.poll().result, -FI_EAGAIN);
    }
    LinkMessage asked()
    {
        const LinkMessage got = raw.receive();
        assert_true(got.type == MessageType::request);
        refusal.connection = got.connection;
        const bool has_voucher = (got.brings & local::kBringsVoucher) != 0;
        assert_true(has_voucher == (got.tcp_socket == 0) && has_voucher == (got.word == 0));
        return got;
    }
    LinkMessage ask()
    {
        assert_int_equal(fi_connect(impostor.ep, &impostor.address.v6, nullptr, 0), 0);
        return asked();
    }
    void expect_voucher()
    {
        assert_true((ask().brings & local::kBringsVoucher) != 0);
        refuse(RejectReason::program);
    }
    // Our secret's word, for this connection and the link's other end.
    void expect_word(const Secret &secret)
    {
        local::SockDiag kernel;
        local::SocketInode end = 0;
        assert_int_equal(kernel.other_end_of_unix(raw.fd.get(), end), 0);
        const LinkMessage got = ask();
        assert_int_equal(got.tcp_socket, local::inode_of(tcp.client.get()));
        assert_true(secret.was_said(of(got, end), got.word));
        refuse(RejectReason::program);
    }
};

void a_word_takes_a_vouchers_place(void **)
{
    Opened secret;
    Asking asking(secret.mark());
    asking.expect_word(secret);
    asking.expect_word(secret);
    static_cast<void>(asking.ask());
    asking.refuse(RejectReason::resources); // which may be for the word
    assert_true((asking.asked().brings & local::kBringsVoucher) != 0);
    asking.refuse(RejectReason::program);
    asking.expect_word(secret);
    g_ahead_ns += kHourNs;
    asking.expect_voucher();
    secret.renew_if_old();
    asking.expect_word(secret);
    memory_of(secret).number = 0; // gone, and it is not looked for again
    asking.expect_voucher();
    memory_of(secret).number = secret.mark().number;
    asking.expect_voucher();
}

void where_there_is_no_secret_vouchers_come(void **)
{
    const Opened secret;
    const std::uint64_t mark_alone[16] = {secret.mark().number};
    const std::uint64_t like_one[16] = {secret.mark().number, 1, 2, 3, 4};
    for (const CmaMark &told : {CmaMark{}, CmaMark{UINT64_MAX, secret.mark().number},
                                CmaMark{secret.mark().address, secret.mark().number + 1},
                                CmaMark{reinterpret_cast<std::uintptr_t>(mark_alone), secret.mark().number},
                                CmaMark{reinterpret_cast<std::uintptr_t>(like_one), secret.mark().number}}) {
        Asking asking(told);
        asking.expect_voucher();
        asking.expect_voucher();
    }
}

// Who comes as a guest shows a token, even if it has the secret.
void a_guests_word_says_nothing(void **)
{
    Meeting m;
    core::UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 1);
    const Raw of_this_user(named(m.directory, m.address));
    assert_int_equal(m.server.poll().result, -FI_EAGAIN);
    const CmaMark mark = greeted(of_this_user);
    const Raw raw(reached());
    fid_ep *const ep = m.client.endpoint();
    assert_int_equal(fi_enable(ep), 0);
    LinkMessage asked = request(m.address);
    int fds[local::kOfferFdCount] = {};
    assert_int_equal(local::Endpoint::from(ep).make_offer(asked.offer, fds, 4711), 0);
    asked.brings = local::kBringsSegment | local::kBringsDoorbell;
    asked.tcp_socket = local::inode_of(m.tcp.client.get());
    asked.word = word_for(mark, of(asked, local::inode_of(raw.fd.get())));
    raw.send(message(MessageType::hello));
    iovec bytes{&asked, sizeof asked};
    PassedRoom<3> room;
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    pass(header, room, {fds, 3});
    assert_int_equal(::sendmsg(raw.fd.get(), &header, MSG_NOSIGNAL), sizeof asked);
    assert_int_equal(m.server.poll().result, -FI_EAGAIN);
    const CmaMark told = greeted(raw);
    assert_true(told.address == 0 && told.number == 0);
    assert_true(raw.receive().type == MessageType::reject);
    close_all({&ep->fid});
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_gives_its_word_is_believed),
        cmocka_unit_test(no_word_is_used_elsewhere),
        cmocka_unit_test(an_answer_has_a_word),
        cmocka_unit_test(a_word_takes_a_vouchers_place),
        cmocka_unit_test(where_there_is_no_secret_vouchers_come),
        cmocka_unit_test(a_guests_word_says_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
