// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/bounds.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>

#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::sock {

namespace {

constexpr std::uint64_t kNone = UINT64_MAX;
constexpr std::uint64_t kMappings = 2;                     // a stream: each side maps both segments
constexpr std::uint64_t kBeside = std::uint64_t{72} << 10; // of a segment, beside the ring
constexpr std::uint64_t kFewest = 16;                      // a program that has so little room has room for these

// What is read on the way: too long for a stack. Offload lock.
struct Texts {
    char groups[4096];
    char path[PATH_MAX];
};
[[VMA_TABLE]] constinit Texts g_bounds = {};

// 0: it can't be read. What doesn't fit isn't needed.
std::size_t read_file(const char *path, char *text, std::size_t size)
{
    const int fd = libc::real.open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t length = libc::real.read(fd, text, size - 1);
    libc::real.close(fd);
    text[std::max<ssize_t>(length, 0)] = '\0';
    return static_cast<std::size_t>(std::max<ssize_t>(length, 0));
}

std::uint64_t read_number(const char *path)
{
    char text[64];
    return read_file(path, text, sizeof text) != 0 ? parse_limit(text) : kNone;
}

// The group's and all those above it.
std::uint64_t limit_of_group(const char *root, char *group, const char *file)
{
    std::uint64_t least = kNone;
    for (;;) {
        char(&path)[PATH_MAX] = g_bounds.path;
        if (std::snprintf(path, sizeof path, "%s%s/%s", root, group, file) < static_cast<int>(sizeof path))
            least = std::min(least, read_number(path));
        char *const slash = strrchr(group, '/');
        if (slash == nullptr)
            return least;
        *slash = '\0';
    }
}

// Version 2 of control groups has a line "0::/GROUP", version 1 one "NUMBER:memory:/GROUP".
std::uint64_t limit_of_groups()
{
    auto &text = g_bounds.groups;
    std::uint64_t least = kNone;
    if (read_file("/proc/self/cgroup", text, sizeof text) == 0)
        return least;
    char *rest = nullptr;
    for (char *line = strtok_r(text, "\n", &rest); line != nullptr; line = strtok_r(nullptr, "\n", &rest)) {
        char *const names = strchr(line, ':');
        char *const group = names != nullptr ? strchr(names + 1, ':') : nullptr;
        if (group == nullptr)
            continue;
        *group = '\0';
        if (names[1] == '\0')
            least = std::min(least, limit_of_group("/sys/fs/cgroup", group + 1, "memory.max"));
        else if (strstr(names + 1, "memory") != nullptr)
            least = std::min(least, limit_of_group("/sys/fs/cgroup/memory", group + 1, "memory.limit_in_bytes"));
    }
    return least;
}

std::uint64_t count_mappings()
{
    const int fd = libc::real.open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    std::uint64_t lines = 0;
    char text[1024];
    for (ssize_t n = 0; fd >= 0 && (n = libc::real.read(fd, text, sizeof text)) > 0;)
        lines += static_cast<std::uint64_t>(std::count(text, text + n, '\n'));
    if (fd >= 0)
        libc::real.close(fd);
    return lines;
}

std::uint64_t machine_memory()
{
    struct sysinfo info = {};
    return ::sysinfo(&info) == 0 ? std::uint64_t{info.totalram} * info.mem_unit : kNone;
}

} // namespace

std::uint64_t parse_limit(const char *text)
{
    char *end = nullptr;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    return end != text && errno == 0 && text[0] != '-' ? number : kNone;
}

ProcessLimits read_process_limits(std::uint64_t streams)
{
    ProcessLimits limits;
    rlimit room = {};
    limits.mappings = read_number("/proc/sys/vm/max_map_count");
    const std::uint64_t all = count_mappings();
    limits.mapped = all - std::min(all, streams * kMappings);
    if (::getrlimit(RLIMIT_AS, &room) == 0 && room.rlim_cur != RLIM_INFINITY)
        limits.address_space = room.rlim_cur;
    limits.memory = std::min(limit_of_groups(), machine_memory());
    return limits;
}

// Half of the mappings and of the memory, a quarter of the addresses: the peer's ring is mapped too.
std::uint64_t most_streams(const ProcessLimits &limits, std::uint64_t ring)
{
    const std::uint64_t mappings = limits.mappings - std::min(limits.mappings, limits.mapped);
    const std::uint64_t most = std::min({mappings / 2 / kMappings, limits.address_space / 4 / (2 * (ring + kBeside)),
                                         limits.memory / 2 / (ring + kBeside)});
    return std::max(most, kFewest);
}

// The program maps more as it goes on: what is left is asked for again when there are twice as many streams.
bool room_for_stream(StreamRoom &room, std::uint64_t streams)
{
    constexpr std::uint64_t kFirstLook = 256;
    if (room.most == 0 || (streams >= kFirstLook && streams >= 2 * room.looked_at)) {
        const int saved = errno;
        room.looked_at = streams;
        room.most = most_streams(read_process_limits(streams), config::params().stream_ring);
        errno = saved;
    }
    if (streams < room.most)
        return true;
    if (config::is_first(config::Once::kTooManyStreams))
        VMA_LOG(kWarn,
                "%zu connections are accelerated, and more might take what the program needs itself (vm.max_map_count, "
                "memory, RLIMIT_AS): others stay on the kernel",
                static_cast<std::size_t>(streams));
    return false;
}

} // namespace vma::sock
