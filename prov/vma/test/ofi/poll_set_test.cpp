// SPDX-License-Identifier: BSD-2-Clause
// Poll sets: of several queues and counters those are named that have something new, also if nobody else makes
// progress.
#include "prov/vma/test/rdm/pair.hpp"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // libfabric 2.x would have programs do without poll sets

using namespace vma;
using namespace vma::test;

namespace {

void tells_of_queues_and_counters(void **)
{
    OwnDirectory directory;
    Rdm a;
    Rdm b;
    const fi_addr_t to_b = a.insert(b.name);
    std::uint64_t cell = 0;
    fid_mr *const mr = b.expose(&cell, sizeof cell, 1);
    b.cq->fid.context = &b.cq;
    b.counter->fid.context = &b.counter;
    fid_poll *set = nullptr;
    REQUIRE(fi_poll_open(b.domain, nullptr, &set) == 0);
    REQUIRE(fi_poll_add(set, &b.cq->fid, 0) == 0);
    REQUIRE(fi_poll_add(set, &b.counter->fid, 0) == 0);
    assert_int_equal(fi_poll_add(set, &b.ep->fid, 0), -FI_EINVAL);
    void *contexts[4] = {};
    assert_int_equal(fi_poll(set, contexts, 4), 0);

    char got[4] = {};
    REQUIRE(fi_recv(b.ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, got) == 0);
    REQUIRE(fi_inject(a.ep, "x", 1, to_b) == 0);
    int found;
    while ((found = fi_poll(set, contexts, 4)) == 0) {
    }
    assert_int_equal(found, 1);
    assert_ptr_equal(contexts[0], &b.cq);
    assert_int_equal(fi_poll(set, contexts, 4), 1); // until it is read
    assert_int_equal(fi_poll(set, contexts, 0), 0);
    assert_ptr_equal(next_of(b.cq).told.op_context, got);
    assert_int_equal(fi_poll(set, contexts, 4), 0);

    const std::uint64_t value = 5;
    REQUIRE(fi_inject_write(a.ep, &value, sizeof value, to_b, 0, 1) == 0);
    while ((found = fi_poll(set, contexts, 4)) == 0) {
    }
    assert_int_equal(found, 1);
    assert_ptr_equal(contexts[0], &b.counter);
    assert_int_equal(fi_poll(set, contexts, 4), 0); // told once
    assert_int_equal(cell, 5);

    REQUIRE(fi_poll_del(set, &b.cq->fid, 0) == 0);
    assert_int_equal(fi_poll_del(set, &b.cq->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_close(&b.domain->fid), -FI_EBUSY);
    REQUIRE(fi_close(&set->fid) == 0);
    REQUIRE(fi_close(&mr->fid) == 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(tells_of_queues_and_counters),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
