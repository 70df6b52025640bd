// SPDX-License-Identifier: BSD-2-Clause
// A world is a set of actors that all have the library, or all have not, and never meet those of another world.
#pragma once

#include "fabtests/sockets/programs/compared/protocol.hpp"

#include <sys/types.h>

#include <map>
#include <string>

namespace compared {

enum class Answer { kReplied, kAsleep, kGone };

const char *name_of(Answer answer) noexcept;

class World
{
public:
    // preload: what LD_PRELOAD is for the actors, null without.
    explicit World(const char *preload) : preload_(preload) {}
    ~World(); // ends them all
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    void start(int actor); // a process of its own
    bool has(int actor) const { return seats_.contains(actor); }
    bool is_busy(int actor) const { return has(actor) && seats_.at(actor).busy; }

    // Has the actor make the call. newcomer: the actor that comes of it, -1 if none does.
    void tell(int actor, const Command &command, int newcomer = -1, int descriptor = -1);
    // Judges by the thread's state, and so can say that a call waits. ends: it will not wait for ever.
    Answer look(int actor, Reply &reply, bool ends);
    // Of a world that may do otherwise: what is expected is waited for, and anything else is looked for a moment.
    Answer look_for(int actor, Reply &reply, Answer expected);
    void kill(int actor);
    int take_descriptor(); // what came with the last reply
    const std::map<int, int> &ports() const { return ports_; }
    void set_port(int key, int port) { ports_[key] = port; }

private:
    struct Seat {
        int channel = -1;
        pid_t process = 0;
        pid_t thread = 0;
        bool busy = false;
        bool replaces_itself = false; // by execve(): the next greeting is the reply
    };

    Answer receive(int actor, Reply &reply);
    static bool sleeps(const Seat &seat);
    void leave(pid_t process);
    void await_greeting(int actor);

    const char *preload_;
    std::map<int, Seat> seats_;
    std::map<int, int> ports_;
    int descriptor_ = -1;
};

// Whatever has been sent over the loopback device before, on this processor, has been delivered.
void await_delivery();

} // namespace compared
