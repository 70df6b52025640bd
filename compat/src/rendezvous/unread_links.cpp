// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/rendezvous/unread_links.hpp"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/libc/join.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rendezvous/owner.hpp"

namespace vma::sock {

[[VMA_AT_STARTUP]] UnreadPath unread_folder()
{
    UnreadPath path;
    char directory[kOffersPathMax];
    offers_path(directory);
    libc::join(path.text, sizeof path.text, {directory, "/unread"});
    return path;
}

UnreadPath link_path(const UnreadName &name)
{
    UnreadPath path;
    const UnreadPath folder = unread_folder();
    std::snprintf(path.text, sizeof path.text, "%.300s/%" PRIx64 "-%" PRIx64, folder.text, name.network, name.cookie);
    return path;
}

bool name_of(int fd, UnreadName &name)
{
    name.network = udp::network_of(fd);
    name.cookie = libc::read_cookie(fd);
    return name.cookie != 0;
}

bool read_link(const UnreadPath &path, UnreadLink &link)
{
    char target[80];
    const ssize_t length = ::readlink(path.text, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    return std::sscanf(target, "shm.%d.%" SCNx64 ".%" SCNu64 ".%" SCNx64, &link.key, &link.secret, &link.inode,
                       &link.space) == 4;
}

// The folder may go while it is empty.
bool make_link(const UnreadPath &path, const UnreadLink &link)
{
    char target[80];
    std::snprintf(target, sizeof target, "shm.%d.%" PRIx64 ".%" PRIu64 ".%" PRIx64, link.key, link.secret, link.inode,
                  link.space);
    int result = -1;
    for (int tries = 0; tries < 3 && result != 0; ++tries) {
        ::mkdir(unread_folder().text, 0700);
        ::unlink(path.text); // of an earlier socket: cookies begin anew with the kernel
        result = ::symlink(target, path.text);
    }
    return result == 0;
}

// Its segment, of this user. -1: there is none.
int find_segment(const UnreadLink &link, shmid_ds &about, std::size_t least)
{
    const int id = ::shmget(link.key, 0, 0);
    const bool fits =
        id >= 0 && ::shmctl(id, IPC_STAT, &about) == 0 && about.shm_segsz >= least && about.shm_perm.uid == ::geteuid();
    return fits ? id : -1;
}

namespace {

void remove_renamed(const UnreadPath &path, int id)
{
    ::shmctl(id, IPC_RMID, nullptr); // its memory goes when the last process drops it
    ::unlink(path.text);
}

} // namespace

// What a filter of system calls may refuse is left to the next program that opens the directory. So is what a process
// leaves that is killed in here: a segment has a link, under this name or another one, for as long as it is there.
void remove_unread(const UnreadPath &path, int id)
{
    if (sandboxed())
        return;
    UnreadPath renamed;
    std::snprintf(renamed.text, sizeof renamed.text, "%.380s.%d", path.text, id);
    ::rename(path.text, renamed.text);
    remove_renamed(renamed, id);
    *strrchr(renamed.text, '/') = '\0';
    ::rmdir(renamed.text); // the folder, if it is empty
}

std::uint64_t inode_of(int fd)
{
    struct stat st = {};
    return ::fstat(fd, &st) == 0 ? st.st_ino : 0;
}

// ---- what the dead left

namespace {

constexpr std::size_t kPathMax = 400;

// The tables of sockets of this network namespace: a socket that only waits in a message is there, one that nobody can
// get any more has no inode.
bool kernel_lists(const char *table, std::uint64_t inode, bool &readable)
{
    FILE *const file = libc::real.fopen(table, "re");
    if (file == nullptr)
        return false;
    readable = true;
    char line[512];
    bool found = false;
    while (!found && ::fgets(line, sizeof line, file) != nullptr) {
        std::uint64_t listed = 0;
        found = std::sscanf(line, " %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64, &listed) == 1 && listed == inode;
    }
    libc::real.fclose(file);
    return found;
}

// In another network namespace: some process has it open.
bool holds(const char *process, std::uint64_t inode)
{
    char path[kPathMax];
    char target[64];
    char wanted[64];
    std::snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    std::snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", inode);
    DIR *const descriptors = ::opendir(path);
    if (descriptors == nullptr)
        return false;
    bool found = false;
    while (const dirent *const entry = found ? nullptr : ::readdir(descriptors)) {
        const ssize_t length = ::readlinkat(::dirfd(descriptors), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    ::closedir(descriptors);
    return found;
}

bool somebody_holds(std::uint64_t inode)
{
    DIR *const processes = ::opendir("/proc");
    if (processes == nullptr)
        return true;
    bool found = false;
    while (const dirent *const entry = found ? nullptr : ::readdir(processes))
        found = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && holds(entry->d_name, inode);
    ::closedir(processes);
    return found;
}

bool may_live(std::uint64_t network, const UnreadLink &link, const UnreadPath &path)
{
    bool readable = false;
    if (network != udp::network_of_thread()) // of another container /proc doesn't show the processes
        return somebody_holds(link.inode) || (link.space != pid_space() && !is_old(AT_FDCWD, path.text));
    // While sockets come and go a reader may miss one that stays: what is in none of several readings is not there.
    constexpr int kReadings = 4;
    bool found = false;
    for (int i = 0; i < kReadings && !found; ++i)
        for (const char *const table : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6",
                                        "/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"})
            found = found || kernel_lists(table, link.inode, readable);
    return found || !readable;
}

// `id`: its segment's, if there is one.
bool is_left_by_the_dead(const UnreadPath &path, std::uint64_t network, int &id)
{
    shmid_ds about = {};
    UnreadLink link;
    if (!read_link(path, link))
        return errno != ENOENT;
    id = find_segment(link, about, 0);
    return (id < 0 || about.shm_nattch == 0) && !may_live(network, link, path);
}

// `path`: of a link of that name.
void look_at(const UnreadPath &path, const char *name)
{
    UnreadName of;
    UnreadLink link;
    shmid_ds about = {};
    int id = -1;
    const int fields = std::sscanf(name, "%" SCNx64 "-%" SCNx64 ".%d", &of.network, &of.cookie, &id);
    if (fields == 3)
        remove_renamed(path, read_link(path, link) ? find_segment(link, about, 0) : -1);
    else if (fields == 2 && is_left_by_the_dead(path, of.network, id))
        remove_unread(path, id);
}

} // namespace

void remove_unread_of_the_dead()
{
    UnreadPath path = unread_folder();
    DIR *const folder = ::opendir(path.text);
    if (folder == nullptr)
        return;
    char *const end = path.text + strlen(path.text);
    while (const dirent *const entry = ::readdir(folder)) {
        std::snprintf(end, 82, "/%.80s", entry->d_name); // the folder's has 300 at the most
        look_at(path, entry->d_name);
    }
    *end = '\0';
    ::closedir(folder);
    ::rmdir(path.text);
}

} // namespace vma::sock
