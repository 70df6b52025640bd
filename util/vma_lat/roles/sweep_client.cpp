// SPDX-License-Identifier: BSD-2-Clause
// The client's side of a sweep: connects, lets its crew work, and shows each step as it ends.
#include "util/vma_lat/roles/sweep.hpp"

#include "util/vma_lat/measure/pattern.hpp"
#include "util/vma_lat/roles/session.hpp"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <random>

namespace vma::lat {

namespace {

class Sweep
{
public:
    Sweep(const Options &options) : options_(options) {}

    Failure connect()
    {
        std::string host;
        std::uint16_t port = options_.port;
        Address address;
        if (auto failure = split_host(options_.hosts[0], host, port))
            return failure;
        if (auto failure = resolve(host, port, options_.family, address))
            return failure;
        if (auto failure = load_libfabric())
            return failure;
        return connect_control(address, control_);
    }

    Failure run(const Step &step, StepOutcome &outcome)
    {
        outcome.step = step;
        Step &mine = outcome.step;
        std::random_device random;
        mine.seed = std::uint64_t{random()} << 32 | random();
        Endpoints endpoints(shape_of(mine, options_.domain));
        std::vector<Region> theirs;
        if (auto failure = join(mine, endpoints, theirs))
            return failure;
        Crew crew(endpoints, options_.load.timeout_ns);
        if (auto failure = crew.start(works(mine, theirs)))
            return failure;
        auto failure = await(mine, crew);
        if (auto worse = crew.stop())
            failure = worse;
        if (failure)
            return failure;
        outcome.window = std::min(endpoints.slots(), theirs[0].slots);
        gather(crew, outcome);
        return finish(outcome);
    }

private:
    // Why the server gave up says more than that it did.
    Failure words(Failure otherwise)
    {
        if (!control_.pending())
            return otherwise;
        Bytes body;
        auto said = control_.receive(Type::kGo, body, kPatienceMs);
        return said ? said : otherwise;
    }

    Failure join(const Step &step, Endpoints &endpoints, std::vector<Region> &theirs)
    {
        Bytes body;
        Places places;
        if (auto failure = control_.send(Type::kStep, encode(step)))
            return failure;
        if (auto failure = control_.receive(Type::kReady, body, kPatienceMs))
            return failure;
        if (auto failure = decode(body, places))
            return failure;
        if (places.ports.size() != step.connections)
            return error(kExitServer, "the other side named %zu ports for %u connections; the test ends",
                         places.ports.size(), step.connections);
        Address server = peer_address(control_.fd());
        for (std::uint32_t i = 0; i < step.connections; ++i) {
            server.set_port(places.ports[i]);
            if (auto failure = endpoints.connect(i, server))
                return failure;
        }
        if (auto failure = endpoints.establish([this] { return stopped() || control_.ended(); }))
            return words(failure);
        if (auto failure = control_.receive(Type::kGo, body, kPatienceMs))
            return failure;
        std::vector<Region> regions;
        for (std::uint32_t i = 0; i < step.connections; ++i)
            regions.push_back(endpoints.region(i));
        if (auto failure = control_.send(Type::kRegions, encode(regions)))
            return failure;
        if (auto failure = control_.receive(Type::kRegions, body, kPatienceMs))
            return failure;
        if (auto failure = decode(body, theirs))
            return failure;
        if (theirs.size() != step.connections)
            return error(kExitServer, "the other side named %zu regions for %u connections; the test ends",
                         theirs.size(), step.connections);
        return {};
    }

    static std::vector<LaneWork> works(const Step &step, const std::vector<Region> &theirs)
    {
        std::vector<LaneWork> works(step.connections);
        for (std::uint32_t i = 0; i < step.connections; ++i) {
            LaneWork &work = works[i];
            work.initiates = true;
            work.verify = step.verify;
            work.single = step.warm_up + step.single;
            work.warm_up = step.warm_up;
            work.streamed = step.streamed;
            work.out_tag = work.in_tag = static_cast<std::uint8_t>(i);
            work.out_seed = derive(step.seed, i, 0);
            work.in_seed = derive(step.seed, i, 1);
            work.theirs = theirs[i];
        }
        return works;
    }

    // Until the crew has done all, or the server says something, which is only that it can't go on.
    Failure await(const Step &step, const Crew &crew)
    {
        std::uint64_t next_line = now_ns() + kSecond;
        while (!crew.done() && !crew.failed()) {
            pollfd waits[] = {{crew.event_fd(), POLLIN, 0}, {control_.fd(), POLLIN, 0}};
            poll(waits, 2, kTickMs);
            if (stopped())
                return error(kExitInterrupted, "interrupted");
            if (control_.pending() && !crew.done())
                return words(error(kExitServer, "the server ended the test"));
            if (options_.load.progress && now_ns() >= next_line) {
                std::fprintf(stderr, "%s of %u bytes: %llu completions\n", name_of(step.operation), step.size,
                             static_cast<unsigned long long>(crew.completions()));
                next_line += kSecond;
            }
        }
        return {};
    }

    static void gather(const Crew &crew, StepOutcome &outcome)
    {
        Samples samples(std::size_t{outcome.step.single} * outcome.step.connections);
        std::uint64_t first = UINT64_MAX;
        std::uint64_t last = 0;
        for (const Lane &lane : crew.lanes()) {
            for (const std::uint64_t ns : lane.samples())
                samples.record(lane.connection(), 0, 0, ns);
            first = std::min(first, lane.started_ns());
            last = std::max(last, lane.ended_ns());
        }
        outcome.latency = samples.summary();
        outcome.client = tally_of(crew);
        outcome.streamed = std::uint64_t{outcome.step.streamed} * outcome.step.connections;
        outcome.stream_ns = outcome.streamed != 0 ? last - first : 0;
    }

    Failure finish(StepOutcome &outcome)
    {
        Bytes body;
        if (auto failure = control_.send(Type::kFinish, {}))
            return failure;
        if (auto failure = control_.receive(Type::kResult, body, kPatienceMs, Control::Stop::kWaits))
            return failure;
        return decode(body, outcome.server);
    }

    const Options &options_;
    Control control_;
};

// What the numbers say about the data.
Failure judge(const StepOutcome &outcome)
{
    const std::uint64_t damaged = outcome.client.damaged + outcome.server.damaged;
    if (damaged != 0)
        return error(kExitData, "%llu operations arrived damaged; the first: %s",
                     static_cast<unsigned long long>(damaged),
                     (outcome.server.damaged != 0 ? outcome.server : outcome.client).first.c_str());
    const Step &step = outcome.step;
    const bool looked_at = told(step.operation) || (step.operation == Operation::kWrite && step.verify);
    const std::uint64_t sent =
        (std::uint64_t{step.warm_up} + step.single + step.streamed) * step.connections * (looked_at ? 1 : 0);
    if (outcome.server.arrived != sent)
        return error(kExitData, "%llu operations arrived of %llu",
                     static_cast<unsigned long long>(outcome.server.arrived), static_cast<unsigned long long>(sent));
    return {};
}

} // namespace

int be_sweep(const Options &options)
{
    Sweep sweep(options);
    if (auto failure = sweep.connect())
        return complain(*failure);
    std::vector<StepOutcome> outcomes;
    int status = kExitFine;
    const auto note = [&](const Failure &failure) {
        if (failure && !(failure->status == kExitInterrupted && stopped())) {
            const int worse = complain(*failure);
            status = status == kExitFine ? worse : status;
        }
        return failure.has_value();
    };
    print_sweep_head(options);
    for (const Step &step : options.steps) {
        StepOutcome outcome;
        if (stopped() || note(sweep.run(step, outcome)))
            break;
        print_sweep_line(options, outcome);
        note(judge(outcome));
        outcomes.push_back(std::move(outcome));
    }
    if (!options.csv.empty())
        note(write_sweep_csv(options.csv, outcomes));
    if (!options.json.empty())
        note(write_sweep_json(options.json, options, outcomes));
    return status == kExitFine && stopped() ? static_cast<int>(kExitInterrupted) : status;
}

} // namespace vma::lat
