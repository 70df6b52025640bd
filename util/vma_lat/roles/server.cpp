// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/report.hpp"
#include "util/vma_lat/roles/session.hpp"
#include "util/vma_lat/roles/sweep.hpp"
#include "util/vma_lat/transport/own_ways.hpp"
#include "util/vma_lat/transport/transport.hpp"

#include <poll.h>

#include <cerrno>
#include <cstdio>

namespace vma::lat {

namespace {

class Session
{
public:
    Session(const Options &options, Control control) : options_(options), control_(std::move(control)) {}

    Failure run()
    {
        for (;;) {
            Bytes body;
            // The client may take its time between two tests; its end is no fault.
            while (!control_.pending()) {
                pollfd wait{control_.fd(), POLLIN, 0};
                poll(&wait, 1, kTickMs);
                if (stopped())
                    return {};
            }
            if (control_.ended())
                return {};
            Type type = Type::kPlan;
            if (auto failure = control_.receive_any(type, body, kPatienceMs))
                return failure;
            if (type != Type::kPlan && type != Type::kStep)
                return error(kExitServer,
                             "the other side sent message %u where a test was expected; the connection is "
                             "ended",
                             static_cast<unsigned>(type));
            if (auto failure = type == Type::kPlan ? serve(body) : serve_step(options_, control_, body))
                return failure;
        }
    }

private:
    Failure refuse(const Failure &why)
    {
        control_.send(Type::kRefused, encode(why->text));
        return why;
    }

    Failure serve(const Bytes &body)
    {
        Plan plan;
        if (auto failure = decode(body, plan))
            return refuse(failure);
        Local local;
        local.server = true;
        local.self = local_address(control_.fd());
        local.host = local.self;
        local.domain = options_.domain;
        local.interface = options_.interface;
        const auto transport =
            fabric(plan.kind) ? make_fabric_transport(plan, local) : make_socket_transport(plan, local);
        if (auto failure = connect(*transport))
            return refuse(failure);
        Report mine;
        Side client;
        auto failure = run_server(plan, *transport, control_, mine.counts, client);
        mine.side = look_at(transport->sockets());
        if (!failure)
            explain(mine.side, client, plan.kind);
        print_server(plan, peer_address(control_.fd()).text(), mine);
        return failure ? failure : control_.send(Type::kResult, encode(mine));
    }

    Failure connect(Transport &transport)
    {
        Places mine;
        Places theirs;
        Bytes body;
        if (auto failure = transport.prepare(mine))
            return failure;
        if (auto failure = control_.send(Type::kReady, encode(mine)))
            return failure;
        if (auto failure = control_.receive(Type::kJoin, body, kPatienceMs))
            return failure;
        if (auto failure = decode(body, theirs))
            return failure;
        const std::uint64_t end = now_ns() + kPatienceMs * kMillisecond;
        if (auto failure =
                transport.establish(theirs, [&] { return stopped() || control_.pending() || now_ns() > end; }))
            return failure;
        return control_.send(Type::kGo, {});
    }

    const Options &options_;
    Control control_;
};

// A client, or nothing when a signal came.
Fd next_client(int listener)
{
    while (!stopped()) {
        pollfd wait{listener, POLLIN, 0};
        if (poll(&wait, 1, kTickMs) <= 0)
            continue;
        Fd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        if (client)
            return client;
    }
    return {};
}

} // namespace

int be_server(const Options &options)
{
    Address address;
    if (auto failure = resolve(options.address, options.port,
                               options.address.empty() && options.family == 0 ? AF_INET6 : options.family, address))
        return complain(*failure);
    Fd listener;
    if (auto failure = listen_control(address, listener))
        return complain(*failure);
    std::printf("vma_lat server: listens at %s\n", address.text().c_str());
    std::fflush(stdout);
    std::uint64_t served = 0;
    for (; !stopped() && (options.clients == 0 || served < options.clients); ++served) {
        Fd client = next_client(listener.get());
        if (!client)
            break;
        if (auto failure = Session(options, Control(std::move(client))).run(); failure && !stopped())
            complain(*failure);
    }
    std::printf("vma_lat server: ends after %llu clients\n", static_cast<unsigned long long>(served));
    return kExitFine;
}

} // namespace vma::lat
