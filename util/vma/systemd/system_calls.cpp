// SPDX-License-Identifier: BSD-2-Clause
// SystemCallFilter= against what acceleration needs (compat/src/engine/sandbox_trial.cpp tries the same when a process
// starts), by systemd's sets of calls (systemd-analyze syscall-filter).
#include <algorithm>
#include <array>

#include "util/vma/files.hpp"
#include "util/vma/systemd/unit_judge.hpp"

namespace vma::command {

namespace {

struct Needed {
    std::string_view name;
    std::string_view calls; // that we need of a set
    bool can_be_missed;     // what is refused with an error costs nothing
};

constexpr std::array kNeeded = {
    Needed{"@basic-io", "close lseek pread64 pwrite64 read write", false},
    Needed{
        "@file-system",
        "access faccessat fallocate fcntl fstat ftruncate getdents64 linkat mkdir mkdirat newfstatat openat readlink "
        "readlinkat rename renameat symlink symlinkat unlink unlinkat",
        false},
    Needed{"@io-event", "epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 poll ppoll", false},
    Needed{"@ipc", "memfd_create shmat shmctl shmdt shmget", false},
    Needed{"@network-io",
           "accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmsg sendmsg sendto setsockopt "
           "shutdown socket",
           false},
    Needed{"@process", "clone wait4", false}, Needed{"@signal", "rt_sigaction rt_sigprocmask", false},
    Needed{"@timer", "timerfd_create", false},
    // Of no small set:
    Needed{"flock", "", false}, Needed{"ioctl", "", false}, Needed{"madvise", "", false}, Needed{"mremap", "", false},
    Needed{"kcmp", "", true}, Needed{"@resources", "mbind", true}, // one call: it is what is told, and allowed
};

using Allowed = std::array<bool, kNeeded.size()>;

bool has_word(std::string_view words, std::string_view word)
{
    const std::vector<std::string_view> all = split(words, " ");
    return std::find(all.begin(), all.end(), word) != all.end();
}

void apply(std::string_view call, bool allows, Allowed &allowed)
{
    call = call.substr(0, call.find(':')); // CALL:ERRNO
    for (std::size_t i = 0; i < kNeeded.size(); ++i)
        if (call == "@system-service" || call == "@known" || call == kNeeded[i].name ||
            (allows ? call == kNeeded[i].calls : has_word(kNeeded[i].calls, call)))
            allowed[i] = allows;
}

} // namespace

std::string refused_by(const std::vector<std::string> &filters, bool kills)
{
    Allowed allowed = {};
    if (filters.empty())
        return {};
    // The first one says whether what is listed is allowed or refused; ~ means the other.
    const bool lists_refused = filters.front().starts_with('~');
    allowed.fill(lists_refused);
    for (std::string_view filter : filters) {
        const bool allows = !filter.starts_with('~');
        if (!allows)
            filter.remove_prefix(1);
        for (const std::string_view call : split(filter, " \t"))
            apply(call, allows, allowed);
    }
    for (std::size_t i = 0; i < kNeeded.size(); ++i)
        if (!allowed[i] && (kills || !kNeeded[i].can_be_missed))
            return std::string(kNeeded[i].calls == "mbind" ? kNeeded[i].calls : kNeeded[i].name);
    return {};
}

} // namespace vma::command
