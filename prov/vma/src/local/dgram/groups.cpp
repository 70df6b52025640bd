// SPDX-License-Identifier: BSD-2-Clause
// Groups of datagram endpoints in the directory.
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "core/folder.hpp"
#include "core/kernel.hpp"
#include "local/cm/directory.hpp"

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
    core::kernel::unlinkat(fd_.get(), name.c_str(), 0);
    return core::kernel::linkat(fd_.get(), member.name_.c_str(), fd_.get(), name.c_str(), 0) == 0 ? 0 : -errno;
}

void Directory::leave(const std::string &group, const PortName &member) noexcept
{
    if (member.generation_ == core::fork_generation())
        core::kernel::unlinkat(fd_.get(), member_name(member.name_, group).c_str(), 0);
}

std::vector<std::string> Directory::members(const std::string &group) const noexcept
{
    std::vector<std::string> found;
    core::Folder list(fd_.get(), ".");
    const std::string prefix = member_name(name_of(0, NameKind::datagrams), group);
    const std::string_view start = std::string_view(prefix).substr(0, prefix.size() - 1); // without the port
    while (const char *const name = list.next())
        if (std::string_view(name).starts_with(start))
            found.emplace_back(name);
    return found;
}

std::int64_t Directory::changed_at() const noexcept
{
    struct stat info {
    };
    if (core::kernel::fstat(fd_.get(), &info) != 0)
        return 0;
    return info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec;
}

} // namespace vma::local
