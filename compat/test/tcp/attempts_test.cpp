// SPDX-License-Identifier: BSD-2-Clause
// When the two ends of a connection between hosts look for each other (remote_connect.cpp), in virtual time and over a
// simulated RDMA device: whenever either of them begins, they meet, and who has nobody to meet asks seldom.
#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <stdlib.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/offload/connections.hpp"
#include "compat/src/offload/remote_connect.hpp"
#include "compat/src/table/stream.hpp"

using namespace vma;

namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1000 * kMs;
constexpr std::int64_t kTurn = 10 * kMs;      // of the helper threads
constexpr std::int64_t kRoundTrip = 15 * kMs; // of a request and its answer
constexpr std::int64_t kNever = -1;

struct Side {
    sock::Stream stream;
    fid_ep endpoint = {};
    std::int64_t begins = 0; // to make calls
    double calls = 0;        // that were made
    bool is_there() const { return begins != kNever; }
};

struct World {
    std::int64_t now = 0;
    Side connector;
    Side acceptor;
    fid_pep listener = {};
    std::int64_t answer_at = kNever; // of the acceptor's request
    std::size_t hello_size = 0;
    std::uint8_t hello[64] = {};
    unsigned requests = 0;
    bool listens = false;
    bool accepts = true; // else what the connector accepts comes to nothing
};
World *g_world;
sock::Device g_device;

// ---- the device

fi_ops_cm g_cm;
fi_ops g_ops;
fi_ops_fabric g_fabric_ops;
fid_fabric g_fabric;
fid_eq g_events;

int do_nothing(fid *, fid *, std::uint64_t)
{
    return 0;
}

int close_listener(fid *)
{
    g_world->listens = false;
    return 0;
}

int open_passive(fid_fabric *, fi_info *, fid_pep **pep, void *context)
{
    g_world->listener = {{FI_CLASS_PEP, context, &g_ops}, nullptr, &g_cm};
    *pep = &g_world->listener;
    return 0;
}

void make_device()
{
    g_ops.bind = do_nothing;
    g_ops.close = close_listener;
    g_cm.setname = [](fid_t, void *, std::size_t) { return 0; };
    g_cm.listen = [](fid_pep *) {
        g_world->listens = true;
        return 0;
    };
    g_cm.connect = [](fid_ep *, const void *, const void *data, std::size_t size) {
        ++g_world->requests;
        g_world->answer_at = g_world->now + kRoundTrip;
        g_world->hello_size = size;
        memcpy(g_world->hello, data, size);
        return 0;
    };
    g_cm.accept = [](fid_ep *, const void *, std::size_t) { return 0; };
    g_cm.reject = [](fid_pep *, fid_t, const void *, std::size_t) { return 0; };
    g_fabric_ops.passive_ep = open_passive;
    g_fabric.ops = &g_fabric_ops;
    g_device.fabric = &g_fabric;
    g_device.eq = &g_events;
}

void free_nothing(fi_info *) {}

} // namespace

// What the attempts use of the engine and of the endpoints; bound to the names of the library's by the linker (--wrap).
std::int64_t sim_now() asm("__wrap__ZN3vma4sock6now_nsEv");
std::int64_t sim_now()
{
    return g_world->now;
}

bool sim_start() asm("__wrap__ZN3vma4sock12engine_startEv");
bool sim_start()
{
    return true;
}

void sim_wake() asm("__wrap__ZN3vma4sock18engine_wake_helperEv");
void sim_wake() {}

sock::Loaded sim_loaded(sock::Part) asm("__wrap__ZN3vma4sock6loadedENS0_4PartE");
sock::Loaded sim_loaded(sock::Part)
{
    return sock::Loaded::kTried;
}

fi_provider *sim_provider() asm("__wrap__ZN3vma4sock8providerEv");
fi_provider *sim_provider()
{
    static fi_provider provider;
    return &provider;
}

int sim_find(fi_provider &, sock::Want, const sock::Addresses *, fi_info *&info) asm(
    "__wrap__ZN3vma4sock11find_deviceER11fi_providerNS0_4WantEPKNS0_9AddressesERP7fi_info");
int sim_find(fi_provider &, sock::Want, const sock::Addresses *, fi_info *&info)
{
    static fi_info found;
    info = &found;
    return 0;
}

sock::Device *sim_device(fi_info &) asm("__wrap__ZN3vma4sock13remote_deviceER7fi_info");
sock::Device *sim_device(fi_info &)
{
    return &g_device;
}

int sim_open(sock::Stream &s, fi_info *,
             sock::Device &device) asm("__wrap__ZN3vma4sock13open_endpointERNS0_6StreamEP7fi_infoRNS0_6DeviceE");
int sim_open(sock::Stream &s, fi_info *, sock::Device &device)
{
    Side &side = &s == &g_world->connector.stream ? g_world->connector : g_world->acceptor;
    side.endpoint = {};
    side.endpoint.cm = &g_cm;
    sock::put_endpoint(s, &side.endpoint);
    s.connecting = true;
    s.device = &device;
    return 0;
}

void sim_discard(sock::Stream &s) asm("__wrap__ZN3vma4sock16discard_endpointERNS0_6StreamE");
void sim_discard(sock::Stream &s)
{
    sock::put_endpoint(s, nullptr);
    s.connecting = false;
}

namespace {

// ---- the two hosts

sockaddr_in6 end(const char *address, std::uint16_t port)
{
    sockaddr_in6 a = {};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    assert_int_equal(::inet_pton(AF_INET6, address, &a.sin6_addr), 1);
    return a;
}

struct Case {
    std::int64_t connector_begins;
    std::int64_t acceptor_begins;
    bool had_endpoint; // before, and gave it back
    double calls_a_second = 1000;
};

class Hosts
{
public:
    explicit Hosts(const Case &what) : calls_a_turn_(what.calls_a_second * kTurn / kSecond)
    {
        g_world = &world_;
        const sockaddr_in6 one = end("fd00::1", 4000);
        const sockaddr_in6 other = end("fd00::2", 5000);
        world_.connector.begins = what.connector_begins;
        world_.acceptor.begins = what.acceptor_begins;
        world_.connector.stream.role = sock::Role::kConnector;
        world_.connector.stream.addresses = {one, other};
        world_.acceptor.stream.role = sock::Role::kAcceptor;
        world_.acceptor.stream.addresses = {other, one};
        for (Side *side : {&world_.connector, &world_.acceptor}) {
            side->stream.mode = sock::Mode::kKernelOnly;
            side->stream.remote = true;
            side->stream.was_accelerated = what.had_endpoint;
        }
    }
    ~Hosts()
    {
        for (Side *side : {&world_.connector, &world_.acceptor})
            sock::end_attempt(side->stream);
        for (sock::Refusal &refusal : sock::g_connections.refusals)
            refusal = {};
    }
    Hosts(const Hosts &) = delete;
    Hosts &operator=(const Hosts &) = delete;

    World &world() { return world_; }

    // True: they have met.
    bool take_turn()
    {
        world_.now += kTurn;
        for (Side *side : {&world_.connector, &world_.acceptor})
            call(*side);
        sock::tick_attempts();
        return answer();
    }

private:
    // What count_operation() does.
    void call(Side &side)
    {
        sock::Stream &s = side.stream;
        if (!side.is_there() || world_.now < side.begins)
            return;
        const auto before = static_cast<std::uint32_t>(side.calls);
        side.calls += calls_a_turn_;
        const auto calls = static_cast<std::uint32_t>(side.calls);
        if (calls == before)
            return;
        s.operations = calls;
        if (calls >= s.attempt.again_at && !s.attempt.open && s.endpoint == nullptr)
            sock::begin_attempt(s);
    }

    // To the acceptor's request.
    bool answer()
    {
        sock::Stream &asking = world_.acceptor.stream;
        sock::Stream &asked = world_.connector.stream;
        if (asking.endpoint == nullptr || world_.answer_at == kNever || world_.now < world_.answer_at)
            return false;
        world_.answer_at = kNever;
        if (world_.listens && asked.endpoint == nullptr) {
            sockaddr_in6 from = asking.addresses.local;
            fi_info info = {};
            info.dest_addr = &from;
            info.dest_addrlen = sizeof from;
            sock::on_remote_request(&world_.listener, &info, world_.hello, world_.hello_size);
            if (asked.endpoint != nullptr)
                return world_.accepts;
        }
        sock::discard_endpoint(asking);
        sock::attempt_failed(asking);
        return false;
    }

    World world_;
    double calls_a_turn_;
};

// How long it takes from the moment that both look for each other. kNever: longer than `most`.
std::int64_t time_to_meet(const Case &what, std::int64_t most)
{
    Hosts hosts(what);
    const std::int64_t both = std::max(what.connector_begins, what.acceptor_begins);
    while (hosts.world().now < both + most)
        if (hosts.take_turn())
            return hosts.world().now - both;
    return kNever;
}

// How far apart they begin: all pauses have become as long as they get meanwhile.
constexpr std::int64_t kPhases = 360 * kSecond;
constexpr std::int64_t kPhase = 500 * kMs;

void expect_meeting(const Case &what, std::int64_t most)
{
    if (time_to_meet(what, most) != kNever)
        return;
    print_error("connector from %.1f s on, acceptor from %.1f s on: not met %.1f s later\n",
                static_cast<double>(what.connector_begins) / kSecond,
                static_cast<double>(what.acceptor_begins) / kSecond, static_cast<double>(most) / kSecond);
    UNIT_FAIL("they miss each other");
}

void an_acceptor_that_was_accelerated_finds_its_peer_at_once(void **)
{
    for (std::int64_t late = 0; late < kPhases; late += kPhase)
        expect_meeting({0, late, true}, 100 * kMs);
}

// By the acceptor, whose next try is hardly further away than its first one, and never more than a minute.
void a_connector_that_was_accelerated_is_found_by_the_next_try(void **)
{
    for (std::int64_t late = 0; late < kPhases; late += kPhase)
        expect_meeting({late, 0, true}, std::min(late + 3 * kSecond, 61 * kSecond));
}

// Once both have begun: the helper threads do the rest.
void few_calls_are_enough_for_it(void **)
{
    for (std::int64_t late = 0; late < kPhases; late += 7 * kSecond) {
        expect_meeting({0, late, true, 0.1}, 11 * kSecond);
        expect_meeting({late, 0, true, 0.1}, 71 * kSecond);
    }
}

// Neither knows that the other one can. A connector listens for longer than an acceptor pauses.
void those_that_never_met_meet(void **)
{
    for (std::int64_t late = 0; late < kPhases; late += kPhase)
        for (const Case &what : {Case{0, late, false}, Case{late, 0, false}})
            expect_meeting(what, 130 * kSecond);
}

// The connector takes no other request before.
void a_connector_drops_what_came_to_nothing(void **)
{
    Hosts hosts({0, 0, true});
    World &world = hosts.world();
    world.accepts = false;
    while (world.connector.stream.endpoint == nullptr)
        hosts.take_turn();
    world.accepts = true;
    const std::int64_t begin = world.now;
    while (!hosts.take_turn())
        assert_true(world.now < begin + 20 * kSecond);
}

unsigned requests_in(std::int64_t time, const Case &what)
{
    Hosts hosts(what);
    while (hosts.world().now < time)
        hosts.take_turn();
    return hosts.world().requests;
}

// A host without the library, and a peer that has become another program.
void who_has_nobody_to_meet_asks_seldom(void **)
{
    constexpr std::int64_t kHour = 3600 * kSecond;
    assert_in_range(requests_in(kHour, {kNever, 0, false}), 4, 4 * 65);
    assert_in_range(requests_in(kHour, {kNever, 0, true}), 4, 70);
}

void an_attempt_ends_with_what_it_is_for(void **)
{
    Hosts hosts({0, kNever, true});
    World &world = hosts.world();
    while (world.now < kSecond)
        hosts.take_turn();
    assert_true(world.listens);
    world.connector.stream.pinned = true;
    while (world.now < 90 * kSecond)
        hosts.take_turn();
    assert_false(world.listens);
    assert_false(world.connector.stream.attempt.open);
}

} // namespace

int main()
{
    ::setenv("VMA_REMOTE_STREAMS", "1", 1);
    ::setenv("VMA_TRACELEVEL", "warn", 0);
    libc::resolve_real();
    config::load_params();
    make_device();
    static fi_ops_vma_process process;
    process.freeinfo = free_nothing;
    sock::g_engine.objects.process = &process;
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_acceptor_that_was_accelerated_finds_its_peer_at_once),
        cmocka_unit_test(a_connector_that_was_accelerated_is_found_by_the_next_try),
        cmocka_unit_test(few_calls_are_enough_for_it),
        cmocka_unit_test(those_that_never_met_meet),
        cmocka_unit_test(a_connector_drops_what_came_to_nothing),
        cmocka_unit_test(who_has_nobody_to_meet_asks_seldom),
        cmocka_unit_test(an_attempt_ends_with_what_it_is_for),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
