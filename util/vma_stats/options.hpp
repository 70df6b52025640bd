// SPDX-License-Identifier: BSD-2-Clause
// The command line: libvma's vma_stats, and --json, --live, --explain, --prometheus, --listen.
#pragma once

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "util/tool/parsed.hpp"

namespace vma_stats {

using vma::tool::Parsed;

inline constexpr int kUnset = INT_MIN;

struct Options {
    pid_t pid = 0; // 0: find one
    std::string folder = "/tmp";
    std::string name;
    bool cleans = true;
    unsigned interval = 1; // s
    unsigned cycles = 0;   // 0: until the process ends
    int view = 1;          // 1..5
    bool deltas = false;
    bool zero = false;
    int log_level = kUnset;
    int log_details = kUnset;
    int dump_fd = kUnset;
    int dump_level = 3;
    std::string dump_word = "info";
    std::vector<std::pair<int, int>> sockets; // ranges, both ends included; empty: all
    bool json = false;
    bool live = false;
    bool explain = false;
    std::string explained; // a parameter's name; empty: all
    bool prometheus = false;
    std::string prometheus_file; // empty: standard output
    bool repeats = false;        // an interval was given
    std::string listen;          // empty: don't
    bool per_socket = false;
};

// Says what is wrong on stderr; -h and -V print to stdout.
Parsed parse(int argc, char **argv, Options &out);

bool shows(const Options &o, int fd);
void print_usage(FILE *out);

// explain.cpp. False: there is no such word, parameter.
bool read_level(const std::string &word, int &level); // of VMA_TRACELEVEL, or 1..7
bool explain(const std::string &name);

} // namespace vma_stats
