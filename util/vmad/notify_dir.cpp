// SPDX-License-Identifier: BSD-2-Clause
#include "notify_dir.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace vma::guard {

namespace {

constexpr const char *kBegin = "vma_agent.";
constexpr mode_t kForAll = 01777;

std::string failure(const std::string &what)
{
    return what + ": " + std::strerror(errno);
}

} // namespace

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
    return "";
}

void NotifyDir::clean(pid_t pid) const
{
    const std::string name = std::string(kBegin) + std::to_string(pid);
    unlinkat(folder_.get(), (name + ".pid").c_str(), 0);
    unlinkat(folder_.get(), (name + ".sock").c_str(), 0);
}

} // namespace vma::guard
