// SPDX-License-Identifier: BSD-2-Clause
#include "notify_dir.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string_view>

namespace vma::guard {

namespace {

constexpr std::string_view kBegin = "vma_agent.";
constexpr std::string_view kEnd = ".pid";
constexpr mode_t kForAll = 01777;

std::string failure(const std::string &what)
{
    return what + ": " + std::strerror(errno);
}

} // namespace

pid_t process_of(const char *name)
{
    std::string_view rest(name);
    if (!rest.starts_with(kBegin) || !rest.ends_with(kEnd) || rest.size() <= kBegin.size() + kEnd.size())
        return -1;
    rest = rest.substr(kBegin.size(), rest.size() - kBegin.size() - kEnd.size());
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    return error == std::errc{} && end == rest.data() + rest.size() && pid > 0 ? pid : -1;
}

std::string NotifyDir::open(const char *path)
{
    const bool made = mkdir(path, kForAll) == 0;
    folder_ = core::UniqueFd(::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder_)
        return failure(path);
    struct stat there = {};
    if (fstat(folder_.get(), &there) != 0 || (made && fchmod(folder_.get(), kForAll) != 0)) // whatever the umask
        return failure(path);
    if (there.st_uid != 0 && there.st_uid != geteuid())
        return std::string(path) + ": the folder is user " + std::to_string(there.st_uid) +
               "'s, and has to be root's or this user's";
    inotify_ = core::UniqueFd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    const std::string same = "/proc/self/fd/" + std::to_string(folder_.get());
    if (!inotify_ ||
        inotify_add_watch(inotify_.get(), same.c_str(), IN_CLOSE_WRITE | IN_CLOSE_NOWRITE | IN_ONLYDIR) < 0)
        return failure("inotify of " + std::string(path));
    return "";
}

int NotifyDir::read_some(pid_t (&found)[kAtATime], bool &whole)
{
    // No more events than there is room for, as each takes its structure at least.
    alignas(inotify_event) char buffer[kAtATime * sizeof(inotify_event)];
    static_assert(sizeof buffer >= sizeof(inotify_event) + NAME_MAX + 1);
    const ssize_t length = ::read(inotify_.get(), buffer, sizeof buffer);
    if (length <= 0)
        return -1;
    int count = 0;
    for (ssize_t at = 0; at < length;) {
        const auto *const event = reinterpret_cast<const inotify_event *>(buffer + at);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        whole = whole && (event->mask & IN_Q_OVERFLOW) == 0;
        if (event->len == 0)
            continue;
        if (const pid_t pid = process_of(event->name); pid > 0)
            found[count++] = pid;
    }
    return count;
}

void NotifyDir::clean(pid_t pid) const
{
    const std::string name = std::string(kBegin) + std::to_string(pid);
    unlinkat(folder_.get(), (name + ".pid").c_str(), 0);
    unlinkat(folder_.get(), (name + ".sock").c_str(), 0);
}

} // namespace vma::guard
