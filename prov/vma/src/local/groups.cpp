// SPDX-License-Identifier: BSD-2-Clause
// Groups of datagram endpoints in the directory.
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "local/directory.hpp"

namespace vma::local {
namespace {

std::string member_name(const std::string &endpoint, const std::string &group)
{
    const std::size_t dash = endpoint.find('-');
    return endpoint.substr(0, dash) + "-g" + group + "-" + endpoint.substr(dash + 2);
}

} // namespace

int Directory::join(const std::string &group, const PortName &member) noexcept
{
    const std::string name = member_name(member.name_, group);
    // The port is ours, so whoever left such a name is dead.
    ::unlinkat(fd_.get(), name.c_str(), 0);
    return ::linkat(fd_.get(), member.name_.c_str(), fd_.get(), name.c_str(), 0) == 0 ? 0 : -errno;
}

void Directory::leave(const std::string &group, const PortName &member) noexcept
{
    if (member.generation_ == core::fork_generation())
        ::unlinkat(fd_.get(), member_name(member.name_, group).c_str(), 0);
}

std::vector<std::string> Directory::members(const std::string &group) const noexcept
{
    std::vector<std::string> found;
    const int fd = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? ::fdopendir(fd) : nullptr;
    const std::string prefix = member_name(name_of(0, NameKind::datagrams), group);
    const std::string_view start = std::string_view(prefix).substr(0, prefix.size() - 1); // without the port
    while (const dirent *entry = list ? ::readdir(list) : nullptr) {
        if (std::string_view(entry->d_name).starts_with(start))
            found.emplace_back(entry->d_name);
    }
    if (list)
        ::closedir(list);
    else if (fd >= 0)
        ::close(fd);
    return found;
}

std::int64_t Directory::changed_at() const noexcept
{
    struct stat info {
    };
    if (::fstat(fd_.get(), &info) != 0)
        return 0;
    return info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec;
}

} // namespace vma::local
