// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_stats/processes.hpp"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace vma_stats {

namespace {

constexpr char kPrefix[] = "vmastat.";
constexpr std::uint64_t kSecond = 1000000000;
constexpr std::uint64_t kClocksDiffer = 10 * kSecond; // the time of day may have been set since

std::uint64_t read_clock(clockid_t clock)
{
    timespec now = {};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * kSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

// When it started, CLOCK_BOOTTIME; false if there is no such process, or it is a zombie.
bool read_start(pid_t pid, std::uint64_t &start_ns)
{
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    FILE *const file = ::fopen(path.c_str(), "re");
    if (file == nullptr)
        return false;
    char line[1024];
    const std::size_t length = ::fread(line, 1, sizeof line - 1, file);
    ::fclose(file);
    line[length] = '\0';
    const char *const end_of_name = strrchr(line, ')');
    char state = 'Z';
    unsigned long long ticks = 0;
    if (end_of_name == nullptr ||
        sscanf(end_of_name + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &state, &ticks) != 2)
        return false;
    start_ns = ticks * (kSecond / static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
    return state != 'Z' && state != 'X';
}

bool is_of_this_boot(const vma::stats::Header &h)
{
    const std::uint64_t booted = read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME);
    return h.made_boot_ns <= read_clock(CLOCK_BOOTTIME) && h.made_ns + kClocksDiffer >= booted + h.made_boot_ns;
}

ino_t pid_space()
{
    struct stat space = {};
    return ::stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

} // namespace

bool lives(const Snapshot &s)
{
    const vma::stats::Header &h = s.header;
    std::uint64_t start_ns = 0;
    if (h.pid_space != 0 && h.pid_space != pid_space())
        return true;
    return h.state != vma::stats::State::kReplaced && is_of_this_boot(h) &&
           read_start(static_cast<pid_t>(h.pid), start_ns) && start_ns <= h.made_boot_ns;
}

std::vector<Found> list_files(const std::string &folder)
{
    std::vector<Found> found;
    DIR *const directory = ::opendir(folder.c_str());
    if (directory == nullptr)
        return found;
    constexpr std::size_t kMost = 100000;
    while (const dirent *const entry = ::readdir(directory)) {
        if (strncmp(entry->d_name, kPrefix, sizeof kPrefix - 1) != 0 || found.size() == kMost)
            continue;
        const char *const digits = entry->d_name + sizeof kPrefix - 1;
        char *end = nullptr;
        errno = 0;
        const long pid = strtol(digits, &end, 10);
        if (*digits >= '1' && *digits <= '9' && *end == '\0' && errno == 0 && pid <= INT_MAX)
            found.push_back({static_cast<pid_t>(pid), folder + "/" + entry->d_name});
    }
    ::closedir(directory);
    std::sort(found.begin(), found.end(), [](const Found &a, const Found &b) { return a.pid < b.pid; });
    return found;
}

void clean(const std::string &folder, pid_t pid, const std::string &name)
{
    for (const Found &one : list_files(folder)) {
        struct stat before = {};
        struct stat after = {};
        Snapshot s;
        std::string error;
        if (::lstat(one.path.c_str(), &before) != 0 || !S_ISREG(before.st_mode) || !read_snapshot(one.path, s, error))
            continue;
        if (one.pid == pid || (!name.empty() && program_of(s) == name))
            continue;
        // A process with the same id that began since has a file of its own under the name.
        if (static_cast<pid_t>(s.header.pid) == one.pid && !lives(s) && ::lstat(one.path.c_str(), &after) == 0 &&
            after.st_ino == before.st_ino)
            ::unlink(one.path.c_str());
    }
}

std::string executable_of(pid_t pid)
{
    char target[PATH_MAX];
    const std::string link = "/proc/" + std::to_string(pid) + "/exe";
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
    if (length <= 0)
        return {};
    const std::string whole(target, static_cast<std::size_t>(length));
    return whole.substr(whole.rfind('/') + 1);
}

} // namespace vma_stats
