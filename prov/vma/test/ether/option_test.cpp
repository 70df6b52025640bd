// SPDX-License-Identifier: BSD-2-Clause
// FI_OPT_VMA_TCP: what is set is given back, and what means nothing changes nothing.
#include "fabtests/unit.hpp"

#include <cstring>

#include <rdma/fi_errno.h>

#include "ether/stream/tcp_option.hpp"
#include "rdma/fi_ext_vma.h"

using namespace vma;

namespace {

fi_vma_tcp read_back(const inet::TcpSettings &settings)
{
    fi_vma_tcp option;
    std::memset(&option, 0xff, sizeof option);
    std::size_t length = sizeof option;
    assert_int_equal(ether::give_tcp_option(settings, &option, &length), 0);
    assert_int_equal(length, sizeof option);
    return option;
}

void defaults_come_back(void **)
{
    const fi_vma_tcp option = read_back({});
    inet::TcpSettings settings;
    settings.nodelay = settings.keepalive = true; // to be overwritten
    assert_int_equal(ether::read_tcp_option(&option, sizeof option, settings), 0);
    const fi_vma_tcp again = read_back(settings);
    assert_memory_equal(&again, &option, sizeof option);
    assert_int_equal(option.keepalive_idle, 7200);
    assert_int_equal(option.nodelay, 0);
    assert_int_equal(option.sack, 1);
}

void each_value_arrives(void **)
{
    inet::TcpSettings settings;
    fi_vma_tcp option = read_back(settings);
    option.send_buffer = 1;
    option.receive_buffer = 70000;
    option.max_segment = 536;
    option.user_timeout = 1500;
    option.keepalive_idle = 3;
    option.keepalive_interval = 2;
    option.rate = 1'000'000'000'000;
    option.keepalive_probes = 1;
    option.syn_retries = 0;
    option.congestion = FI_VMA_NEWRENO;
    option.traffic_class = 0xb8;
    option.hop_limit = 1;
    option.nodelay = option.cork = option.quick_ack = option.keepalive = option.ecn = 1;
    option.timestamps = option.sack = option.window_scaling = 0;
    assert_int_equal(ether::read_tcp_option(&option, sizeof option, settings), 0);
    assert_int_equal(settings.send_buffer, 1);
    assert_int_equal(settings.receive_buffer, 70000);
    assert_int_equal(settings.most_mss, 536);
    assert_int_equal(settings.user_timeout, 1500 * inet::kMillisecond);
    assert_int_equal(settings.keepalive_idle, 3 * inet::kSecond);
    assert_true(settings.congestion == inet::CongestionAlgorithm::kReno);
    assert_true(settings.nodelay && settings.cork && settings.quick_ack && settings.keepalive && settings.ecn);
    assert_false(settings.timestamps || settings.sack || settings.window_scaling);
    const fi_vma_tcp again = read_back(settings);
    assert_memory_equal(&again, &option, sizeof option);
}

void nonsense_is_refused(void **)
{
    inet::TcpSettings settings;
    const fi_vma_tcp good = read_back(settings);
    const auto refuses = [&](auto change) {
        fi_vma_tcp bad = good;
        bad.nodelay = 1;
        change(bad);
        assert_int_equal(ether::read_tcp_option(&bad, sizeof bad, settings), -FI_EINVAL);
        assert_false(settings.nodelay); // nothing of it has been taken
    };
    refuses([](fi_vma_tcp &t) { t.send_buffer = 0; });
    refuses([](fi_vma_tcp &t) { t.receive_buffer = 0; });
    refuses([](fi_vma_tcp &t) { t.max_segment = 63; });
    refuses([](fi_vma_tcp &t) { t.max_segment = 65536; });
    refuses([](fi_vma_tcp &t) { t.keepalive_idle = 0; });
    refuses([](fi_vma_tcp &t) { t.keepalive_interval = 0; });
    refuses([](fi_vma_tcp &t) { t.keepalive_probes = 0; });
    refuses([](fi_vma_tcp &t) { t.congestion = 2; });
    refuses([](fi_vma_tcp &t) { t.traffic_class = 1; }); // a bit of ECN
    refuses([](fi_vma_tcp &t) { t.hop_limit = 0; });
    refuses([](fi_vma_tcp &t) { t.ecn = 2; });
    refuses([](fi_vma_tcp &t) { t.unused[2] = 1; });
    assert_int_equal(ether::read_tcp_option(&good, sizeof good - 1, settings), -FI_EINVAL);
    assert_int_equal(ether::read_tcp_option(nullptr, sizeof good, settings), -FI_EINVAL);
}

void no_room_for_the_answer(void **)
{
    fi_vma_tcp option;
    std::size_t length = sizeof option - 1;
    assert_int_equal(ether::give_tcp_option({}, &option, &length), -FI_ETOOSMALL);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_back),
        cmocka_unit_test(each_value_arrives),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(no_room_for_the_answer),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
