// SPDX-License-Identifier: BSD-2-Clause
// Doorbells of a link: their descriptors come once, and then their numbers alone.
#include "prov/vma/test/local/raw_link.hpp"

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

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_doorbell_comes_once),
        cmocka_unit_test(a_doorbell_is_sent_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
