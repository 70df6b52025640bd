// SPDX-License-Identifier: BSD-2-Clause
// What is around a process that acceleration needs: the folder where processes meet, mappings, huge pages, vmad. It is
// looked at as the process would see it; judge.hpp says what it amounts to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "util/vma/place.hpp"

namespace vma::command {

enum class Broker {
    kAnswers,
    kNobody,    // no socket, or nobody behind it
    kForbidden, // no right to connect
    kSilent,    // it took the connection and said nothing in a second
    kUnwanted,  // VMA_BROKER is empty, or VMA_OTHER_USERS 0
};

enum class Meeting { // the folder of VMA_SHM_DIR
    kGood,
    kMissing,  // it can't be made, as what it would lie in is not there
    kReadOnly, // nor written to
    kStranger, // it is another user's, or others may write to it
};

struct Interface {
    std::string name;
    bool exists = false;
    bool is_up = false;
};

struct Machine {
    Meeting meeting = Meeting::kGood;
    std::string folder; // of the meeting
    Broker broker = Broker::kAnswers;
    std::string broker_path;
    std::uint64_t most_mappings = kUnlimited; // vm.max_map_count
    std::uint64_t most_streams = kUnlimited;  // that the process may have accelerated
    std::uint64_t huge_pages = 0;             // free ones
    std::uint64_t first_network = 0;          // inode of process 1's network namespace; 0: not known
    std::string refused;                      // a system call that this process's filters refuse, "" none
    std::vector<Interface> interfaces;        // of VMA_ETHERNET
};

Machine look_around(const Place &place);

// Of a broker at this path: whether one is there and speaks. A second at most.
Broker ask_broker(const std::string &path);

} // namespace vma::command
