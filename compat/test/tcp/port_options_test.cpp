// SPDX-License-Identifier: BSD-2-Clause
// What the variables say of connections on Ethernet ports, as the port's TCP is told it: over an endpoint that only
// notes it.
#include "fabtests/unit.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include <cerrno>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/port_options.hpp"

using namespace vma;

namespace {

fi_vma_tcp g_told;

int get_nothing(fid_t, int, int, void *value, std::size_t *size)
{
    memset(value, 0, *size);
    return 0;
}

int note(fid_t, int, int name, const void *value, std::size_t size)
{
    assert_int_equal(name, static_cast<int>(FI_OPT_VMA_TCP));
    assert_int_equal(size, sizeof g_told);
    memcpy(&g_told, value, size);
    return 0;
}

const fi_vma_tcp &tell(const config::Params &params, bool v4 = true)
{
    static fi_ops_ep ops = {};
    static fid_ep endpoint = {};
    static sock::Stream s;
    const config::Params before = config::g_params;
    ops.size = sizeof ops;
    ops.getopt = get_nothing;
    ops.setopt = note;
    endpoint.fid.fclass = FI_CLASS_EP;
    endpoint.ops = &ops;
    s.endpoint = &endpoint;
    s.addresses = {};
    s.addresses.peer.sin6_family = AF_INET6;
    const char *const address = v4 ? "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\1" : "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1";
    memcpy(&s.addresses.peer.sin6_addr, address, sizeof(in6_addr));
    config::g_params = params;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int reno = ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    assert_int_equal(reno, 0);
    assert_int_equal(sock::begin_port_options(s, fd), 0);
    ::close(fd);
    s.endpoint = nullptr;
    config::g_params = before;
    return g_told;
}

// VMA_TCP_NODELAY, VMA_TCP_QUICKACK, VMA_TCP_QUICKACK_THRESHOLD
void switches(void **)
{
    config::Params p = config::g_params;
    assert_int_equal(tell(p).nodelay, 0);
    assert_int_equal(tell(p).quick_ack, 0);
    p.tcp_nodelay = true;
    p.tcp_quickack = true;
    p.tcp_quickack_threshold = 777;
    assert_int_equal(tell(p).nodelay, 1);
    assert_int_equal(tell(p).quick_ack, 1);
    assert_int_equal(tell(p).quick_ack_most, 777);
}

// VMA_MTU, VMA_MSS
void sizes(void **)
{
    config::Params p = config::g_params;
    assert_int_equal(tell(p).max_segment, 0);
    p.mtu = 1400;
    assert_int_equal(tell(p).max_segment, 1360);
    assert_int_equal(tell(p, false).max_segment, 1340);
    p.mss = 1000;
    assert_int_equal(tell(p).max_segment, 1000);
    p.mss = 9000;
    assert_int_equal(tell(p).max_segment, 1360);
    p.mtu = 0;
    assert_int_equal(tell(p).max_segment, 9000);
    p.mss = 1;
    assert_int_equal(tell(p).max_segment, 88);
    p.mss = 0;
    p.mtu = 1;
    assert_int_equal(tell(p).max_segment, 88);
}

// VMA_TCP_CC_ALGO
void congestion(void **)
{
    config::Params p = config::g_params;
    assert_int_equal(p.tcp_cc_algo, config::kCcOfSocket);
    assert_int_equal(tell(p).congestion, FI_VMA_NEWRENO); // as the socket says
    p.tcp_cc_algo = 1;
    assert_int_equal(tell(p).congestion, FI_VMA_CUBIC);
    p.tcp_cc_algo = 0;
    assert_int_equal(tell(p).congestion, FI_VMA_NEWRENO);
    p.tcp_cc_algo = config::kCcNone;
    assert_int_equal(tell(p).congestion, FI_VMA_CUBIC);
}

} // namespace

int main()
{
    libc::resolve_real();
    static const CMUnitTest tests[] = {
        cmocka_unit_test(switches),
        cmocka_unit_test(sizes),
        cmocka_unit_test(congestion),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
