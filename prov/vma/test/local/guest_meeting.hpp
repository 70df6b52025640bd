// SPDX-License-Identifier: BSD-2-Clause
// Where guests meet, for their tests: pairs of sockets, a name, and a passive endpoint that is given both.
#pragma once

#include <cstddef>
#include <cstdio>
#include <sys/socket.h>
#include <sys/un.h>

#include "prov/vma/test/local/cm_pair.hpp"
#include "prov/vma/test/local/tcp_pair.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::test {

struct Ends {
    core::UniqueFd a;
    core::UniqueFd b;
    explicit Ends(int type = SOCK_SEQPACKET)
    {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
        a = core::UniqueFd(pair[0]);
        b = core::UniqueFd(pair[1]);
    }
};

inline int give(fid_t fid, unsigned option, int socket, std::uint64_t id = 0)
{
    const fi_vma_link link{socket, 0, id};
    return fi_setopt(fid, FI_OPT_ENDPOINT, static_cast<int>(option), &link, sizeof link);
}

// On success it is the provider's.
inline void hand_over(fid_t fid, core::UniqueFd &socket, std::uint64_t id = 0)
{
    assert_int_equal(give(fid, FI_OPT_VMA_LINK, socket.get(), id), 0);
    static_cast<void>(socket.release());
}

struct Meeting {
    const OwnDirectory directory;
    Net client;
    Net server;
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    const TcpPair tcp;

    fid_ep *ask(core::UniqueFd &link)
    {
        fid_ep *const ep = client.endpoint();
        assert_int_equal(stand_beside(ep, tcp.client), 0);
        hand_over(&ep->fid, link);
        assert_int_equal(fi_connect(ep, nullptr, "hello", 5), 0);
        return ep;
    }
    fid_ep *answer(const Event &request) { return answer(request, tcp.server); }
    fid_ep *answer(const Event &request, const core::UniqueFd &socket)
    {
        expect(request, FI_CONNREQ, &pep->fid);
        assert_string_equal(request.data.c_str(), "hello");
        fid_ep *const ep = server.endpoint(request.info.get());
        assert_int_equal(stand_beside(ep, socket), 0);
        assert_int_equal(fi_accept(ep, nullptr, 0), 0);
        return ep;
    }
    void talk(fid_ep *from, fid_ep *to)
    {
        char in[8] = {};
        assert_int_equal(fi_recv(to, in, sizeof in, nullptr, 0, nullptr), 0);
        assert_int_equal(fi_send(from, "1234567", 8, nullptr, 0, nullptr), 0);
        fi_cq_data_entry entry{};
        while (fi_cq_read(server.cq, &entry, 1) != 1)
            static_cast<void>(fi_cq_read(client.cq, &entry, 1));
        assert_string_equal(in, "1234567");
    }
    ~Meeting() { assert_int_equal(fi_close(&pep->fid), 0); }
};

inline const pid_t g_maker = getpid(); // who names the meeting, also for its children

inline sockaddr_un abstract_name(socklen_t &length)
{
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "vma-guest-link-test-%d", g_maker);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
    return name;
}

inline core::UniqueFd listening()
{
    core::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    socklen_t length = 0;
    const sockaddr_un name = abstract_name(length);
    assert_int_equal(bind(socket.get(), reinterpret_cast<const sockaddr *>(&name), length), 0);
    assert_int_equal(listen(socket.get(), 64), 0);
    return socket;
}

inline core::UniqueFd reached()
{
    core::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    socklen_t length = 0;
    const sockaddr_un name = abstract_name(length);
    if (connect(socket.get(), reinterpret_cast<const sockaddr *>(&name), length) != 0)
        socket.reset();
    return socket;
}

} // namespace vma::test
