// SPDX-License-Identifier: BSD-2-Clause
// memfds, seals and mappings.
#include "local/segment.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"

namespace vma::local {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

int map_all(int fd, std::size_t size, Mapping &out) noexcept
{
    void *base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return errno == ENOMEM ? -FI_ENOMEM : -errno;
    // A child has no use for it, and its copy would keep the pages of a dead parent.
    ::madvise(base, size, MADV_DONTFORK);
    out = Mapping(base, size);
    return 0;
}

} // namespace

Mapping::~Mapping()
{
    if (base_)
        ::munmap(base_, size_);
}

std::size_t whole_pages(std::size_t size) noexcept
{
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return size > SIZE_MAX - page ? 0 : (size + page - 1) / page * page;
}

int create_shared(const char *name, std::size_t size, SharedMemory &out) noexcept
{
    size = whole_pages(size);
    if (size == 0)
        return -FI_EINVAL;
    core::UniqueFd fd = core::make_memory(name, size, MFD_ALLOW_SEALING);
    if (!fd)
        return -errno;
    if (core::kernel::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
        return -errno;
    if (const int error = map_all(fd.get(), size, out.mapping))
        return error;
    out.fd = std::move(fd);
    return 0;
}

int map_shared(int fd, std::size_t size, Mapping &out) noexcept
{
    if (!is_sealed_memory(fd))
        return -FI_EINVAL;
    struct stat status {
    };
    struct statfs where {
    };
    if (core::kernel::fstat(fd, &status) != 0 || core::kernel::fstatfs(fd, &where) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || status.st_size < 0 || static_cast<std::size_t>(status.st_size) != size || size == 0)
        return -FI_EINVAL;
    if (where.f_type != TMPFS_MAGIC) // huge pages may not be had when they are touched: SIGBUS
        return -FI_EINVAL;
    return map_all(fd, size, out);
}

bool is_sealed_memory(int fd) noexcept
{
    const int seals = core::kernel::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & kSeals) == kSeals;
}

std::uint64_t socket_number(int fd) noexcept
{
    char path[48];
    char text[48];
    std::snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    const ssize_t length = core::kernel::readlink(path, text, sizeof text - 1);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    std::uint64_t number = 0;
    return std::sscanf(text, "socket:[%" SCNu64 "]", &number) == 1 ? number : 0;
}

bool is_unix_socket(int fd) noexcept
{
    int domain = 0;
    socklen_t length = sizeof domain;
    return core::kernel::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

bool is_anonymous_file(int fd) noexcept
{
    struct stat status {
    };
    return core::kernel::fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

} // namespace vma::local
