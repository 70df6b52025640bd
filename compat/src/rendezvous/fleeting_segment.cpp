// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/rendezvous/fleeting_segment.hpp"

#include <errno.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>

namespace vma::sock {

namespace {

constexpr unsigned kKeys = 4; // another user may have made a segment of one

std::uint64_t mix(std::uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

// Of the directory, whatever its path is in another container. Where it is gone, of the user.
struct Keys {
    explicit Keys(const char *directory)
    {
        struct stat st = {};
        if (::stat(directory, &st) == 0)
            seed = mix(mix(st.st_dev) + st.st_ino);
        seed = mix(seed + ::geteuid());
    }
    key_t number(unsigned which) const { return static_cast<key_t>(mix(seed + which) & INT32_MAX) | 1; }

    std::uint64_t seed = 0;
};

// False: it is another user's. To mark one that somebody has just attached does what that one does next.
bool remove_by_key(key_t key)
{
    const int id = ::shmget(key, 0, 0);
    shmid_ds about = {};
    if (id < 0)
        return errno == ENOENT;
    if (::shmctl(id, IPC_STAT, &about) != 0)
        return errno != EACCES;
    return about.shm_perm.uid == ::geteuid() && (::shmctl(id, IPC_RMID, nullptr) == 0 || errno != EPERM);
}

void *attach_and_mark(int id)
{
    void *const memory = ::shmat(id, nullptr, 0);
    const int error = errno;
    ::shmctl(id, IPC_RMID, nullptr);
    errno = error;
    return memory != reinterpret_cast<void *>(-1) ? memory : nullptr;
}

bool was_removed(int error)
{
    return error == EINVAL || error == EIDRM;
}

} // namespace

void *make_fleeting(const char *directory, std::size_t size, int &id)
{
    constexpr int kTries = 64; // each is another process's doing
    const Keys keys(directory);
    unsigned which = 0;
    for (int i = 0; i < kTries && which < kKeys; ++i) {
        const key_t key = keys.number(which);
        id = ::shmget(key, size, IPC_CREAT | IPC_EXCL | SHM_NORESERVE | 0600);
        if (id >= 0) {
            void *const memory = attach_and_mark(id);
            if (memory != nullptr || !was_removed(errno))
                return memory;
        } else if (errno != EEXIST) {
            return nullptr;
        } else if (!remove_by_key(key)) {
            ++which;
        }
    }
    // Another user has all keys, which anybody can know: it is left if this process is killed in between.
    id = ::shmget(IPC_PRIVATE, size, IPC_CREAT | IPC_EXCL | SHM_NORESERVE | 0600);
    return id >= 0 ? attach_and_mark(id) : nullptr;
}

void remove_half_made(const char *directory)
{
    const int saved = errno;
    const Keys keys(directory);
    for (unsigned which = 0; which < kKeys; ++which)
        remove_by_key(keys.number(which));
    errno = saved;
}

} // namespace vma::sock
