// SPDX-License-Identifier: BSD-2-Clause
// memfds, seals and mappings.
#include "local/segment.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

// The kernel counts memfds as files: one above RLIMIT_FSIZE raises SIGXFSZ, which kills the program.
bool beyond_file_limit(std::size_t size) noexcept
{
    rlimit limit{};
    return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur;
}

} // namespace

Mapping::~Mapping()
{
    if (base_)
        ::munmap(base_, size_);
}

int create_shared(const char *name, std::size_t size, SharedMemory &out) noexcept
{
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if (size == 0 || size > SIZE_MAX - page)
        return -FI_EINVAL;
    size = (size + page - 1) / page * page;
    if (beyond_file_limit(size))
        return -FI_ENOSPC;
    core::UniqueFd fd =
        core::make_fd([name] { return core::kernel::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); });
    if (!fd)
        return -errno;
    if (core::kernel::ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
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
    struct stat status {
    };
    if (core::kernel::fstat(fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || status.st_size < 0 || static_cast<std::size_t>(status.st_size) != size || size == 0)
        return -FI_EINVAL;
    const int seals = core::kernel::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & kSeals) != kSeals)
        return -FI_EINVAL;
    return map_all(fd, size, out);
}

bool is_anonymous_file(int fd) noexcept
{
    struct stat status {
    };
    return core::kernel::fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

} // namespace vma::local
