// SPDX-License-Identifier: BSD-2-Clause
// How guests come: over sockets that the program brings, to the passive endpoint that it brought them to, and only as
// holders of the other end of a TCP connection. Nobody's silence, number or garbage keeps another out.
#include "fabtests/unit.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "local/cm/message.hpp"
#include "local/msg/endpoint.hpp"
#include "prov/vma/test/local/guest_meeting.hpp"

namespace {

using namespace vma::test;
using namespace vma;
using vma::core::UniqueFd;

void a_guest_meets_over_a_pair(void **)
{
    Meeting m;
    Ends ends;
    hand_over(&m.pep->fid, ends.b);
    fid_ep *const active = m.ask(ends.a);
    fid_ep *const passive = m.answer(m.server.wait());
    expect(m.server.wait(), FI_CONNECTED, &passive->fid);
    expect(m.client.wait(), FI_CONNECTED, &active->fid);
    assert_non_null(vma::local::Endpoint::from(active).guest);
    assert_non_null(vma::local::Endpoint::from(passive).guest);
    m.talk(active, passive);
    close_all({&active->fid, &passive->fid});
}

void a_guest_meets_at_a_name(void **)
{
    Meeting m;
    UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 42);
    UniqueFd link = reached();
    fid_ep *const active = m.ask(link);
    fid_ep *const passive = m.answer(m.server.wait());
    expect(m.server.wait(), FI_CONNECTED, &passive->fid);
    expect(m.client.wait(), FI_CONNECTED, &active->fid);
    assert_int_equal(give(&m.pep->fid, FI_OPT_VMA_UNLINK, -1, 41), -FI_ENOENT);
    assert_int_equal(give(&m.pep->fid, FI_OPT_VMA_UNLINK, -1, 42), 0);
    assert_false(static_cast<bool>(reached()));
    m.talk(active, passive);
    close_all({&active->fid, &passive->fid});
}

sockaddr_in name_of_socket(const UniqueFd &socket)
{
    sockaddr_in name{};
    socklen_t length = sizeof name;
    assert_int_equal(getsockname(socket.get(), reinterpret_cast<sockaddr *>(&name), &length), 0);
    return name;
}

constexpr uid_t kOther = 12345;

// A process of another user: it connects by TCP, then as a guest. Its status is 0, or says what went wrong.
[[noreturn]] void come_as_a_guest(const sockaddr_in &to, int ready)
{
    char byte = 0;
    if (read(ready, &byte, 1) != 1)
        _exit(9);
    if (setresgid(kOther, kOther, kOther) != 0 || setresuid(kOther, kOther, kOther) != 0)
        _exit(10);
    const UniqueFd tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(tcp.get(), reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0)
        _exit(11);
    if (read(ready, &byte, 1) != 1) // it is accepted: before that nobody has the other end
        _exit(9);
    Net net;
    fid_ep *const ep = net.endpoint();
    if (stand_beside(ep, tcp) != 0)
        _exit(12);
    UniqueFd link = reached();
    if (give(&ep->fid, FI_OPT_VMA_LINK, link.release()) != 0 || fi_connect(ep, nullptr, "hello", 5) != 0)
        _exit(13);
    if (net.wait().event != FI_CONNECTED)
        _exit(14);
    fi_cq_data_entry entry{};
    char in[8] = {};
    if (fi_recv(ep, in, sizeof in, nullptr, 0, nullptr) != 0)
        _exit(15);
    while (fi_cq_read(net.cq, &entry, 1) != 1) {
    }
    if (fi_inject(ep, in, sizeof in, 0) != 0)
        _exit(16);
    _exit(net.wait().event == FI_SHUTDOWN ? 0 : 17);
}

// Where no other user can be had there is nothing to see: the other tests have the same ways.
void another_user_comes(void **)
{
    if (geteuid() != 0)
        return;
    const UniqueFd door(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    assert_int_equal(listen(door.get(), 1), 0);
    sockaddr_in to = name_of_socket(door);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0)
        come_as_a_guest(to, ready[0]);
    Meeting m;
    UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 1);
    assert_int_equal(write(ready[1], "x", 1), 1);
    const UniqueFd tcp(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    assert_int_equal(write(ready[1], "x", 1), 1);
    fid_ep *const passive = m.answer(m.server.wait(), tcp);
    expect(m.server.wait(), FI_CONNECTED, &passive->fid);
    char in[8] = {};
    assert_int_equal(fi_recv(passive, in, sizeof in, nullptr, 0, nullptr), 0);
    assert_int_equal(fi_inject(passive, "7654321", 8, 0), 0);
    fi_cq_data_entry entry{};
    while (fi_cq_read(m.server.cq, &entry, 1) != 1) {
    }
    assert_string_equal(in, "7654321");
    close_all({&passive->fid});
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

void who_does_not_hold_the_other_end_is_refused(void **)
{
    Meeting m;
    const TcpPair other;
    Ends ends;
    hand_over(&m.pep->fid, ends.b);
    fid_ep *const active = m.client.endpoint();
    assert_int_equal(stand_beside(active, other.client), 0);
    hand_over(&active->fid, ends.a);
    assert_int_equal(fi_connect(active, nullptr, nullptr, 0), 0);
    const Event request = m.server.wait();
    expect(request, FI_CONNREQ, &m.pep->fid);
    fid_ep *const passive = m.server.endpoint(request.info.get());
    assert_int_equal(stand_beside(passive, m.tcp.server), 0);
    assert_int_not_equal(fi_accept(passive, nullptr, 0), 0);
    expect_refused(m.client.wait(), &active->fid);
    close_all({&active->fid, &passive->fid});
}

void only_who_stands_beside_a_connection_is_a_guest(void **)
{
    Meeting m;
    Ends ends;
    fid_ep *const ep = m.client.endpoint();
    assert_int_equal(give(&ep->fid, FI_OPT_VMA_LINK, ends.a.get()), -FI_EOPBADSTATE);
    assert_int_equal(stand_beside(ep, m.tcp.client), 0);
    const Ends stream(SOCK_STREAM);
    assert_int_equal(give(&ep->fid, FI_OPT_VMA_LINK, stream.a.get()), -FI_EINVAL);
    assert_int_equal(give(&ep->fid, FI_OPT_VMA_LINK, m.tcp.client.get()), -FI_EINVAL);
    assert_int_equal(give(&ep->fid, FI_OPT_VMA_LINK, -1), -FI_EINVAL);
    const UniqueFd listener = listening();
    assert_int_equal(give(&ep->fid, FI_OPT_VMA_LINK, listener.get()), -FI_EINVAL);
    const int fd = ends.a.get();
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_LINK), &fd, sizeof fd),
                     -FI_EINVAL);
    assert_int_equal(give(&m.pep->fid, FI_OPT_VMA_LINK, stream.a.get()), -FI_EINVAL);
    close_all({&ep->fid});
}

// One that connects and is silent, one that says garbage, and many of them: an honest one still comes, and what they
// hold of our descriptors is bounded.
void nobody_keeps_a_guest_out(void **)
{
    Meeting m;
    UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 1);
    const int before = open_descriptors();
    std::vector<UniqueFd> silent;
    for (unsigned i = 0; i < 200; ++i) {
        silent.push_back(reached());
        assert_true(static_cast<bool>(silent.back()));
        if (i % 3 == 0) {
            char garbage[sizeof(vma::local::LinkMessage)] = {};
            garbage[i % sizeof garbage] = static_cast<char>(i);
            assert_true(send(silent.back().get(), garbage, sizeof garbage, MSG_NOSIGNAL) > 0);
        }
        static_cast<void>(m.server.poll());
    }
    assert_true(open_descriptors() - before - 200 <= 20);
    UniqueFd link = reached();
    fid_ep *const active = m.ask(link);
    fid_ep *const passive = m.answer(m.server.wait());
    expect(m.server.wait(), FI_CONNECTED, &passive->fid);
    expect(m.client.wait(), FI_CONNECTED, &active->fid);
    m.talk(active, passive);
    close_all({&active->fid, &passive->fid});
}

// A process that speaks the link's language, but not as it should.
class Liar
{
public:
    explicit Liar(Meeting &meeting) : meeting_(meeting)
    {
        ep_ = meeting.client.endpoint();
        assert_int_equal(fi_enable(ep_), 0);
        assert_int_equal(vma::local::Endpoint::from(ep_).make_offer(offer_, fds_, ++links_), 0);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", meeting.tcp.client.get());
        token_ = UniqueFd(open(path, O_PATH | O_CLOEXEC));
        fds_[3] = token_.get();
    }
    ~Liar() { close_all({&ep_->fid}); }

    vma::local::LinkMessage message(vma::local::MessageType type) const
    {
        vma::local::LinkMessage made{};
        made.magic = vma::local::kMessageMagic;
        made.version = vma::local::kMessageVersion;
        made.type = type;
        made.connection = 1;
        made.offer = offer_;
        made.source.sin6_family = made.destination.sin6_family = AF_INET;
        if (type == vma::local::MessageType::request)
            made.brings = vma::local::kBringsSegment | vma::local::kBringsDoorbell | vma::local::kBringsVoucher;
        return made;
    }
    int *fds() { return fds_; }

    // Greets, sends that, and lets the server look; whom it takes for a request it answers as a program would. Whether
    // it has ended the link.
    bool send(const void *bytes, std::size_t length, int fd_count)
    {
        const UniqueFd link = reached();
        assert_true(static_cast<bool>(link));
        const vma::local::LinkMessage hello = message(vma::local::MessageType::hello);
        put(link.get(), &hello, sizeof hello, 0);
        put(link.get(), bytes, length, fd_count);
        for (int i = 0; i < 20; ++i) {
            const Event event = meeting_.server.poll();
            if (event.result <= 0 || event.event != FI_CONNREQ)
                continue;
            fid_ep *const passive = meeting_.server.endpoint(event.info.get());
            assert_int_equal(stand_beside(passive, meeting_.tcp.server), 0);
            static_cast<void>(fi_accept(passive, nullptr, 0));
            close_all({&passive->fid});
        }
        vma::local::LinkMessage answer;
        ssize_t got;
        while ((got = recv(link.get(), &answer, sizeof answer, MSG_DONTWAIT)) > 0) {
        }
        return got == 0;
    }

private:
    void put(int socket, const void *bytes, std::size_t length, int fd_count) const
    {
        iovec part{const_cast<void *>(bytes), length};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)] = {};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        if (fd_count != 0) {
            header.msg_control = control;
            header.msg_controllen = CMSG_SPACE(sizeof(int) * static_cast<unsigned>(fd_count));
            cmsghdr *const rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int) * static_cast<unsigned>(fd_count));
            for (int i = 0; i < fd_count; ++i)
                std::memcpy(CMSG_DATA(rights) + sizeof(int) * static_cast<unsigned>(i), &fds_[i % 4], sizeof(int));
        }
        static_cast<void>(sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT));
    }

    Meeting &meeting_;
    fid_ep *ep_ = nullptr;
    vma::local::EndpointOffer offer_;
    int fds_[vma::local::kLinkFdCount] = {};
    UniqueFd token_;
    static inline std::uint64_t links_ = 1000;
};

void expect_an_honest_guest(Meeting &m, bool comes)
{
    UniqueFd link = reached();
    fid_ep *const active = m.client.endpoint();
    assert_int_equal(stand_beside(active, m.tcp.client), 0);
    hand_over(&active->fid, link);
    assert_int_equal(fi_connect(active, nullptr, "hello", 5), 0);
    Event event = m.server.wait(comes ? kPatience : 0);
    while (comes && event.event != FI_CONNREQ) // what is left of the others
        event = m.server.wait();
    if (comes) {
        fid_ep *const passive = m.answer(event);
        expect(m.server.wait(), FI_CONNECTED, &passive->fid);
        expect(m.client.wait(), FI_CONNECTED, &active->fid);
        m.talk(active, passive);
        close_all({&passive->fid});
    }
    close_all({&active->fid});
}

void any_byte_of_a_message_may_change(void **)
{
    constexpr int kMutations = 200;
    Meeting m;
    UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 1);
    Liar liar(m);
    std::srand(1);
    const int before = open_descriptors();
    for (const auto type :
         {vma::local::MessageType::request, vma::local::MessageType::accept, vma::local::MessageType::reject,
          vma::local::MessageType::shutdown, vma::local::MessageType::nudge}) {
        for (int i = 0; i < kMutations; ++i) {
            vma::local::LinkMessage message = liar.message(type);
            auto *const bytes = reinterpret_cast<unsigned char *>(&message);
            for (int change = i % 3; change >= 0; --change)
                bytes[static_cast<std::size_t>(std::rand()) % sizeof message] = static_cast<unsigned char>(std::rand());
            static_cast<void>(
                liar.send(bytes, i % 10 == 9 ? sizeof message - 1 : sizeof message, i % 7 == 6 ? std::rand() % 12 : 4));
        }
    }
    assert_true(open_descriptors() - before < 60); // links that wait to be dropped, and theirs
    expect_an_honest_guest(m, true);
}

// Looking at some files, or closing them, waits for whoever made their file system. They are not touched, and their
// user comes no more.
void a_wrong_descriptor_is_not_touched(void **)
{
    for (int kind = 0; kind < 4; ++kind) {
        Meeting m;
        UniqueFd listener = listening();
        hand_over(&m.pep->fid, listener, 1);
        Liar liar(m);
        const UniqueFd wrong(kind == 0   ? open("/dev/null", O_RDWR | O_CLOEXEC)
                             : kind == 1 ? eventfd(0, EFD_CLOEXEC)
                             : kind == 2 ? ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
                                         : memfd_create("unsealed", MFD_CLOEXEC));
        liar.fds()[kind] = wrong.get();
        const vma::local::LinkMessage message = liar.message(vma::local::MessageType::request);
        const int before = open_descriptors();
        static_cast<void>(liar.send(&message, sizeof message, 4));
        assert_true(open_descriptors() > before); // it is left open
        expect_an_honest_guest(m, false);
    }
}

void a_doorbell_that_never_came_ends_the_link(void **)
{
    Meeting m;
    UniqueFd listener = listening();
    hand_over(&m.pep->fid, listener, 1);
    Liar liar(m);
    vma::local::LinkMessage message = liar.message(vma::local::MessageType::request);
    message.brings = 0;
    assert_true(liar.send(&message, sizeof message, 1));
    expect_an_honest_guest(m, true);
}

// A link ends with nobody left to ask: the passive endpoint is closed first.
void a_link_outlives_whom_it_may_ask(void **)
{
    Meeting m;
    Ends ends;
    hand_over(&m.pep->fid, ends.b);
    assert_int_equal(fi_close(&m.pep->fid), 0);
    m.pep = m.server.listen(m.address);
    fid_ep *const active = m.ask(ends.a);
    static_cast<void>(m.server.poll());
    expect_refused(m.client.wait(), &active->fid);
    close_all({&active->fid});
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_guest_meets_over_a_pair),
        cmocka_unit_test(a_guest_meets_at_a_name),
        cmocka_unit_test(another_user_comes),
        cmocka_unit_test(who_does_not_hold_the_other_end_is_refused),
        cmocka_unit_test(only_who_stands_beside_a_connection_is_a_guest),
        cmocka_unit_test(nobody_keeps_a_guest_out),
        cmocka_unit_test(any_byte_of_a_message_may_change),
        cmocka_unit_test(a_wrong_descriptor_is_not_touched),
        cmocka_unit_test(a_doorbell_that_never_came_ends_the_link),
        cmocka_unit_test(a_link_outlives_whom_it_may_ask),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
