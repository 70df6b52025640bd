// SPDX-License-Identifier: BSD-2-Clause
// One member of a mesh. It connects to the members below its rank and is connected to by those above; what it has to
// say at the end it says to all, and so does everyone.
#include "util/vma_lat/measure/pattern.hpp"
#include "util/vma_lat/roles/crew.hpp"
#include "util/vma_lat/roles/mesh.hpp"
#include "util/vma_lat/roles/session.hpp"

#include <poll.h>

#include <algorithm>
#include <cstdio>

namespace vma::lat {

namespace {

using Big = unsigned long long;

constexpr std::uint64_t kStartNs = 60 * kSecond; // until all members are there
constexpr int kGreetingMs = 5000;                // of one that has connected

class Member
{
public:
    explicit Member(const Options &options)
        : options_(options), plan_(options.mesh), rank_(static_cast<std::uint32_t>(options.rank)),
          controls_(plan_.processes), said_(plan_.processes), endpoints_(shape()),
          crew_(endpoints_, options.load.timeout_ns)
    {
    }

    Failure run(Tally &all)
    {
        auto failure = work(all);
        if (!failure)
            return {};
        crew_.stop();
        for (Control &control : controls_) {
            if (control.fd() >= 0)
                control.send(Type::kRefused, encode(failure->text));
        }
        return failure;
    }

private:
    std::uint32_t connection_of(std::uint32_t rank) const { return rank < rank_ ? rank : rank - 1; }

    Shape shape() const
    {
        Shape shape;
        shape.provider = plan_.provider;
        shape.domain = options_.domain;
        shape.connections = plan_.processes - 1;
        shape.size = plan_.size;
        shape.window = plan_.window;
        shape.operation = Operation::kWriteImm;
        shape.progress = plan_.progress;
        for (std::uint32_t other = 0; other < plan_.processes; ++other) {
            if (other != rank_)
                shape.names.push_back(format("the connection to rank %u", other));
        }
        return shape;
    }

    template <typename Do> Failure each_other(Do &&act)
    {
        for (std::uint32_t other = 0; other < plan_.processes; ++other) {
            if (other == rank_)
                continue;
            if (auto failure = act(other, controls_[other]))
                return about(other, std::move(*failure));
        }
        return {};
    }

    Error about(std::uint32_t other, Error why) const
    {
        why.text = format("rank %u (%s): ", other, options_.peers[other].c_str()) + why.text;
        return why;
    }

    Failure work(Tally &all)
    {
        if (auto failure = load_libfabric())
            return failure;
        if (auto failure = meet())
            return failure;
        if (auto failure = connect())
            return failure;
        std::printf("rank %u: connected to %u others\n", rank_, plan_.processes - 1);
        std::fflush(stdout);
        if (auto failure = crew_.start(works()))
            return failure;
        if (auto failure = await())
            return failure;
        if (auto failure = crew_.stop())
            return failure;
        return sum_up(all);
    }

    // ---- how members find each other --------------------------------------------------------------------------------

    Failure meet()
    {
        Fd listener(options_.listen_fd);
        if (!listener) {
            Address address;
            if (auto failure = address_of(rank_, address))
                return failure;
            if (auto failure = listen_control(address, listener))
                return failure;
        }
        const std::uint64_t end = now_ns() + kStartNs;
        for (std::uint32_t other = 0; other < rank_; ++other) {
            if (auto failure = call(other, end))
                return about(other, std::move(*failure));
        }
        for (std::uint32_t missing = plan_.processes - 1 - rank_; missing > 0;) {
            pollfd wait{listener.get(), POLLIN, 0};
            poll(&wait, 1, kTickMs);
            if (stopped())
                return error(kExitInterrupted, "interrupted");
            if (auto failure = all_live())
                return failure;
            if (now_ns() > end)
                return error(kExitServer, "%u members have not come after %llu s; the mesh ends", missing,
                             static_cast<Big>(kStartNs / kSecond));
            Fd caller(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!caller)
                continue;
            bool member = false;
            if (auto failure = greet(Control(std::move(caller)), member))
                return failure;
            missing -= member ? 1 : 0;
        }
        return {};
    }

    Failure address_of(std::uint32_t rank, Address &address) const
    {
        std::string host;
        std::uint16_t port = options_.port;
        if (auto failure = split_host(options_.peers[rank], host, port))
            return failure;
        return resolve(host, port, options_.family, address);
    }

    // A member of a lower rank, which may not have started yet.
    Failure call(std::uint32_t other, std::uint64_t end)
    {
        Address address;
        if (auto failure = address_of(other, address))
            return failure;
        for (;;) {
            auto failure = connect_control(address, controls_[other]);
            if (!failure)
                break;
            if (stopped())
                return error(kExitInterrupted, "interrupted");
            if (now_ns() > end)
                return error(kExitServer, "nobody is there after %llu s; the mesh ends",
                             static_cast<Big>(kStartNs / kSecond));
            poll(nullptr, 0, kTickMs);
        }
        Bytes body;
        if (auto failure = controls_[other].send(Type::kHello, encode(Hello{rank_, plan_, 0})))
            return failure;
        // It answers when it has met those below itself.
        if (auto failure = controls_[other].receive(Type::kHello, body, static_cast<int>(kStartNs / kMillisecond)))
            return failure;
        Hello theirs;
        if (auto failure = decode(body, theirs))
            return failure;
        if (theirs.rank != other)
            return error(kExitServer, "it says that it is rank %u; the mesh ends", theirs.rank);
        if (auto failure = disagreement(Hello{rank_, plan_, 0}, theirs))
            return failure;
        Address place = peer_address(controls_[other].fd());
        place.set_port(theirs.port);
        lower_.push_back(place);
        return {};
    }

    // Whoever has connected: a member of a higher rank, or somebody who is none of ours and is sent away.
    Failure greet(Control caller, bool &member)
    {
        Bytes body;
        Hello theirs;
        auto strange = caller.receive(Type::kHello, body, kGreetingMs);
        if (!strange)
            strange = decode(body, theirs);
        if (strange && strange->status == kExitInterrupted)
            return strange;
        if (!strange && theirs.plan.processes == plan_.processes &&
            (theirs.rank <= rank_ || controls_[theirs.rank].fd() >= 0))
            strange = error(kExitServer, "rank %u is here already", theirs.rank);
        if (strange) {
            complain(*strange);
            caller.send(Type::kRefused, encode(strange->text));
            return {};
        }
        if (auto failure = disagreement(Hello{rank_, plan_, 0}, theirs)) {
            caller.send(Type::kRefused, encode(failure->text));
            return failure;
        }
        Hello mine{rank_, plan_, 0};
        const Address self = local_address(caller.fd());
        controls_[theirs.rank] = std::move(caller);
        if (auto failure = endpoints_.listen(connection_of(theirs.rank), self, mine.port))
            return failure;
        if (auto failure = controls_[theirs.rank].send(Type::kHello, encode(mine)))
            return about(theirs.rank, std::move(*failure));
        member = true;
        return {};
    }

    Failure all_live()
    {
        return each_other([](std::uint32_t, const Control &control) {
            return control.fd() >= 0 && control.ended() ? Failure(error(kExitServer, "went away; the mesh ends"))
                                                        : Failure();
        });
    }

    Failure connect()
    {
        for (std::uint32_t other = 0; other < rank_; ++other) {
            if (auto failure = endpoints_.connect(connection_of(other), lower_[other]))
                return about(other, std::move(*failure));
        }
        const std::uint64_t end = now_ns() + kPatienceMs * kMillisecond;
        Failure dead;
        if (auto failure = endpoints_.establish([&] {
                dead = all_live();
                return dead || stopped() || now_ns() > end;
            }))
            return dead ? dead : stopped() ? Failure(error(kExitInterrupted, "interrupted")) : failure;
        if (auto failure = each_other([this](std::uint32_t other, Control &control) {
                return control.send(Type::kRegions, encode({endpoints_.region(connection_of(other))}));
            }))
            return failure;
        regions_.resize(plan_.processes - 1);
        return each_other([this](std::uint32_t other, Control &control) -> Failure {
            Bytes body;
            std::vector<Region> region;
            if (auto failure = control.receive(Type::kRegions, body, kPatienceMs))
                return failure;
            if (auto failure = decode(body, region))
                return failure;
            if (region.size() != 1)
                return error(kExitServer, "it named %zu regions instead of one; the mesh ends", region.size());
            regions_[connection_of(other)] = region[0];
            return {};
        });
    }

    // ---- the blocks -------------------------------------------------------------------------------------------------

    std::vector<LaneWork> works() const
    {
        std::vector<LaneWork> works(plan_.processes - 1);
        for (std::uint32_t other = 0; other < plan_.processes; ++other) {
            if (other == rank_)
                continue;
            LaneWork &work = works[connection_of(other)];
            work.initiates = work.answers = work.verify = true;
            work.streamed = plan_.count;
            work.out_tag = static_cast<std::uint8_t>(rank_);
            work.in_tag = static_cast<std::uint8_t>(other);
            work.out_seed = derive(plan_.seed, rank_, other);
            work.in_seed = derive(plan_.seed, other, rank_);
            work.theirs = regions_[connection_of(other)];
        }
        return works;
    }

    // Until this member has done all, and everyone else says the same of itself: until then it may be needed.
    Failure await()
    {
        std::uint64_t next_line = now_ns() + kSecond;
        bool told = false;
        while (!told || std::count(said_.begin(), said_.end(), true) + 1 < plan_.processes) {
            wait_for_news(told);
            if (stopped())
                return error(kExitInterrupted, "interrupted");
            if (auto failure = hear())
                return failure;
            if (crew_.failed())
                return why_crew_failed();
            if (!told && crew_.done()) {
                told = true;
                if (auto failure =
                        each_other([](std::uint32_t, Control &control) { return control.send(Type::kGo, {}); }))
                    return failure;
            }
            if (options_.load.progress && rank_ == 0 && now_ns() >= next_line) {
                std::fprintf(stderr, "rank 0: %llu completions\n", static_cast<Big>(crew_.completions()));
                next_line += kSecond;
            }
        }
        return {};
    }

    void wait_for_news(bool told)
    {
        std::vector<pollfd> waits;
        if (!told)
            waits.push_back({crew_.event_fd(), POLLIN, 0});
        for (std::uint32_t other = 0; other < plan_.processes; ++other) {
            if (other != rank_ && !said_[other])
                waits.push_back({controls_[other].fd(), POLLIN, 0});
        }
        poll(waits.data(), waits.size(), kTickMs);
    }

    Failure hear()
    {
        return each_other([this](std::uint32_t other, Control &control) -> Failure {
            if (!said_[other] && control.pending()) {
                if (control.ended())
                    return error(kExitServer, "went away; the mesh ends");
                Bytes body;
                if (auto failure = control.receive(Type::kGo, body, kPatienceMs))
                    return failure;
                said_[other] = true;
            }
            return {};
        });
    }

    // A member that died breaks its connections, too: that it is gone says more.
    Failure why_crew_failed()
    {
        auto why = crew_.stop();
        const std::uint64_t end = now_ns() + kSecond;
        while (now_ns() < end && !stopped()) {
            if (auto failure = hear())
                return failure;
            wait_for_news(true);
        }
        return why;
    }

    Failure sum_up(Tally &all)
    {
        const Tally mine = tally_of(crew_);
        const Big others = plan_.processes - 1;
        std::printf("rank %u: wrote %llu blocks (%llu bytes), verified %llu, %llu damaged\n", rank_,
                    static_cast<Big>(others * plan_.count), static_cast<Big>(others * plan_.count * plan_.size),
                    static_cast<Big>(mine.arrived), static_cast<Big>(mine.damaged));
        std::fflush(stdout);
        all = mine;
        if (auto failure =
                each_other([&](std::uint32_t, Control &control) { return control.send(Type::kResult, encode(mine)); }))
            return failure;
        const auto add = [&](std::uint32_t, Control &control) -> Failure {
            Bytes body;
            Tally theirs;
            if (auto failure = control.receive(Type::kResult, body, kPatienceMs, Control::Stop::kWaits))
                return failure;
            if (auto failure = decode(body, theirs))
                return failure;
            if (all.damaged == 0)
                all.first = theirs.first;
            all.arrived += theirs.arrived;
            all.damaged += theirs.damaged;
            return {};
        };
        if (auto failure = each_other(add))
            return failure;
        if (all.damaged != 0)
            return error(kExitData, "%llu blocks arrived damaged; the first: %s", static_cast<Big>(all.damaged),
                         all.first.c_str());
        const Big expected = Big{plan_.processes} * others * plan_.count;
        if (all.arrived != expected)
            return error(kExitData, "%llu blocks arrived of %llu", static_cast<Big>(all.arrived), expected);
        return {};
    }

    const Options &options_;
    const MeshPlan &plan_;
    const std::uint32_t rank_;
    std::vector<Control> controls_; // by rank
    std::vector<char> said_;        // by rank: it is done
    std::vector<Address> lower_;    // where the endpoints of lower ranks listen
    std::vector<Region> regions_;   // by connection
    Endpoints endpoints_;
    Crew crew_;
};

} // namespace

int be_member(const Options &options)
{
    const bool by_hand = options.listen_fd < 0; // else who started it gives the verdict
    Tally all;
    const auto failure = Member(options).run(all);
    if (!failure) {
        if (by_hand)
            std::printf("mesh: passed: %u processes, %llu blocks verified, none damaged\n", options.mesh.processes,
                        static_cast<Big>(all.arrived));
        return kExitFine;
    }
    const Error named{failure->status, format("rank %d: ", options.rank) + failure->text};
    complain(named);
    if (by_hand)
        std::printf("mesh: FAILED: %s\n", failure->text.c_str());
    return failure->status;
}

} // namespace vma::lat
