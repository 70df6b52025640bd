// SPDX-License-Identifier: BSD-2-Clause
// A script is a row of commands for actors. The runner has both worlds make each of them, and compares what they say.
#pragma once

#include "fabtests/sockets/programs/compared/world.hpp"

#include <string>
#include <vector>

namespace compared {

struct Step {
    int actor = 0;
    Command command;
    int newcomer = -1;  // the actor that a fork or a thread makes, or that is given a descriptor
    int key = -1;       // of the port that is bound, or connected to
    bool ends = false;  // the call waits no longer than its time-out
    bool kills = false; // the actor's process is killed instead
};

using Script = std::vector<Step>;

std::string text_of(const Step &step);

struct Outcome {
    bool done = false; // false: the actor is not there, or its last call waits
    Answer answer = Answer::kReplied;
    Reply reply; // the kernel's
};

class Runner
{
public:
    explicit Runner(const char *preload);

    Outcome run(const Step &step);
    bool differs() const { return !difference_.empty(); }
    const std::string &difference() const { return difference_; }
    Op where() const { return where_; } // the call that differs
    bool is_free(int actor) const { return kernel_.has(actor) && !kernel_.is_busy(actor); }
    bool has(int actor) const { return kernel_.has(actor); }

private:
    void give(const Step &step);
    void judge(int actor, bool ends, int key, Op op, const std::string &what, Outcome &outcome);
    void look_at_waiting();

    World kernel_{nullptr};
    World library_;
    std::string difference_;
    Op where_{};
};

} // namespace compared
