// SPDX-License-Identifier: BSD-2-Clause
// How patient an RDMA device is with a peer, as the user's parameters say, on the simulated NIC.
#include "prov/vma/test/verbs/pair.hpp"

#include "verbs/endpoint.hpp"

using namespace vma;
using namespace vma::test;

namespace {

ibv_qp_attr attributes_of(fid_ep *ep)
{
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    assert_int_equal(sim::table()->query_qp(reinterpret_cast<verbs::Endpoint *>(ep)->qp, &attr,
                                            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER,
                                            &init),
                     0);
    return attr;
}

void the_user_sets_retries(void **)
{
    const SimulatedHost host;
    std::uint8_t path = 0;
    {
        RdmaPair pair;
        const ibv_qp_attr attr = attributes_of(pair.a.ep);
        assert_int_equal(attr.retry_cnt, 7);
        assert_int_equal(attr.rnr_retry, 7);
        assert_int_equal(attr.min_rnr_timer, 5);
        path = attr.timeout;
    }
    const char *const kNames[] = {"FI_VMA_RETRY_COUNT", "FI_VMA_RNR_RETRY", "FI_VMA_ACK_TIMEOUT",
                                  "FI_VMA_MIN_RNR_TIMER"};
    const struct {
        const char *values[4];
        std::uint8_t found[4];
    } cases[] = {
        {{"0", "0", "0", "0"}, {0, 0, 0, 0}},        {{"7", "6", "31", "31"}, {7, 6, 31, 31}},
        {{"3", "5", "8", "1"}, {3, 5, 8, 1}},        {{"8", "8", "32", "32"}, {7, 7, path, 5}},
        {{"-1", "x", "4 ", "0x1"}, {7, 7, path, 5}}, {{"99999999999", "", "1.5", "+3"}, {7, 7, path, 5}},
    };
    for (const auto &one : cases) {
        for (int i = 0; i < 4; ++i)
            ::setenv(kNames[i], one.values[i], 1);
        {
            RdmaPair pair;
            for (fid_ep *ep : {pair.a.ep, pair.b.ep}) {
                const ibv_qp_attr attr = attributes_of(ep);
                assert_int_equal(attr.retry_cnt, one.found[0]);
                assert_int_equal(attr.rnr_retry, one.found[1]);
                assert_int_equal(attr.timeout, one.found[2]);
                assert_int_equal(attr.min_rnr_timer, one.found[3]);
            }
        }
        for (const char *name : kNames)
            ::unsetenv(name);
    }
}

// Each side's own parameters hold for what it sends, whichever of them asked for the connection.
void no_patience_with_a_slow_receiver(void **)
{
    for (const bool asked : {true, false}) {
        const SimulatedHost host;
        ::setenv("FI_VMA_RNR_RETRY", asked ? "2" : "7", 1);
        RdmaSide first({});
        ::setenv("FI_VMA_RNR_RETRY", asked ? "7" : "2", 1);
        RdmaSide second({});
        ::unsetenv("FI_VMA_RNR_RETRY");
        first.ep = first.open(first.net.info.get(), nullptr);
        fid_pep *pep = join(first, second);
        RdmaSide &hasty = asked ? first : second;
        RdmaSide &patient = asked ? second : first;
        assert_int_equal(fi_send(patient.ep, "x", 1, nullptr, 0, nullptr), 0);
        for (int i = 0; i < 100; ++i)
            sim::advance(std::chrono::milliseconds(10));
        assert_true(is_quiet(patient.cq()));
        assert_int_equal(fi_send(hasty.ep, "x", 1, nullptr, 0, nullptr), 0);
        for (int i = 0; i < 100; ++i)
            sim::advance(std::chrono::milliseconds(10));
        const fi_cq_err_entry error = error_of(hasty.cq());
        assert_int_equal(error.err, FI_ENORX);
        assert_int_equal(error.prov_errno, IBV_WC_RNR_RETRY_EXC_ERR);
        assert_int_equal(fi_close(&pep->fid), 0);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_user_sets_retries),
        cmocka_unit_test(no_patience_with_a_slow_receiver),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
