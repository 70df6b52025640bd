// SPDX-License-Identifier: BSD-2-Clause
// Connections one after the other over a link that keeps their segments, and links on which that goes wrong.
#include "prov/vma/test/local/cm_pair.hpp"
#include "prov/vma/test/local/raw_link.hpp"

#include <memory>
#include <utility>

#include "local/msg/endpoint.hpp"
#include "rdma/fi_ext_vma.h"

using namespace vma;
using namespace vma::test;
using local::OwnSegment;

namespace {

fid_ep *with_region(Net &net, fi_info *info)
{
    const std::size_t bytes = 65536;
    fid_ep *const ep = net.endpoint(info);
    assert_int_equal(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &bytes, sizeof bytes),
                     0);
    assert_int_equal(fi_enable(ep), 0);
    return ep;
}

bool has_kept(fid_ep *ep)
{
    const OwnSegment &segment = local::Endpoint::from(ep).receiver.segment;
    assert_non_null(segment.mapping.data());
    return !segment.fd;
}

std::byte *region_of(fid_ep *ep)
{
    return local::Endpoint::from(ep).receiver.region;
}

void send_to(fid_ep *from, Net &net, fid_ep *to, std::size_t length, unsigned seed)
{
    const std::string bytes = pattern(length, seed);
    assert_int_equal(fi_inject_writedata(from, bytes.data(), length, seed, 0, 0, FI_VMA_REGION_KEY), 0);
    fi_cq_data_entry entry{};
    ssize_t got;
    while ((got = fi_cq_read(net.cq, &entry, 1)) == -FI_EAGAIN) {
    }
    assert_int_equal(got, 1);
    assert_true(entry.data == seed && entry.len == length);
    assert_memory_equal(region_of(to), bytes.data(), length);
}

struct Sides {
    OwnDirectory directory;
    Net client;
    std::unique_ptr<Net> server = std::make_unique<Net>();
    ofi::Address address;
    fid_pep *pep = server->listen(address);

    fid_ep *caller()
    {
        fi_info info = *client.info;
        info.dest_addr = &address.v6;
        info.dest_addrlen = address.size();
        return with_region(client, &info);
    }

    // A connection from its beginning to its end. Whether the two ends have what an earlier one has left.
    std::pair<bool, bool> connect(unsigned seed = 1)
    {
        fid_ep *const caller = this->caller();
        assert_int_equal(fi_connect(caller, &address.v6, nullptr, 0), 0);
        const Event request = server->wait();
        expect(request, FI_CONNREQ, &pep->fid);
        fid_ep *const called = with_region(*server, request.info.get());
        const std::pair<bool, bool> kept = {has_kept(caller), has_kept(called)};
        assert_int_equal(fi_accept(called, nullptr, 0), 0);
        expect(server->wait(), FI_CONNECTED, &called->fid);
        expect(client.wait(), FI_CONNECTED, &caller->fid);
        for (const std::size_t length : {3U, 60000U, 96U, 97U}) {
            send_to(caller, *server, called, length, ++seed);
            send_to(called, client, caller, length, ++seed);
        }
        close_all({&caller->fid});
        expect(server->wait(), FI_SHUTDOWN, &called->fid);
        close_all({&called->fid});
        return kept;
    }
};

// Who asks has two of them by turns, as the peer's word comes with its answer; who is asked has one.
void connections_one_after_the_other(void **)
{
    Sides sides;
    for (unsigned round = 0; round < 8; ++round)
        assert_true(sides.connect(round * 10) == std::pair(round >= 2, round >= 1));
    close_all({&sides.pep->fid});
}

// A number that the peer has not sent, or of what it has not been asked to map, is answered as what was lost.
void numbers_that_nobody_knows(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    LinkMessage asked = request(victim.address, 1);
    asked.offer.segment = 64;
    raw.send(asked, local::kOfferFdCount);
    const Event event = victim.net.wait();
    assert_int_equal(event.event, FI_CONNREQ);
    assert_int_equal(fi_reject(victim.pep, event.info->handle, nullptr, 0), 0);
    assert_true(raw.receive().type == MessageType::hello);
    assert_true(raw.receive().reason == RejectReason::program);
    asked.brings = 0;
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{64}, std::uint64_t{65}, UINT64_MAX}) {
        asked.connection += 1;
        asked.offer.segment = number;
        raw.send(asked);
        assert_int_equal(victim.net.poll().result, -FI_EAGAIN);
        const LinkMessage answer = raw.receive();
        assert_true(answer.type == MessageType::reject && answer.reason == RejectReason::resources);
    }
    victim.expect_alive();
}

// What the peer at the other end of one link has is of no use on another: that one request is refused.
void the_link_ends_before_the_offer(void **)
{
    Sides sides;
    for (int i = 0; i < 2; ++i)
        sides.connect();
    fid_ep *const late = sides.caller();
    assert_true(has_kept(late));
    close_all({&sides.pep->fid});
    sides.server = std::make_unique<Net>();
    assert_int_equal(sides.client.poll().result, -FI_EAGAIN); // reads the link's end
    assert_int_equal(fi_passive_ep(sides.server->fabric, sides.server->info.get(), &sides.pep, nullptr), 0);
    assert_int_equal(fi_setname(&sides.pep->fid, &sides.address.v6, sides.address.size()), 0);
    assert_int_equal(fi_pep_bind(sides.pep, &sides.server->eq->fid, 0), 0);
    assert_int_equal(fi_listen(sides.pep), 0);
    assert_int_equal(fi_connect(late, &sides.address.v6, nullptr, 0), 0);
    expect_refused(sides.client.wait(), &late->fid);
    close_all({&late->fid});
    sides.connect();
    close_all({&sides.pep->fid});
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(connections_one_after_the_other),
        cmocka_unit_test(numbers_that_nobody_knows),
        cmocka_unit_test(the_link_ends_before_the_offer),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
