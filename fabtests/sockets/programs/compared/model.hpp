// SPDX-License-Identifier: BSD-2-Clause
// What the comparer knows of a world: enough to choose calls that mean something. It follows the kernel's replies, and
// where it is wrong a call fails in both worlds.
#pragma once

#include "fabtests/sockets/programs/compared/runner.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace compared {

enum class Kind { kFresh, kListener, kStream, kDatagrams, kSet };

struct File {
    Kind kind = Kind::kFresh;
    int peer = -1;
    int key = -1;
    std::int64_t unread = 0; // bytes on their way to this end
    bool times_out = false;
    std::deque<int> arriving; // of a listener: who has connected
};

struct Process {
    std::array<int, kSlots> files; // -1: nothing there
    int threads = 1;
    int parent = -1;
    int zombies = 0;
    Process() { files.fill(-1); }
};

struct Model {
    std::vector<File> files;
    std::map<int, Process> processes;
    std::map<int, int> actors;  // the process of each
    std::map<int, int> waiting; // actors, and for which file
    int next_actor = 2;
    int next_key = 0;

    int new_file(Kind kind)
    {
        files.emplace_back().kind = kind;
        return static_cast<int>(files.size()) - 1;
    }
    File *file_of(const Step &step, int slot);
    // Two who wait for one file would be served in any order.
    bool is_awaited(const File &file) const
    {
        return std::ranges::any_of(
            waiting, [&](const auto &one) { return &files[static_cast<std::size_t>(one.second)] == &file; });
    }
    void forget_waits(const Runner &runner)
    {
        std::erase_if(waiting,
                      [&runner](const auto &one) { return runner.is_free(one.first) || !runner.has(one.first); });
    }
    int free_slot(const Process &process) const;
    void follow(const Step &step, const Outcome &outcome);

private:
    void follow_bytes(const Step &step, const Reply &reply);
    void follow_files(const Step &step, const Reply &reply);
    void follow_process(const Step &step);
    void end(int process);
};

} // namespace compared
