// SPDX-License-Identifier: BSD-2-Clause
// Chooses the next step at random, by what the model says is there.
#pragma once

#include "fabtests/sockets/programs/compared/model.hpp"

#include <deque>
#include <random>

namespace compared {

// Which kinds of calls a script has; all others are left out.
struct Choice {
    bool processes = true; // fork, exec, exit, descriptors that are passed on
    bool threads = true;
    bool datagrams = true;
    bool sets = true;
    bool edges = true;
    bool options = true;
    bool urgent = true;
};

class Chooser
{
public:
    Chooser(std::uint64_t seed, const Choice &choice) : random_(seed), choice_(choice) {}

    Step next(const Runner &runner, Model &model);

private:
    int below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
    bool once_in(int times) { return below(times) == 0; }
    template <typename Values> auto one_of(const Values &values)
    {
        return values[static_cast<std::size_t>(below(static_cast<int>(std::size(values))))];
    }
    std::int64_t length();
    int actor_among(const Runner &runner, const Model &model, int other_than);
    int slot_of(const Process &process, const Model &model, bool (*fits)(const File &));

    void plan_pair(const Runner &runner, Model &model);
    void plan_listener(int actor, Model &model);
    void plan_connection(const Runner &runner, Model &model, int slot, int actor);
    void plan_talk(int actor, int slot, int peer_actor, int peer_slot);
    void plan_datagrams(Model &model, int actor);
    Step plain(int actor, Op op, int slot = -1);
    Step on_stream(Model &model, int actor, int slot);
    Step send(Model &model, int actor, int slot);
    Step receive(Model &model, int actor, int slot);
    Step option(Model &model, int actor, int slot);
    Step wait(const Process &process, const Model &model, int actor);
    Step on_set(const Process &process, const Model &model, int actor);
    Step on_descriptor(const Process &process, const Runner &runner, Model &model, int actor, int slot);
    Step on_process(const Process &process, Model &model, int actor);

    std::mt19937_64 random_;
    const Choice choice_;
    std::deque<Step> planned_;
};

} // namespace compared
