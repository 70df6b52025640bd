// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/report.hpp"
#include "util/vma_lat/roles/session.hpp"
#include "util/vma_lat/transport/own_ways.hpp"
#include "util/vma_lat/transport/transport.hpp"

#include <cstdio>
#include <random>

namespace vma::lat {

namespace {

class Session
{
public:
    explicit Session(const Options &options) : options_(options), controls_(options.hosts.size()) {}

    Failure connect()
    {
        for (std::size_t i = 0; i < controls_.size(); ++i) {
            std::string host;
            std::uint16_t port = options_.port;
            Address address;
            if (auto failure = split_host(options_.hosts[i], host, port))
                return failure;
            if (auto failure = resolve(host, port, options_.family, address))
                return failure;
            if (auto failure = connect_control(address, controls_[i]))
                return failure;
            pointers_.push_back(&controls_[i]);
        }
        return {};
    }

    // The outcome holds for what was done, also when it failed in the middle.
    Failure run(const Plan &plan, Outcome &outcome)
    {
        outcome.plan = plan;
        outcome.plan.session = static_cast<std::uint16_t>(std::random_device()());
        outcome.samples = Samples(room_for(plan, options_.load));
        Local local;
        local.host = peer_address(controls_[0].fd());
        local.self = local_address(controls_[0].fd());
        local.domain = options_.domain;
        local.interface = options_.interface;
        local.ttl = options_.ttl;
        local.loop = options_.loop;
        const auto transport =
            fabric(plan.kind) ? make_fabric_transport(outcome.plan, local) : make_socket_transport(outcome.plan, local);
        if (auto failure = join(outcome.plan, *transport))
            return failure;
        run_client(options_.load, *transport, pointers_, outcome);
        outcome.side = look_at(transport->sockets());
        if (!outcome.failure || outcome.failure->status != kExitServer)
            outcome.failure = finish(outcome);
        return {};
    }

private:
    Failure join(const Plan &plan, Transport &transport)
    {
        Places mine;
        Places theirs;
        Bytes body;
        if (auto failure = transport.prepare(mine))
            return failure;
        for (Control &control : controls_) {
            if (auto failure = control.send(Type::kPlan, encode(plan)))
                return failure;
            if (auto failure = control.receive(Type::kReady, body, kPatienceMs))
                return failure;
            if (auto failure = decode(body, theirs))
                return failure;
            if (auto failure = control.send(Type::kJoin, encode(mine)))
                return failure;
        }
        if (auto failure = transport.establish(theirs, [this] { return stopped() || controls_[0].pending(); })) {
            // Why the server gave up says more than that it did.
            auto words = controls_[0].pending() ? controls_[0].receive(Type::kGo, body, kPatienceMs) : Failure();
            return words ? words : failure;
        }
        for (Control &control : controls_) {
            if (auto failure = control.receive(Type::kGo, body, kPatienceMs))
                return failure;
        }
        return {};
    }

    Failure finish(Outcome &outcome)
    {
        Failure failure = std::move(outcome.failure);
        for (Control &control : controls_) {
            if (auto problem = control.send(Type::kFinish, encode(Report{outcome.client, outcome.side})))
                return failure ? failure : problem;
        }
        for (Control &control : controls_) {
            Bytes body;
            Report server;
            auto problem = control.receive(Type::kResult, body, kPatienceMs, Control::Stop::kWaits);
            if (!problem)
                problem = decode(body, server);
            if (problem)
                return failure ? failure : problem;
            take(outcome, server);
        }
        return failure;
    }

    static void take(Outcome &outcome, const Report &server)
    {
        outcome.servers.push_back(server.counts);
        outcome.server_sides.push_back(server.side);
        explain(outcome.side, server.side, outcome.plan.kind);
        if (outcome.plan.test == Test::kThroughput && outcome.client.sent > server.counts.received)
            outcome.lost = std::max(outcome.lost, outcome.client.sent - server.counts.received);
    }

    const Options &options_;
    std::vector<Control> controls_;
    std::vector<Control *> pointers_;
};

// What the numbers say about the data.
Failure judge(const Outcome &outcome)
{
    std::uint64_t damaged = outcome.client.damaged;
    for (const Counts &server : outcome.servers)
        damaged += server.damaged;
    if (damaged != 0)
        return error(kExitData, "%llu messages arrived damaged", static_cast<unsigned long long>(damaged));
    if (outcome.lost != 0 && reliable(outcome.plan.kind) && !outcome.interrupted)
        return error(kExitData, "%llu messages did not arrive, or not in time, and %s loses none",
                     static_cast<unsigned long long>(outcome.lost), name_of(outcome.plan.kind));
    return {};
}

} // namespace

int be_client(const Options &options)
{
    Session session(options);
    if (auto failure = session.connect())
        return complain(*failure);
    const double clock = clock_cost_ns();
    std::vector<Outcome> outcomes;
    int status = kExitFine;
    const auto note = [&](const Failure &failure) {
        if (failure && !(failure->status == kExitInterrupted && stopped())) {
            const int worse = complain(*failure);
            status = status == kExitFine ? worse : status;
        }
        return failure.has_value();
    };
    print_clock(clock);
    for (const Plan &plan : options.plans) {
        Outcome outcome;
        if (stopped() || note(session.run(plan, outcome)))
            break;
        print_client(options, outcome);
        const bool ended = note(outcome.failure);
        note(judge(outcome));
        outcomes.push_back(std::move(outcome));
        if (ended)
            break;
    }
    if (outcomes.size() > 1)
        print_comparison(options, outcomes);
    if (!options.csv.empty())
        note(write_csv(options.csv, outcomes));
    if (!options.json.empty())
        note(write_json(options.json, options, outcomes, clock));
    return status == kExitFine && stopped() ? static_cast<int>(kExitInterrupted) : status;
}

} // namespace vma::lat
