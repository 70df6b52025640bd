// SPDX-License-Identifier: BSD-2-Clause
// What a process is, as /proc tells it: limits, filters, namespaces, variables. A process that is about to become
// another program looks at itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace vma::command {

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

using Variables = std::map<std::string, std::string>;

struct Limits { // soft ones
    std::uint64_t descriptors = kUnlimited;
    std::uint64_t locked_memory = kUnlimited; // bytes
    std::uint64_t address_space = kUnlimited;
    std::uint64_t file_size = kUnlimited;
};

struct Namespaces { // inodes; 0: not known
    std::uint64_t network = 0;
    std::uint64_t ipc = 0;
    std::uint64_t pid = 0;
};

struct Place {
    pid_t pid = 0;
    bool is_self = false;
    uid_t user = 0;                 // the effective one
    int seccomp = 0;                // 0 none, 1 strict, 2 a filter
    std::uint64_t capabilities = 0; // effective
    std::uint64_t mappings = 0;
    unsigned processors = 1; // that it may run on
    Limits limits;
    Namespaces namespaces;
    Variables variables;          // the environment it began with
    bool is_privileged = false;   // AT_SECURE: set-user-ID, or capabilities of the file
    std::string library;          // the libvma.so that it has loaded; "" none
    bool library_is_gone = false; // its file was replaced or removed since
    std::string root;             // "/proc/PID/root", "" of this process itself

    // "" where it isn't set.
    std::string variable(const std::string &name) const;
};

// Texts of /proc/PID; what isn't there is left as it was.
void parse_status(std::string_view text, Place &out);
void parse_limits(std::string_view text, Limits &out);
void parse_maps(std::string_view text, Place &out);
Variables parse_environment(std::string_view text); // NAME=VALUE, each with its zero
unsigned count_processors(std::string_view list);   // "0-3,8"

Place this_process();
// Nothing: errno is ESRCH, or EACCES where it is another's.
std::optional<Place> read_place(pid_t pid);

} // namespace vma::command
