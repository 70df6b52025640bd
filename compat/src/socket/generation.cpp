// SPDX-License-Identifier: BSD-2-Clause
// A System V segment, named by a symbolic link in the directory. It is marked for removal as soon as it is made, so it goes
// with its last process, however that ends; and unlike a file's, its memory can't be cut off under us (SIGBUS).
#include "compat/src/socket/generation.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/socket/offer.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kMagic = 0x48414d56; // "VMAH"
constexpr std::size_t kPathMax = 400;

// What is in it may be another program's segment with the same number: nothing is believed but magic and cookie, and the
// words are only ever compared with their earlier values.
struct Segment {
    std::uint32_t magic;
    std::uint64_t cookie;
    Generations generations;
};

struct Link {
    int id = -1;
    std::uint64_t cookie = 0;
};

bool read_link(const char *path, Link &link)
{
    char target[64];
    const ssize_t length = ::readlink(path, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    return std::sscanf(target, "shm.%d.%" SCNx64, &link.id, &link.cookie) == 2;
}

Generations *attach(const Link &link)
{
    shmid_ds about = {};
    if (::shmctl(link.id, IPC_STAT, &about) != 0 || about.shm_segsz < sizeof(Segment))
        return nullptr;
    void *const memory = ::shmat(link.id, nullptr, 0);
    if (memory == reinterpret_cast<void *>(-1))
        return nullptr;
    auto *const segment = static_cast<Segment *>(memory);
    if (segment->magic == kMagic && segment->cookie == link.cookie)
        return &segment->generations;
    ::shmdt(memory);
    return nullptr;
}

Generations *make(const char *directory, const char *path, std::uint64_t &cookie)
{
    const int id = ::shmget(IPC_PRIVATE, sizeof(Segment), IPC_CREAT | IPC_EXCL | 0600);
    if (id < 0)
        return nullptr;
    void *const memory = ::shmat(id, nullptr, 0);
    int error = errno;
    ::shmctl(id, IPC_RMID, nullptr); // others can attach while somebody is
    if (memory == reinterpret_cast<void *>(-1)) {
        errno = error;
        return nullptr;
    }
    auto *const segment = static_cast<Segment *>(memory);
    segment->magic = kMagic;
    segment->cookie = cookie = random_cookie();
    char target[64];
    char fresh[kPathMax];
    std::snprintf(target, sizeof target, "shm.%d.%" PRIx64, id, cookie);
    std::snprintf(fresh, sizeof fresh, "%s/generation.%d", directory, ::getpid());
    ::unlink(fresh);
    if (::symlink(target, fresh) == 0 && ::rename(fresh, path) == 0)
        return &segment->generations;
    error = errno;
    ::unlink(fresh);
    ::shmdt(memory);
    errno = error;
    return nullptr;
}

} // namespace

Generations *map_generations(const char *directory, std::uint32_t &id)
{
    char path[kPathMax];
    std::snprintf(path, sizeof path, "%s/generation", directory);
    Link link;
    Generations *words = read_link(path, link) ? attach(link) : nullptr;
    id = static_cast<std::uint32_t>(link.cookie);
    if (words != nullptr)
        return words;
    const int lock = libc::real.open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0)
        ::flock(lock, LOCK_EX);
    words = read_link(path, link) ? attach(link) : nullptr; // somebody was faster
    if (words == nullptr)
        words = make(directory, path, link.cookie);
    id = static_cast<std::uint32_t>(link.cookie);
    if (words == nullptr)
        VMA_LOG(kWarn, "cannot make %s: %s; all connections stay on the kernel", path, strerror(errno));
    if (lock >= 0)
        libc::real.close(lock);
    return words;
}

} // namespace vma::sock
