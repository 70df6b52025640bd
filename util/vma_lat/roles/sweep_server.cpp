// SPDX-License-Identifier: BSD-2-Clause
// The server's side of a step: listens, answers what asks for an answer, keeps its endpoints going until the client has
// finished.
#include "util/vma_lat/roles/sweep.hpp"

#include "util/vma_lat/measure/pattern.hpp"

#include <poll.h>

#include <cstdio>

namespace vma::lat {

Shape shape_of(const Step &step, const std::string &domain)
{
    Shape shape;
    shape.provider = step.provider;
    shape.domain = domain.empty() ? step.domain : domain;
    shape.connections = step.connections;
    shape.size = step.size;
    shape.window = step.window;
    shape.operation = step.operation;
    shape.progress = step.progress;
    shape.ordered = step.verify && step.operation == Operation::kWrite;
    return shape;
}

namespace {

std::vector<LaneWork> answers(const Step &step, const std::vector<Region> &theirs)
{
    std::vector<LaneWork> works(step.connections);
    for (std::uint32_t i = 0; i < step.connections; ++i) {
        LaneWork &work = works[i];
        work.answers = true;
        work.verify = step.verify;
        work.single = step.warm_up + step.single;
        work.warm_up = step.warm_up;
        work.streamed = step.streamed;
        work.out_tag = work.in_tag = static_cast<std::uint8_t>(i);
        work.out_seed = derive(step.seed, i, 1);
        work.in_seed = derive(step.seed, i, 0);
        work.theirs = theirs[i];
    }
    return works;
}

Failure connect(const Step &step, Control &control, Endpoints &endpoints, std::vector<Region> &theirs)
{
    Places mine;
    const Address self = local_address(control.fd());
    for (std::uint32_t i = 0; i < step.connections; ++i) {
        std::uint16_t port = 0;
        if (auto failure = endpoints.listen(i, self, port))
            return failure;
        mine.ports.push_back(port);
    }
    if (auto failure = control.send(Type::kReady, encode(mine)))
        return failure;
    const std::uint64_t end = now_ns() + kPatienceMs * kMillisecond;
    if (auto failure = endpoints.establish([&] { return stopped() || control.pending() || now_ns() > end; }))
        return failure;
    if (auto failure = control.send(Type::kGo, {}))
        return failure;
    std::vector<Region> regions;
    for (std::uint32_t i = 0; i < step.connections; ++i)
        regions.push_back(endpoints.region(i));
    if (auto failure = control.send(Type::kRegions, encode(regions)))
        return failure;
    Bytes body;
    if (auto failure = control.receive(Type::kRegions, body, kPatienceMs))
        return failure;
    if (auto failure = decode(body, theirs))
        return failure;
    if (theirs.size() != step.connections)
        return error(kExitServer, "the other side named %zu regions for %u connections; the test ends", theirs.size(),
                     step.connections);
    return {};
}

// Until the client says something, which it does when it has finished, or is gone.
void keep_going(const Crew &crew, const Control &control)
{
    while (!stopped() && !crew.failed() && !control.pending()) {
        pollfd wait{control.fd(), POLLIN, 0};
        poll(&wait, 1, kTickMs);
    }
}

} // namespace

Failure serve_step(const Options &options, Control &control, std::span<const std::byte> body)
{
    const auto refuse = [&](const Failure &why) {
        control.send(Type::kRefused, encode(why->text));
        return why;
    };
    Step step;
    if (auto failure = decode(body, step))
        return refuse(failure);
    if (auto failure = load_libfabric())
        return refuse(failure);
    Endpoints endpoints(shape_of(step, options.domain));
    std::vector<Region> theirs;
    if (auto failure = connect(step, control, endpoints, theirs))
        return refuse(failure);
    Crew crew(endpoints, 0);
    if (auto failure = crew.start(answers(step, theirs)))
        return refuse(failure);
    keep_going(crew, control);
    if (auto failure = crew.stop())
        return refuse(failure);
    Bytes nothing;
    if (auto failure = control.receive(Type::kFinish, nothing, kPatienceMs))
        return failure;
    const Tally tally = tally_of(crew);
    std::printf("%s of %u bytes, for %s: %llu arrived, %llu damaged\n", name_of(step.operation), step.size,
                peer_address(control.fd()).text().c_str(), static_cast<unsigned long long>(tally.arrived),
                static_cast<unsigned long long>(tally.damaged));
    std::fflush(stdout);
    return control.send(Type::kResult, encode(tally));
}

} // namespace vma::lat
