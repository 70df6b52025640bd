// SPDX-License-Identifier: BSD-2-Clause
// What the full-screen view shows of each socket, which of them, and in which order. Knows nothing of a screen.
#pragma once

#include <string>
#include <vector>

#include "util/vma_stats/views.hpp"

namespace vma_stats {

enum class Order { kFd, kReceived, kSent, kBytes, kOs, kPolls, kQueue, kEnd };
enum class Kind { kAll, kOffloaded, kKernel, kEnd };

struct Choice {
    Order order = Order::kFd;
    bool reverse = false;
    Kind kind = Kind::kAll;
    std::string filter; // part of what a row says
};

const char *name_of(Order order);
const char *name_of(Kind kind);

std::string title_of_rows();
// The rows that are chosen; `sockets` and `offloaded` count all.
std::vector<std::string> make_rows(const Shown &shown, const Choice &choice, std::size_t &sockets,
                                   std::size_t &offloaded);
std::vector<std::string> mux_lines(const Shown &shown);
std::vector<std::string> port_lines(const Shown &shown); // of Ethernet ports

} // namespace vma_stats
