// SPDX-License-Identifier: BSD-2-Clause
// A page of metrics: of all processes that live and may be looked at, or of the one that was named. What it reads is
// bounded, whatever lies in the folder.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "util/vma_stats/metrics/exposition.hpp"
#include "util/vma_stats/options.hpp"
#include "util/vma_stats/processes.hpp"

namespace vma_stats {

// Why a file is not on the page.
enum Skip : std::uint8_t { kPermission, kUnreadable, kBusy, kLimit, kSkips };

class Collector
{
public:
    explicit Collector(const Options &options) : options_(options) {}
    // Reads the files now. Takes some 60 us a process. Not thread-safe.
    std::string page();

private:
    struct Page {
        Exposition &out;
        std::array<std::uint64_t, kSkips> skipped;
        std::size_t processes;
        std::size_t room; // for sockets
    };
    void add(const Found &one, Page &page);
    const std::string &user_name(uid_t uid); // asked for once: the answer may come from another machine
    const Options &options_;
    std::map<uid_t, std::string> users_;
};

} // namespace vma_stats
