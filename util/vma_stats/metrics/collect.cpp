// SPDX-License-Identifier: BSD-2-Clause
// The folder is anybody's: a file counts for who owns it, whatever is written in it, and a limit of processes and of
// sockets keeps the page bounded. What was left out is a metric, too.
#include "util/vma_stats/metrics/collect.hpp"

#include <errno.h>
#include <pwd.h>
#include <time.h>

#include <vector>

#include "config.h"
#include "util/vma_stats/kernel_sockets.hpp"
#include "util/vma_stats/metrics/process_metrics.hpp"
#include "util/vma_stats/processes.hpp"

namespace vma_stats {

namespace {

constexpr std::size_t kMostProcesses = 512;
constexpr std::size_t kMostSockets = 4096; // all together, with --per_socket
constexpr std::size_t kMostUsers = 4096;   // names that are kept

constexpr auto kGauge = MetricType::kGauge;
constexpr Family kBuild = {"vma_exporter_build_info", kGauge, "The version of vma_stats that made this page"};
constexpr Family kProcesses = {"vma_exporter_processes", kGauge, "Processes on this page"};
constexpr Family kSkipped = {"vma_exporter_skipped_files", kGauge,
                             "Files of processes that are not on this page, by reason: permission, unreadable (no "
                             "file of this version), busy (sockets were closed all the time), limit (too many)"};
constexpr Family kRoom = {"vma_exporter_sockets_limit_reached", kGauge,
                          "1 if sockets are left out of this page, as there are too many (with --per_socket)"};
constexpr Family kTook = {"vma_exporter_collect_seconds", kGauge, "How long it took to read all processes"};

constexpr const char *kSkipNames[kSkips] = {"permission", "unreadable", "busy", "limit"};

std::uint64_t now_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 + static_cast<std::uint64_t>(now.tv_nsec);
}

bool is_named(const Found &one, const Snapshot &s, const Options &o)
{
    return o.name.empty() || program_of(s) == o.name || executable_of(one.pid) == o.name;
}

} // namespace

const std::string &Collector::user_name(uid_t uid)
{
    if (const auto known = users_.find(uid); known != users_.end())
        return known->second;
    if (users_.size() >= kMostUsers)
        users_.clear();
    std::string name = std::to_string(uid);
    std::vector<char> memory(16384);
    passwd entry = {};
    passwd *found = nullptr;
    if (::getpwuid_r(uid, &entry, memory.data(), memory.size(), &found) == 0 && found != nullptr)
        name = found->pw_name;
    return users_[uid] = name;
}

std::string Collector::page()
{
    const std::uint64_t start = now_ns();
    Exposition out;
    Page page = {out, {}, 0, kMostSockets};
    out.add(kBuild, Labels().add("version", PACKAGE_VERSION), 1);
    for (const Found &one : list_files(options_.folder))
        if (options_.pid == 0 || one.pid == options_.pid)
            add(one, page);
    out.add(kProcesses, {}, page.processes);
    for (std::size_t i = 0; i < kSkips; ++i)
        out.add(kSkipped, Labels().add("reason", kSkipNames[i]), page.skipped[i]);
    if (options_.per_socket)
        out.add(kRoom, {}, page.room == 0 ? 1 : 0);
    out.add_seconds(kTook, {}, now_ns() - start);
    return out.text();
}

void Collector::add(const Found &one, Page &page)
{
    Snapshot s;
    std::string error;
    if (page.processes == kMostProcesses) {
        ++page.skipped[kLimit];
        return;
    }
    errno = 0;
    if (!read_snapshot(one.path, s, error)) {
        if (errno != ENOENT) // else it has ended meanwhile
            ++page.skipped[errno == EACCES ? kPermission : kUnreadable];
        return;
    }
    if (static_cast<pid_t>(s.header.pid) != one.pid || !lives(s) || !is_named(one, s, options_))
        return;
    if (!s.whole) {
        ++page.skipped[kBusy];
        return;
    }
    ++page.processes;
    const Labels labels = labels_of_process(one.pid, program_of(s), user_name(s.owner));
    add_process(page.out, labels, s);
    if (!options_.per_socket)
        return;
    ask_kernel(s);
    add_reasons(s);
    add_sockets(page.out, labels, s, options_, page.room);
}

} // namespace vma_stats
