// SPDX-License-Identifier: BSD-2-Clause
// Who holds the other end of a TCP connection: what the kernel says, what a voucher says, and endpoints that go by it.
#include "prov/vma/test/local/cm_pair.hpp"
#include "prov/vma/test/local/tcp_pair.hpp"

#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <rdma/fi_ext_vma.h>

#include "local/cm/directory.hpp"
#include "local/cm/message.hpp"
#include "local/cm/possession.hpp"
#include "local/msg/endpoint.hpp"

using namespace vma;
using namespace vma::test;

namespace {

using core::UniqueFd;
using local::SockDiag;
using local::SocketInode;
using local::TcpEnd;

// A connection through the loopback interface.
SocketInode number_of(const UniqueFd &socket)
{
    struct stat status {
    };
    assert_int_equal(::fstat(socket.get(), &status), 0);
    return static_cast<SocketInode>(status.st_ino);
}

TcpEnd end_of(const UniqueFd &socket)
{
    SockDiag kernel;
    TcpEnd end{};
    assert_int_equal(end.assign(socket.get(), nullptr, kernel), 0);
    return end;
}

void expect_ends(const TcpPair &tcp)
{
    assert_int_equal(end_of(tcp.client).other_end, number_of(tcp.server));
    assert_int_equal(end_of(tcp.server).other_end, number_of(tcp.client));
}

void the_kernel_names_the_other_end(void **)
{
    expect_ends(TcpPair());
    expect_ends(TcpPair("127.0.0.77"));
    expect_ends(TcpPair("::1", AF_INET6));
    expect_ends(TcpPair("::ffff:127.0.0.1", AF_INET6));
    if (::geteuid() == 0)
        expect_ends(TcpPair("127.0.0.1", AF_INET, SO_BINDTODEVICE));
}

void one_that_nobody_has_is_not_named(void **)
{
    SockDiag kernel;
    TcpEnd end{};
    TcpPair tcp;
    tcp.client.reset();
    assert_int_equal(end.assign(tcp.server.get(), nullptr, kernel), -FI_ENOENT);
    const UniqueFd fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    assert_int_equal(end.assign(fresh.get(), nullptr, kernel), -FI_ENOTCONN);
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    assert_int_equal(end.assign(event.get(), nullptr, kernel), -FI_EINVAL);
    assert_int_equal(end.assign(-1, nullptr, kernel), -FI_EBADF);
}

void the_kernel_names_the_end_of_a_link(void **)
{
    SockDiag kernel;
    int pair[2];
    SocketInode found = 0;
    assert_int_equal(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd one(pair[0]);
    UniqueFd two(pair[1]);
    assert_int_equal(kernel.other_end_of_unix(one.get(), found), 0);
    assert_int_equal(found, number_of(two));
    assert_int_equal(kernel.other_end_of_unix(two.get(), found), 0);
    assert_int_equal(found, number_of(one));
    two.reset();
    assert_int_not_equal(kernel.other_end_of_unix(one.get(), found), 0);
}

constexpr SocketInode kLink = 4711;

void a_voucher_speaks_of_one_socket_at_one_link(void **)
{
    const TcpPair tcp;
    const TcpPair other;
    const TcpEnd end = end_of(tcp.server);
    const UniqueFd voucher = local::make_voucher(tcp.client.get(), kLink);
    assert_true(static_cast<bool>(voucher));
    assert_int_equal(local::check_voucher(voucher.get(), end, kLink), 0);
    assert_int_equal(local::check_voucher(voucher.get(), end, kLink + 1), -FI_EACCES); // who shows a copy of it
    assert_int_equal(local::check_voucher(voucher.get(), end, 0), -FI_EACCES);
    const UniqueFd foreign = local::make_voucher(other.client.get(), kLink);
    assert_int_equal(local::check_voucher(foreign.get(), end, kLink), -FI_EACCES);
    const UniqueFd mine = local::make_voucher(tcp.server.get(), kLink);
    assert_int_equal(local::check_voucher(mine.get(), end, kLink), -FI_EACCES);
}

void what_is_no_voucher(void **)
{
    const TcpPair tcp;
    const TcpEnd end = end_of(tcp.server);
    assert_int_equal(local::check_voucher(-1, end, kLink), -FI_EACCES);
    assert_int_equal(local::check_voucher(tcp.client.get(), end, kLink), -FI_EACCES);
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    assert_int_equal(local::check_voucher(event.get(), end, kLink), -FI_EACCES);
    const UniqueFd set(::epoll_create1(EPOLL_CLOEXEC));
    assert_int_equal(local::check_voucher(set.get(), end, kLink), -FI_ENOTCONN);
    epoll_event entry{}; // one of a program that has this socket in a set
    entry.data.u64 = kLink;
    assert_int_equal(::epoll_ctl(set.get(), EPOLL_CTL_ADD, tcp.client.get(), &entry), 0);
    assert_int_equal(local::check_voucher(set.get(), end, kLink), -FI_EACCES);
}

// Whoever has one neither keeps the connection open nor learns that a byte has come.
void a_voucher_gives_nothing(void **)
{
    TcpPair tcp;
    const UniqueFd voucher = local::make_voucher(tcp.client.get(), kLink);
    epoll_event event{};
    char byte = 0;
    assert_int_equal(::send(tcp.server.get(), "x", 1, 0), 1);
    assert_int_equal(::recv(tcp.client.get(), &byte, 1, MSG_PEEK), 1);
    assert_int_equal(::epoll_wait(voucher.get(), &event, 1, 0), 0);
    assert_int_equal(::recv(tcp.client.get(), &byte, 1, 0), 1);
    const TcpEnd end = end_of(tcp.server);
    tcp.client.reset();
    assert_int_equal(::recv(tcp.server.get(), &byte, 1, 0), 0);
    assert_int_equal(local::check_voucher(voucher.get(), end, kLink), -FI_ENOTCONN);
}

// One asks the other; each stands beside the socket that is given, if one is.
struct Meeting {
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    fid_ep *active = client.endpoint();
    fid_ep *passive = nullptr;

    int meet(const UniqueFd *asks, const UniqueFd *answers)
    {
        if (asks != nullptr)
            assert_int_equal(stand_beside(active, *asks), 0);
        assert_int_equal(fi_connect(active, &address.v6, nullptr, 0), 0);
        const Event request = server.wait();
        expect(request, FI_CONNREQ, &pep->fid);
        passive = server.endpoint(request.info.get());
        if (answers != nullptr)
            assert_int_equal(stand_beside(passive, *answers), 0);
        return fi_accept(passive, nullptr, 0);
    }
    ~Meeting() { close_all({&active->fid, &passive->fid, &pep->fid}); }
};

void the_two_ends_meet(void **)
{
    const TcpPair tcp;
    Meeting m;
    assert_int_equal(m.meet(&tcp.server, &tcp.client), 0);
    expect(m.server.wait(), FI_CONNECTED, &m.passive->fid);
    expect(m.client.wait(), FI_CONNECTED, &m.active->fid);
    assert_int_equal(stand_beside(m.active, tcp.server), -FI_EOPBADSTATE);
}

void who_asks_without_the_other_end_is_refused(void **)
{
    const TcpPair tcp;
    const TcpPair other;
    for (const UniqueFd *asks : {static_cast<const UniqueFd *>(nullptr), &other.server, &tcp.client}) {
        Meeting m;
        assert_int_equal(m.meet(asks, &tcp.client), -FI_EACCES);
        expect_refused(m.client.wait(), &m.active->fid);
    }
}

void who_answers_without_it_is_not_believed(void **)
{
    const TcpPair tcp;
    Meeting m;
    assert_int_equal(m.meet(&tcp.server, nullptr), 0);
    const Event event = m.client.wait();
    assert_int_equal(event.result, -FI_EAVAIL);
    assert_int_equal(event.err, FI_EACCES);
    assert_ptr_equal(event.fid, &m.active->fid);
}

// One in the middle, who has no end of the connection: takes the request that is meant for the other one, and asks that
// one in its own name, with all that was shown to it.
class Relay
{
public:
    Relay()
    {
        int error = 0;
        directory_ = local::Directory::open(&error);
        assert_int_equal(directory_->reserve(0, name_), 0);
    }
    std::uint16_t port() const { return name_.port(); }

    // What waits in a link that was made to us, on to that port.
    void pass_on(std::uint16_t port)
    {
        int error = 0;
        to_ = directory_->connect(port, &error);
        assert_true(static_cast<bool>(to_));
        int passed = 0;
        while (passed == 0) { // who opened the directory has asked whether the name is a dead one's
            const UniqueFd from(::accept4(name_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            assert_true(static_cast<bool>(from));
            while (pass_one(from.get(), port))
                ++passed;
        }
        assert_int_equal(passed, 2); // greeting, request
    }

private:
    bool pass_one(int from, std::uint16_t port) const
    {
        local::LinkMessage message;
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * local::kLinkFdCount)];
        iovec bytes{&message, sizeof message};
        msghdr header{};
        header.msg_iov = &bytes;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        if (::recvmsg(from, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof message)
            return false;
        if (message.type == local::MessageType::request) {
            assert_true((message.brings & local::kBringsVoucher) != 0);
            reinterpret_cast<sockaddr_in *>(&message.destination)->sin_port = htons(port);
        }
        assert_int_equal(::sendmsg(to_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL), sizeof message);
        for (cmsghdr *c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
            for (std::size_t at = CMSG_LEN(0); at < c->cmsg_len; at += sizeof(int)) {
                int fd = -1;
                std::memcpy(&fd, reinterpret_cast<char *>(c) + at, sizeof fd);
                ::close(fd);
            }
        }
        return true;
    }

    std::shared_ptr<local::Directory> directory_;
    local::PortName name_;
    UniqueFd to_;
};

void who_stands_between_is_refused(void **)
{
    const OwnDirectory directory;
    const TcpPair tcp;
    Relay relay;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *const pep = server.listen(address);
    const std::uint16_t port = address.port();
    fid_ep *const active = client.endpoint();
    assert_int_equal(stand_beside(active, tcp.server), 0);
    address.set_port(relay.port());
    assert_int_equal(fi_connect(active, &address.v6, nullptr, 0), 0);
    relay.pass_on(port);
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pep->fid);
    fid_ep *const passive = server.endpoint(request.info.get());
    assert_int_equal(stand_beside(passive, tcp.client), 0);
    assert_int_equal(fi_accept(passive, nullptr, 0), -FI_EACCES);
    close_all({&active->fid, &passive->fid, &pep->fid});
}

void what_the_option_takes(void **)
{
    const OwnDirectory directory;
    Net net;
    fid_ep *const ep = net.endpoint();
    const UniqueFd fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    assert_int_equal(stand_beside(ep, fresh), -FI_ENOTCONN);
    const char small = 1;
    assert_int_equal(
        fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP_SOCKET), &small, sizeof small),
        -FI_EINVAL);
    const TcpPair tcp;
    local::TcpAddresses known{};
    assert_int_equal(local::read_tcp_addresses(tcp.client.get(), known), 0);
    const auto tell = [ep, &tcp](const local::TcpAddresses &addresses) {
        const fi_vma_tcp_socket told = {tcp.client.get(), 0, addresses.network, addresses.local, addresses.peer};
        return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP_SOCKET), &told, sizeof told);
    };
    assert_int_equal(tell(known), 0);
    assert_int_equal(local::Endpoint::from(ep).cm.tcp->other_end, number_of(tcp.server));
    local::TcpAddresses wrong = known;
    std::swap(wrong.local, wrong.peer);
    wrong.peer.sin6_port = known.peer.sin6_port;
    assert_int_equal(tell(wrong), -FI_ENOENT);
    wrong = known;
    wrong.network = 0;
    assert_int_equal(tell(wrong), -FI_EINVAL);
    close_all({&ep->fid});
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_names_the_other_end),
        cmocka_unit_test(one_that_nobody_has_is_not_named),
        cmocka_unit_test(the_kernel_names_the_end_of_a_link),
        cmocka_unit_test(a_voucher_speaks_of_one_socket_at_one_link),
        cmocka_unit_test(what_is_no_voucher),
        cmocka_unit_test(a_voucher_gives_nothing),
        cmocka_unit_test(the_two_ends_meet),
        cmocka_unit_test(who_asks_without_the_other_end_is_refused),
        cmocka_unit_test(who_answers_without_it_is_not_believed),
        cmocka_unit_test(who_stands_between_is_refused),
        cmocka_unit_test(what_the_option_takes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
