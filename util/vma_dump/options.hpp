// SPDX-License-Identifier: BSD-2-Clause
// The command line: tcpdump's letters, where they mean the same.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "util/tool/parsed.hpp"

namespace vma_dump {

using vma::tool::Parsed;

enum class Direction { kBoth, kIn, kOut };

struct Options {
    std::vector<pid_t> pids; // none: all processes
    std::string folder = "/tmp";
    std::string device;      // of vma_stats' rings, or a way; "": any
    std::string file;        // "-": standard output; "": lines of text there
    std::uint64_t count = 0; // packets; 0: no end
    std::uint32_t snap = 262144;
    std::uint64_t file_size = 0; // bytes of a file; 0: one file
    unsigned files = 0;          // that are kept; 0: all
    std::uint32_t ring = 16U << 20;
    Direction direction = Direction::kBoth;
    bool at_once = false; // each packet is written as it comes
    std::string filter;
};

// Says what is wrong on stderr; --help and --version print to stdout.
Parsed parse(int argc, char **argv, Options &out);

} // namespace vma_dump
