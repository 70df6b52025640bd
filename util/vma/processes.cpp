// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/processes.hpp"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "util/vma/files.hpp"
#include "util/vma_stats/kernel_sockets.hpp"
#include "util/vma_stats/processes.hpp"

namespace vma::command {

namespace {

using vma::stats::Facts;

std::uint64_t inode_of(const std::string &path)
{
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

// What it is called in the innermost namespace of processes that it is in: the last number.
std::uint64_t own_pid(pid_t pid)
{
    const std::string status = read_file("/proc/" + std::to_string(pid) + "/status").value_or("");
    for (const std::string_view line : split(status, "\n"))
        if (line.starts_with("NSpid:"))
            return parse_number(split(line, "\t ").back()).value_or(0);
    return 0;
}

std::string path_of(const std::string &root, const std::string &folder, std::uint64_t pid)
{
    return join({root, folder, "/vmastat.", std::to_string(pid)});
}

// `pid` is ours; the file has the process's own, which may be another's here.
bool read(const std::string &path, pid_t pid, Accelerated &out, bool &hidden)
{
    std::string error;
    errno = 0;
    if (!vma_stats::read_snapshot(path, out.snapshot, error)) {
        hidden = errno == EACCES;
        return false;
    }
    vma::stats::Header &h = out.snapshot.header;
    const std::uint64_t told = inode_of("/proc/" + std::to_string(pid) + "/ns/pid");
    const std::uint64_t space = told != 0 ? told : inode_of("/proc/self/ns/pid"); // a stranger's
    if (h.pid != own_pid(pid) || (h.pid_space != 0 && h.pid_space != space))
        return false;
    h.pid = static_cast<std::uint32_t>(pid);
    h.pid_space = 0; // ours
    if (!vma_stats::lives(out.snapshot))
        return false;
    out.pid = pid;
    out.program = vma_stats::program_of(out.snapshot);
    vma_stats::ask_kernel(out.snapshot);
    vma_stats::add_reasons(out.snapshot);
    return true;
}

std::vector<pid_t> all_pids()
{
    std::vector<pid_t> pids;
    DIR *const folder = ::opendir("/proc");
    if (folder == nullptr)
        return pids;
    while (const dirent *const entry = ::readdir(folder))
        if (const auto pid = parse_number(entry->d_name, INT32_MAX); pid && *pid != 0)
            pids.push_back(static_cast<pid_t>(*pid));
    ::closedir(folder);
    return pids;
}

std::string address_of(const std::uint8_t (&address)[16], std::uint16_t port)
{
    std::string text(reinterpret_cast<const char *>(address), sizeof address);
    text.push_back(static_cast<char>(port >> 8));
    text.push_back(static_cast<char>(port & 0xff));
    return text;
}

constexpr std::uint32_t kBoth = vma::stats::kHasLocal | vma::stats::kHasPeer;

} // namespace

std::string counters_folder()
{
    const char *const named = ::secure_getenv("VMA_STATS_SHMEM_DIR");
    return named != nullptr && *named != '\0' ? named : "/tmp";
}

Processes find_processes(const std::string &folder)
{
    Processes found;
    std::set<pid_t> known;
    const auto add = [&](const std::string &path, pid_t pid) {
        Accelerated one;
        bool hidden = false;
        if (read(path, pid, one, hidden)) {
            known.insert(pid);
            found.all.push_back(std::move(one));
        }
        if (hidden && inode_of("/proc/" + std::to_string(pid)) != 0) // else it is dead
            ++found.hidden;
    };
    const std::uint64_t mounts = inode_of("/proc/self/ns/mnt");
    const std::uint64_t pids = inode_of("/proc/self/ns/pid");
    for (const vma_stats::Found &one : vma_stats::list_files(folder))
        add(one.path, one.pid);
    for (const pid_t pid : all_pids()) {
        const std::string process = "/proc/" + std::to_string(pid);
        const std::uint64_t its_mounts = inode_of(process + "/ns/mnt");
        if (its_mounts == 0 || known.contains(pid) || (its_mounts == mounts && inode_of(process + "/ns/pid") == pids))
            continue;
        if (const std::string path = path_of(process + "/root", folder, own_pid(pid)); inode_of(path) != 0)
            add(path, pid);
    }
    std::sort(found.all.begin(), found.all.end(),
              [](const Accelerated &a, const Accelerated &b) { return a.pid < b.pid; });
    return found;
}

bool find_process(const std::string &folder, pid_t pid, Accelerated &out)
{
    bool hidden = false;
    const std::string process = "/proc/" + std::to_string(pid);
    return read(path_of("", folder, own_pid(pid)), pid, out, hidden) ||
           read(path_of(process + "/root", folder, own_pid(pid)), pid, out, hidden);
}

Ends::Ends(const Processes &processes)
{
    for (const Accelerated &process : processes.all)
        for (const vma::stats::Slot &slot : process.snapshot.slots) {
            const Facts &f = slot.facts;
            if (f.fd >= 0 && (f.flags & kBoth) == kBoth)
                by_addresses_.emplace(address_of(f.local, f.local_port) + address_of(f.peer, f.peer_port) +
                                          static_cast<char>(f.protocol),
                                      End{&process, &f});
        }
}

End Ends::other_end(const Accelerated &process, const Facts &socket) const
{
    if ((socket.flags & kBoth) != kBoth)
        return {};
    const std::string wanted = address_of(socket.peer, socket.peer_port) + address_of(socket.local, socket.local_port) +
                               static_cast<char>(socket.protocol);
    const auto [first, last] = by_addresses_.equal_range(wanted);
    for (auto one = first; one != last; ++one)
        if (one->second.socket != &socket || one->second.process != &process)
            return one->second;
    return {};
}

} // namespace vma::command
