// SPDX-License-Identifier: BSD-2-Clause
// An actor is a thread that makes the calls that it is told to make, one at a time, and says what they returned.
// Actors of one process share its slots.
#pragma once

#include "fabtests/sockets/programs/compared/protocol.hpp"

#include <array>

namespace compared {

struct Actor {
    int channel = -1;
    int passed = -1; // the descriptor that came with the command
};

extern std::array<int, kSlots> g_slots; // -1 where there is none

inline int fd_of(int slot) noexcept
{
    return slot >= 0 && slot < kSlots ? g_slots[static_cast<std::size_t>(slot)] : -1;
}

inline void set_slot(int slot, int fd) noexcept
{
    if (slot >= 0 && slot < kSlots)
        g_slots[static_cast<std::size_t>(slot)] = fd;
}

// errno first thing.
Reply outcome(std::int64_t result) noexcept;

// Each is told of its commands alone.
Reply do_bytes(const Command &command);                            // calls_bytes.cpp: what moves bytes
Reply do_files(const Command &command);                            // calls_files.cpp: descriptors, names and options
Reply do_waits(const Command &command);                            // calls_waits.cpp: poll and its like
Reply do_process(Actor &actor, const Command &command, int *give); // calls_process.cpp

[[noreturn]] void act(Actor actor);
int actor_main(char **argv); // argv: behind "--actor"

} // namespace compared
