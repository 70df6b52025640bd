// SPDX-License-Identifier: BSD-2-Clause
// The XDP program in the kernel, run on frames that come from nowhere (BPF_PROG_TEST_RUN): what it takes, what it
// passes, what it counts. The socket is bound to no interface, so no frame goes anywhere.
#include "fabtests/unit.hpp"

#include <bpf/bpf.h>
#include <cerrno>
#include <cstdlib>
#include <linux/if_xdp.h>
#include <memory>
#include <sys/socket.h>

#include "core/fd.hpp"
#include "ether/xdp/assembler.hpp"
#include "ether/xdp/bpf.hpp"
#include "ether/xdp/flows.hpp"
#include "ether/xdp/program.hpp"
#include "prov/vma/test/ether/frames.hpp"

using namespace vma;
using namespace vma::ether;
using inet::Flow;
using inet::IpAddress;
using inet::Protocol;

namespace {

constexpr std::uint32_t kCapacity = 16;
constexpr std::uint8_t kTcp = 6;
constexpr std::uint8_t kUdp = 17;

IpAddress v6(std::uint8_t last)
{
    const std::uint8_t bytes[16] = {0xfd, 0x99, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, last};
    return IpAddress::v6(bytes);
}

const Flow kFlow{{IpAddress::v4(0x0a630001), 7000}, {IpAddress::v4(0x0a630002), 40000}};
const Flow kFlow6{{v6(1), 7000}, {v6(2), 40000}};

Flow listener(const Flow &flow)
{
    return {flow.local, {}};
}

Flow any_listener(const Flow &flow)
{
    const std::uint8_t zero[16] = {};
    return {{flow.local.address.is_v4() ? IpAddress::v4(0u) : IpAddress::v6(zero), flow.local.port}, {}};
}

struct Bench {
    XdpProgram program;
    core::UniqueFd socket;
    std::unique_ptr<XdpFlows> flows;

    std::uint32_t verdict(std::span<const std::uint8_t> frame) const
    {
        bpf_test_run_opts options{};
        options.sz = sizeof options;
        options.data_in = frame.data();
        options.data_size_in = static_cast<std::uint32_t>(frame.size());
        assert_int_equal(bpf_prog_test_run_opts(program.program(), &options), 0);
        return options.retval;
    }
    bool takes(const frames::Ip &ip, std::initializer_list<std::uint32_t> tags = {}) const
    {
        const std::uint32_t given = verdict(frames::make(ip, tags));
        assert_true(given == XDP_REDIRECT || given == XDP_PASS);
        return given == XDP_REDIRECT;
    }
    void add(const Flow &flow, Protocol protocol, Vlans vlans = {}) const
    {
        assert_int_equal(flows->add(flow, protocol, vlans), 0);
    }
    void remove(const Flow &flow, Protocol protocol, Vlans vlans = {}) const
    {
        assert_int_equal(flows->remove(flow, protocol, vlans), 0);
    }
};

int set_up(void **state)
{
    auto bench = std::make_unique<Bench>();
    const int status =
        XdpProgram::open({.flows = kCapacity, .addresses = 2, .queues = 4, .places = 2}, {}, bench->program);
    if (status == -EPERM || status == -ENOSYS)
        return 0; // the cases are skipped
    assert_int_equal(status, 0);
    bench->socket = core::make_fd([] { return ::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0); });
    assert_true(static_cast<bool>(bench->socket));
    assert_int_equal(bench->program.set_socket(0, bench->socket.get()), 0);
    bench->flows = std::make_unique<XdpFlows>(bench->program.flows_map(), bench->program.addresses_map());
    *state = bench.release();
    return 0;
}

int tear_down(void **state)
{
    delete static_cast<Bench *>(*state);
    return 0;
}

Bench &bench_of(void **state)
{
    if (*state == nullptr) {
        UNIT_SKIP("no right to load BPF programs");
        std::abort(); // not reached
    }
    return *static_cast<Bench *>(*state);
}

void takes_a_connection_and_nothing_beside_it(void **state)
{
    Bench &bench = bench_of(state);
    for (const Flow &flow : {kFlow, kFlow6}) {
        assert_false(bench.takes({flow, kUdp}));
        bench.add(flow, Protocol::kUdp);
        assert_true(bench.takes({flow, kUdp}));
        assert_false(bench.takes({flow, kTcp}));
        assert_false(bench.takes({flow, 132}));
        assert_false(bench.takes({{flow.remote, flow.local}, kUdp}));
        Flow other = flow;
        ++other.remote.port;
        assert_false(bench.takes({other, kUdp}));
        other = flow;
        ++other.local.port;
        assert_false(bench.takes({other, kUdp}));
        for (const unsigned byte : {0u, 12u, 15u}) { // of an IPv4 address only the last four are in the frame
            other = flow;
            other.remote.address.bytes[byte] ^= 1;
            if (other.remote.address.is_v4() == flow.remote.address.is_v4() &&
                (byte >= 12 || !flow.remote.address.is_v4()))
                assert_false(bench.takes({other, kUdp}));
        }
        bench.remove(flow, Protocol::kUdp);
        assert_false(bench.takes({flow, kUdp}));
    }
}

void takes_a_listener_from_any_remote(void **state)
{
    Bench &bench = bench_of(state);
    for (const Flow &flow : {kFlow, kFlow6}) {
        bench.add(listener(flow), Protocol::kTcp);
        assert_true(bench.takes({flow, kTcp}));
        Flow other = flow;
        other.remote.address.bytes[15] ^= 9;
        other.remote.port = 1;
        assert_true(bench.takes({other, kTcp}));
        assert_false(bench.takes({other, kUdp}));
        other.local.address.bytes[15] ^= 9;
        assert_false(bench.takes({other, kTcp}));
    }
}

void any_address_means_those_of_this_machine(void **state)
{
    Bench &bench = bench_of(state);
    for (const Flow &flow : {kFlow, kFlow6}) {
        bench.add(any_listener(flow), Protocol::kUdp);
        assert_false(bench.takes({flow, kUdp}));
        assert_int_equal(bench.flows->add_address(flow.local.address), 0);
        assert_int_equal(bench.flows->add_address(flow.local.address), 0);
        assert_true(bench.takes({flow, kUdp}));
        Flow forwarded = flow;
        forwarded.local.address.bytes[15] ^= 9;
        assert_false(bench.takes({forwarded, kUdp}));
        assert_int_equal(bench.flows->remove_address(flow.local.address), 0);
        assert_false(bench.takes({flow, kUdp}));
        assert_int_equal(bench.flows->add_address(flow.local.address), 0);
        bench.remove(any_listener(flow), Protocol::kUdp);
        assert_false(bench.takes({flow, kUdp})); // the other family's, which is there in the second turn, is not meant
        bench.add(any_listener(flow), Protocol::kUdp);
    }
    assert_int_equal(bench.flows->add_address(v6(77)), -ENOSPC);
}

void any_address_of_one_family_is_not_of_the_other(void **state)
{
    Bench &bench = bench_of(state);
    assert_int_equal(bench.flows->add_address(kFlow.local.address), 0);
    assert_int_equal(bench.flows->add_address(kFlow6.local.address), 0);
    bench.add(any_listener(kFlow), Protocol::kUdp);
    assert_true(bench.takes({kFlow, kUdp}));
    assert_false(bench.takes({kFlow6, kUdp}));
    bench.add(any_listener(kFlow6), Protocol::kUdp);
    bench.remove(any_listener(kFlow), Protocol::kUdp);
    assert_false(bench.takes({kFlow, kUdp}));
    assert_true(bench.takes({kFlow6, kUdp}));
}

void a_flow_is_of_its_vlan(void **state)
{
    Bench &bench = bench_of(state);
    constexpr std::uint32_t kCustomer = 0x81000000;
    constexpr std::uint32_t kService = 0x88a80000;
    for (const Flow &flow : {kFlow, kFlow6}) {
        bench.add(flow, Protocol::kUdp);
        assert_true(bench.takes({flow, kUdp}, {kCustomer | 0xe000})); // a priority, and no VLAN
        assert_false(bench.takes({flow, kUdp}, {kCustomer | 7}));
        bench.remove(flow, Protocol::kUdp);
        bench.add(flow, Protocol::kUdp, {7, 0});
        assert_true(bench.takes({flow, kUdp}, {kCustomer | 0x6007}));
        assert_false(bench.takes({flow, kUdp}, {kCustomer | 0x107}));
        assert_false(bench.takes({flow, kUdp}, {kService | 7, kCustomer | 9}));
        assert_false(bench.takes({flow, kUdp}));
        bench.add(flow, Protocol::kUdp, {7, 9});
        assert_true(bench.takes({flow, kUdp}, {kService | 7, kCustomer | 9}));
        assert_false(bench.takes({flow, kUdp}, {kService | 7, kCustomer | 9, kCustomer | 9}));
    }
}

void fragments_come_with_tcp_flows_only(void **state)
{
    Bench &bench = bench_of(state);
    Flow second = kFlow;
    second.remote.port = 40001;
    for (const std::uint8_t protocol : {kTcp, kUdp}) {
        bench.add(kFlow, Protocol{protocol});
        bench.add(second, Protocol{protocol});
        for (const unsigned field : {0x2000u, 0x2001u, 0x0001u, 0x1fffu}) {
            assert_int_equal(bench.takes({kFlow, protocol, 0, field}), protocol == kTcp);
            assert_false(bench.takes({{kFlow.remote, kFlow.local}, protocol, 0, field}));
        }
        assert_true(bench.takes({kFlow, protocol, 0, 0x4000})); // don't fragment
        bench.remove(kFlow, Protocol{protocol});
        assert_int_equal(bench.takes({kFlow, protocol, 0, 0x2000}), protocol == kTcp);
        bench.remove(second, Protocol{protocol});
        assert_false(bench.takes({kFlow, protocol, 0, 0x2000}));
    }
    bench.add(kFlow6, Protocol::kTcp);
    assert_true(bench.takes({kFlow6, kTcp, 0, 1, true}));
    assert_true(bench.takes({kFlow6, kTcp, 0, 0xfff8, true}));
    assert_false(bench.takes({kFlow6, kUdp, 0, 1, true}));
    bench.remove(kFlow6, Protocol::kTcp);
    assert_false(bench.takes({kFlow6, kTcp, 0, 1, true}));
}

void reads_ports_behind_ip_options(void **state)
{
    Bench &bench = bench_of(state);
    bench.add(kFlow, Protocol::kUdp);
    for (unsigned words = 0; words <= 10; ++words)
        assert_true(bench.takes({kFlow, kUdp, words}));
}

// A router's word that a packet was too big, with the start of the packet: one that the flow's local side has sent.
frames::Bytes too_big(const Flow &flow, std::uint8_t protocol, unsigned type_and_code, unsigned quoted_fragment = 0)
{
    const bool v4 = flow.local.address.is_v4();
    const Flow router{{flow.local.address, 0}, {v4 ? IpAddress::v4(0x0a6300fe) : v6(99), 0}};
    frames::Bytes frame = frames::make({router, static_cast<std::uint8_t>(v4 ? 1 : 58)});
    frame.resize(14 + (v4 ? 20 : 40));
    frames::put16(frame, type_and_code);
    frame.resize(frame.size() + 6);
    frames::append(frame, {{flow.remote, flow.local}, protocol, 0, quoted_fragment});
    return frame;
}

void takes_what_routers_say_of_tcp_packets_that_are_too_big(void **state)
{
    Bench &bench = bench_of(state);
    for (const Flow &flow : {kFlow, kFlow6}) {
        const unsigned type = flow.local.address.is_v4() ? 3 << 8 | 4 : 2 << 8;
        const frames::Bytes said = too_big(flow, kTcp, type);
        assert_int_equal(bench.verdict(said), XDP_PASS);
        for (const Flow &ours : {flow, listener(flow)}) {
            bench.add(ours, Protocol::kTcp);
            assert_int_equal(bench.verdict(said), XDP_REDIRECT);
            Flow other = flow;
            ++other.local.port;
            assert_int_equal(bench.verdict(too_big(other, kTcp, type)), XDP_PASS);
            assert_int_equal(bench.verdict(too_big({flow.remote, flow.local}, kTcp, type)), XDP_PASS); // what it got
            assert_int_equal(bench.verdict(too_big(flow, kTcp, 3 << 8 | 1)), XDP_PASS);
            assert_int_equal(bench.verdict(too_big(flow, kTcp, 8 << 8)), XDP_PASS);
            bench.remove(ours, Protocol::kTcp);
        }
        bench.add(flow, Protocol::kUdp);
        assert_int_equal(bench.verdict(too_big(flow, kUdp, type)), XDP_PASS); // the kernel tells the socket
        bench.add(flow, Protocol::kTcp);
        const std::size_t ports_end = said.size() - 8;
        for (std::size_t size = 14; size < ports_end; ++size)
            assert_int_equal(bench.verdict({said.data(), size}), XDP_PASS);
        assert_int_equal(bench.verdict({said.data(), ports_end}), XDP_REDIRECT);
    }
    assert_int_equal(bench.verdict(too_big(kFlow, kTcp, 3 << 8 | 4, 0x2000)), XDP_REDIRECT); // the first fragment
    assert_int_equal(bench.verdict(too_big(kFlow, kTcp, 3 << 8 | 4, 0x0001)), XDP_PASS);     // it has no ports
}

void short_and_wrong_frames_pass(void **state)
{
    Bench &bench = bench_of(state);
    for (const Flow &flow : {kFlow, kFlow6}) {
        bench.add(flow, Protocol::kTcp);
        const frames::Bytes whole = frames::make({flow, kTcp}, {0x81000000, 0x81000000});
        assert_int_equal(bench.verdict(whole), XDP_REDIRECT);
        const std::size_t ports_end = whole.size() - 8;
        for (std::size_t size = 14; size < ports_end; ++size)
            assert_int_equal(bench.verdict({whole.data(), size}), XDP_PASS);
        assert_int_equal(bench.verdict({whole.data(), ports_end}), XDP_REDIRECT);
        for (const int first : {0x00, 0x44, 0x35, 0x55, 0x50, 0x70, 0xf5}) {
            frames::Bytes wrong = whole;
            wrong[14 + 8] = static_cast<std::uint8_t>(first);
            assert_int_equal(bench.verdict(wrong), XDP_PASS);
        }
        frames::Bytes other = whole;
        other[12 + 8] ^= 1; // no IP
        assert_int_equal(bench.verdict(other), XDP_PASS);
    }
}

void counts_and_passes_where_the_queue_has_no_socket(void **state)
{
    Bench &bench = bench_of(state);
    bench.add(kFlow, Protocol::kUdp);
    for (int i = 0; i < 3; ++i)
        assert_true(bench.takes({kFlow, kUdp}));
    for (int i = 0; i < 2; ++i)
        assert_false(bench.takes({kFlow6, kUdp}));
    bench.socket.reset(); // takes it out of the map
    assert_false(bench.takes({kFlow, kUdp}));
    SteeringCounters counters;
    assert_int_equal(bench.program.counters(counters), 0);
    assert_int_equal(counters.hits, 3);
    assert_int_equal(counters.passes, 2);
    assert_int_equal(counters.errors, 1);
    assert_int_equal(bench.program.set_socket(0, bench.program.program()), -ENOTSOCK);
    assert_int_equal(bench.program.set_socket(4, 0), -E2BIG);
}

void the_table_fills_up_and_empties(void **state)
{
    Bench &bench = bench_of(state);
    Flow flow = kFlow;
    for (std::uint32_t i = 0; i < kCapacity; ++i, ++flow.local.port)
        bench.add(flow, Protocol::kUdp);
    assert_int_equal(bench.flows->count(), kCapacity);
    assert_int_equal(bench.flows->add(flow, Protocol::kUdp), kFlowTableFull);
    assert_int_equal(bench.flows->add(kFlow, Protocol::kUdp), -EEXIST);
    bench.remove(kFlow, Protocol::kUdp);
    assert_int_equal(bench.flows->remove(kFlow, Protocol::kUdp), -ENOENT);
    // One place is left, and a TCP flow takes two: nothing of it stays.
    assert_int_equal(bench.flows->add(flow, Protocol::kTcp), kFlowTableFull);
    assert_false(bench.takes({flow, kTcp}));
    bench.add(flow, Protocol::kUdp);
    assert_int_equal(bench.flows->count(), kCapacity);
}

// A flow is one process's; an address is theirs who have named it; what one has left goes, and nothing of others'.
void several_processes_have_flows_of_their_own(void **state)
{
    Bench &bench = bench_of(state);
    XdpFlows other(bench.program.flows_map(), bench.program.addresses_map(), 1);
    Flow second = kFlow;
    ++second.remote.port;
    bench.add(kFlow, Protocol::kTcp);
    assert_int_equal(other.add(kFlow, Protocol::kTcp), -EEXIST);
    assert_int_equal(other.add(second, Protocol::kTcp), 0);
    assert_true(bench.takes({kFlow, kTcp}));
    assert_false(bench.takes({second, kTcp})); // its place has no socket
    assert_int_equal(bench.program.set_socket(0, bench.socket.get(), 1), 0);
    assert_true(bench.takes({second, kTcp}));
    bench.program.remove_socket(0, 1);
    assert_false(bench.takes({second, kTcp}));
    assert_int_equal(bench.program.set_socket(0, bench.socket.get(), 1), 0);

    assert_int_equal(bench.flows->add_address(kFlow.local.address), 0);
    assert_int_equal(other.add_address(kFlow.local.address), 0);
    bench.add(any_listener(kFlow), Protocol::kUdp);
    assert_true(bench.takes({kFlow, kUdp}));
    assert_int_equal(bench.flows->remove_address(kFlow.local.address), 0);
    assert_true(bench.takes({kFlow, kUdp}));

    XdpFlows::forget(bench.program.flows_map(), bench.program.addresses_map(), 1);
    assert_false(bench.takes({second, kTcp}));
    assert_true(bench.takes({kFlow, kTcp}));
    assert_false(bench.takes({kFlow, kUdp})); // nobody names the address
    bench.remove(kFlow, Protocol::kTcp);
    bench.remove(any_listener(kFlow), Protocol::kUdp);
}

void refuses_what_is_no_flow(void **)
{
    XdpFlows flows(-1, -1);
    assert_int_equal(flows.add(kFlow, Protocol::kIcmp), -EINVAL);
    assert_int_equal(flows.add({{kFlow.local.address, 0}, kFlow.remote}, Protocol::kUdp), -EINVAL);
    assert_int_equal(flows.add({kFlow.local, kFlow6.remote}, Protocol::kUdp), -EINVAL);
    assert_int_equal(flows.add({any_listener(kFlow).local, kFlow.remote}, Protocol::kUdp), -EINVAL);
    assert_int_equal(flows.remove(kFlow, Protocol::kIcmp6), -EINVAL);
    assert_int_equal(flows.add(kFlow, Protocol::kUdp), -EBADF);
}

void assembler_fills_jumps_in(void **)
{
    Assembler code;
    const Assembler::Label end = code.label();
    code.move(Reg::r0, 2);
    code.jump(If::kAbove, Reg::r1, Reg::r2, end);
    code.load_map(Reg::r1, 5);
    code.bind(end);
    code.exit();
    const std::span<const bpf_insn> made = code.finish();
    assert_int_equal(made.size(), 5);
    assert_int_equal(made[1].off, 2);
    assert_int_equal(made[1].code, BPF_JMP | BPF_JGT | BPF_X);
    assert_int_equal(made[2].src_reg, BPF_PSEUDO_MAP_FD);
}

void assembler_refuses_unbound_labels_and_overlong_programs(void **)
{
    Assembler unbound;
    unbound.jump(unbound.label());
    unbound.exit();
    assert_true(unbound.finish().empty());

    Assembler backward;
    const Assembler::Label start = backward.label();
    backward.bind(start);
    backward.jump(start);
    assert_true(backward.finish().empty());

    Assembler overlong;
    for (std::size_t i = 0; i < Assembler::kMaxInstructions; ++i)
        overlong.exit();
    assert_false(overlong.finish().empty());
    overlong.exit();
    assert_true(overlong.finish().empty());
}

#define ON_BENCH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        ON_BENCH(takes_a_connection_and_nothing_beside_it),
        ON_BENCH(takes_a_listener_from_any_remote),
        ON_BENCH(any_address_means_those_of_this_machine),
        ON_BENCH(any_address_of_one_family_is_not_of_the_other),
        ON_BENCH(a_flow_is_of_its_vlan),
        ON_BENCH(fragments_come_with_tcp_flows_only),
        ON_BENCH(reads_ports_behind_ip_options),
        ON_BENCH(takes_what_routers_say_of_tcp_packets_that_are_too_big),
        ON_BENCH(short_and_wrong_frames_pass),
        ON_BENCH(counts_and_passes_where_the_queue_has_no_socket),
        ON_BENCH(the_table_fills_up_and_empties),
        ON_BENCH(several_processes_have_flows_of_their_own),
        cmocka_unit_test(refuses_what_is_no_flow),
        cmocka_unit_test(assembler_fills_jumps_in),
        cmocka_unit_test(assembler_refuses_unbound_labels_and_overlong_programs),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
