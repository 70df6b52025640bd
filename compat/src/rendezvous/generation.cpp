// SPDX-License-Identifier: BSD-2-Clause
// A System V segment, named by a symbolic link in the directory. It goes with its last process, however that ends
// (fleeting_segment.hpp); and unlike a file's, its memory can't be cut off under us (SIGBUS). Its number means
// something in one IPC namespace (ipc_namespaces(7)), so the link is named after that, and processes of another one
// have words of their own.
//
// No lock: a process may be stopped at any moment, and nobody waits for it. Links are counted, the highest holds; where
// its segment is gone with its processes, the next number is taken, which link names make atomic, and which only who
// has it makes known.
#include "compat/src/rendezvous/generation.hpp"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/fleeting_segment.hpp"
#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kMagic = 0x48414d56; // "VMAH"
constexpr std::size_t kPathMax = 400;

// What is in it may be another program's segment with the same number: nothing is believed but magic and cookie, and
// the words are only ever compared with their earlier values.
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

// The words of an IPC namespace in a directory: "generation-<namespace>.<number>".
struct Place {
    const char *directory;
    std::uint64_t space;
};

std::uint64_t ipc_space() // 0: there is no /proc to tell it
{
    struct stat st = {};
    return ::stat("/proc/thread-self/ns/ipc", &st) == 0 ? st.st_ino : 0;
}

void print_path(char (&path)[kPathMax], const Place &place, std::uint64_t number)
{
    std::snprintf(path, sizeof path, "%.300s/generation-%" PRIx64 ".%" PRIu64, place.directory, place.space, number);
}

bool parse_name(const char *name, const Place &place, std::uint64_t &number)
{
    constexpr std::uint64_t kMost = UINT64_C(1) << 48; // nobody counts as far
    std::uint64_t space = 0;
    int end = 0;
    return std::sscanf(name, "generation-%" SCNx64 ".%" SCNu64 "%n", &space, &number, &end) == 2 && name[end] == '\0' &&
           space == place.space && number < kMost;
}

// The highest number, 0 if there is none. Those below `keep` are removed.
std::uint64_t find_newest(const Place &place, std::uint64_t keep)
{
    std::uint64_t newest = 0;
    DIR *const dir = ::opendir(place.directory);
    if (dir == nullptr)
        return 0;
    while (const dirent *const entry = ::readdir(dir)) {
        std::uint64_t number = 0;
        if (!parse_name(entry->d_name, place, number))
            continue;
        if (number < keep)
            ::unlinkat(::dirfd(dir), entry->d_name, 0);
        else if (number > newest)
            newest = number;
    }
    ::closedir(dir);
    return newest;
}

Segment *make(const char *directory, Link &link)
{
    auto *const segment = static_cast<Segment *>(make_fleeting(directory, sizeof(Segment), link.id));
    if (segment == nullptr)
        return nullptr;
    segment->magic = kMagic;
    segment->cookie = link.cookie = random_cookie();
    return segment;
}

enum class Published { kYes, kTooLate, kFailed };

// As the next after `newest`. Whoever looked at the folder before a higher number came, and took a lower one that had
// just been removed, sees that when he looks again.
Published publish(const Place &place, std::uint64_t newest, const Link &link)
{
    char path[kPathMax];
    char target[64];
    print_path(path, place, newest + 1);
    std::snprintf(target, sizeof target, "shm.%d.%" PRIx64, link.id, link.cookie);
    if (::symlink(target, path) != 0)
        return errno == EEXIST ? Published::kTooLate : Published::kFailed;
    if (find_newest(place, 0) == newest + 1) {
        find_newest(place, newest + 1);
        return Published::kYes;
    }
    ::unlink(path);
    return Published::kTooLate;
}

Generations *attach_newest(const Place &place, std::uint64_t newest, Link &link)
{
    char path[kPathMax];
    print_path(path, place, newest);
    return newest != 0 && read_link(path, link) ? attach(link) : nullptr;
}

} // namespace

Generations *map_generations(const char *directory, std::uint32_t &id)
{
    constexpr int kTries = 64; // each is another process's success
    const Place place = {directory, ipc_space()};
    Link own;
    Segment *made = nullptr;
    Generations *words = nullptr;
    remove_half_made(directory);
    for (int i = 0; i < kTries && words == nullptr; ++i) {
        Link link;
        const std::uint64_t newest = find_newest(place, 0);
        words = attach_newest(place, newest, link);
        if (words == nullptr) {
            made = made != nullptr ? made : make(directory, own);
            const Published result = made != nullptr ? publish(place, newest, own) : Published::kFailed;
            if (result == Published::kFailed)
                break;
            words = result == Published::kYes ? &made->generations : nullptr;
            link = own;
        }
        id = static_cast<std::uint32_t>(link.cookie);
    }
    const int error = errno;
    if (made != nullptr && words != &made->generations)
        ::shmdt(made);
    if (words == nullptr)
        VMA_LOG(kWarn, "cannot make the words that tell of offers in %s: %s; all connections stay on the kernel",
                directory, strerror(error));
    return words;
}

} // namespace vma::sock
