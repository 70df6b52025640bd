// SPDX-License-Identifier: BSD-2-Clause
// Connected endpoints for the tests of connection management, and what they expect of events.
#pragma once

#include "prov/vma/test/fixture.hpp"

#include "ofi/info/attr.hpp"

namespace vma::test {

inline std::string pattern(std::size_t length, unsigned seed)
{
    std::string text(length, '\0');
    for (std::size_t i = 0; i < length; ++i)
        text[i] = static_cast<char>(i * 7 + seed);
    return text;
}

inline ofi::Address name_of(fid_t fid)
{
    ofi::Address address;
    std::size_t length = sizeof(sockaddr_in6);
    assert_int_equal(fi_getname(fid, &address.v6, &length), 0);
    return address;
}

inline void expect(const Event &event, std::uint32_t kind, fid_t fid)
{
    if (event.result < 0)
        print_error("result %zd, err %d\n", event.result, event.err);
    assert_true(event.result > 0);
    assert_int_equal(event.event, kind);
    assert_ptr_equal(event.fid, fid);
}

inline void expect_refused(const Event &event, fid_t fid)
{
    assert_int_equal(event.result, -FI_EAVAIL);
    assert_int_equal(event.err, FI_ECONNREFUSED);
    assert_ptr_equal(event.fid, fid);
}

inline void close_all(std::initializer_list<fid_t> fids)
{
    for (fid_t fid : fids)
        assert_int_equal(fi_close(fid), 0);
}

// A connected pair: the client's side and the server's.
struct Pair {
    fid_pep *pep;
    fid_ep *client;
    fid_ep *server;
    ofi::Address address;
};

inline Pair connected(Net &client, Net &server)
{
    Pair pair{};
    pair.pep = server.listen(pair.address);
    pair.client = client.endpoint();
    assert_int_equal(fi_connect(pair.client, &pair.address.v6, nullptr, 0), 0);
    const Event request = server.wait();
    expect(request, FI_CONNREQ, &pair.pep->fid);
    pair.server = server.endpoint(request.info.get());
    assert_int_equal(fi_accept(pair.server, nullptr, 0), 0);
    expect(server.wait(), FI_CONNECTED, &pair.server->fid);
    expect(client.wait(), FI_CONNECTED, &pair.client->fid);
    return pair;
}

} // namespace vma::test
