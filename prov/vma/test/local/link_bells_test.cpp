// SPDX-License-Identifier: BSD-2-Clause
// Doorbells of a link: their descriptors come once, and then their numbers alone.
#include "prov/vma/test/local/raw_link.hpp"

#include "local/cm/link_bells.hpp"

using namespace vma;
using namespace vma::test;

namespace {

// A number that came with descriptors is known by itself from then on. One that is not known is answered as what was
// lost, and the link goes on.
void a_doorbell_comes_once(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    raw.send(request(victim.address, 1), local::kOfferFdCount);
    LinkMessage later = request(victim.address, 2);
    later.brings = local::kBringsSegment;
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

// Two that have one place push each other out, and come with each offer.
void two_doorbells_have_one_place(void **)
{
    Victim victim;
    const Raw raw = victim.connect();
    raw.send(message(MessageType::hello));
    const struct {
        std::uint64_t doorbell;
        std::uint64_t tx_doorbell;
        std::uint32_t brings;
        unsigned descriptors;
    } offers[] = {
        {1, 9, local::kBringsDoorbell | local::kBringsTxDoorbell, 5},
        {1, 9, local::kBringsDoorbell | local::kBringsTxDoorbell, 5},
        {9, 2, local::kBringsTxDoorbell, 3},
        {1, 2, local::kBringsDoorbell, 3},
        {9, 9, local::kBringsDoorbell, 3},
    };
    std::uint32_t number = 0;
    for (const auto &offer : offers) {
        LinkMessage asked = request(victim.address, ++number);
        asked.offer.doorbell = offer.doorbell;
        asked.offer.tx_doorbell = offer.tx_doorbell;
        asked.brings = local::kBringsSegment | offer.brings;
        raw.send(asked, offer.descriptors);
        const Event event = victim.net.wait();
        assert_int_equal(event.event, FI_CONNREQ);
        assert_int_equal(fi_reject(victim.pep, event.info->handle, nullptr, 0), 0);
    }
    local::SentBells sent(false);
    for (const std::uint64_t bell : {1U, 9U, 1U, 9U, 2U})
        assert_false(sent.has(bell));
    assert_true(sent.has(9) && sent.has(2));
}

// Until the peer says that it has lost something: then it is asked again, once.
void a_doorbell_is_sent_once(void **)
{
    Impostor impostor;
    const Raw raw = impostor.connected();
    raw.send(message(MessageType::hello));
    LinkMessage refusal = message(MessageType::reject);
    const auto refused = [&](RejectReason reason) {
        refusal.reason = reason;
        raw.send(refusal);
    };
    const auto asked = [&] {
        const LinkMessage request = raw.receive();
        assert_true(request.type == MessageType::request);
        refusal.connection = request.connection;
        return (request.brings & (local::kBringsDoorbell | local::kBringsTxDoorbell)) != 0;
    };
    const auto ask = [&] {
        impostor.expect_error(FI_ECONNREFUSED);
        assert_int_equal(fi_connect(impostor.ep, &impostor.address.v6, nullptr, 0), 0);
        return asked();
    };
    refused(RejectReason::program);
    assert_false(ask());
    refused(RejectReason::resources);
    assert_int_equal(impostor.net.poll().result, -FI_EAGAIN);
    assert_true(asked());
    refused(RejectReason::resources);
    assert_true(ask());
    refused(RejectReason::program);
    assert_false(ask());
    refused(RejectReason::program);
    impostor.expect_error(FI_ECONNREFUSED);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_doorbell_comes_once),
        cmocka_unit_test(two_doorbells_have_one_place),
        cmocka_unit_test(a_doorbell_is_sent_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
