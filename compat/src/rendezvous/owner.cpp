// SPDX-License-Identifier: BSD-2-Clause
// Which names in the directory are left by the dead.
#include "compat/src/rendezvous/owner.hpp"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "compat/src/libc/real.hpp"

namespace vma::sock {

namespace {

// Also one that is dead and whose parent has not asked for it.
bool is_dead(int pid)
{
    char path[32];
    char text[256];
    if (::kill(pid, 0) != 0)
        return errno == ESRCH;
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = libc::real.open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t length = libc::real.read(fd, text, sizeof text - 1);
    libc::real.close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *const name_end = strrchr(text, ')');
    return name_end != nullptr && (strncmp(name_end, ") Z", 3) == 0 || strncmp(name_end, ") X", 3) == 0);
}

// Of the provider's endpoints, doc/local-device.md: "NETWORK-PORT" takes streams, "NETWORK-dPORT" datagrams.
bool is_endpoint(const char *name, char kind, unsigned port)
{
    unsigned long network = 0;
    unsigned found = 0;
    int end = 0;
    const bool parsed = kind == 'o' ? std::sscanf(name, "%lu-%u%n", &network, &found, &end) == 2
                                    : std::sscanf(name, "%lu-d%u%n", &network, &found, &end) == 2;
    return parsed && name[end] == '\0' && found == port;
}

// True too where it can't be told.
bool answers(const char *directory, const char *name)
{
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const int length = std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, name);
    if (length >= static_cast<int>(sizeof address.sun_path))
        return true;
    const int fd = libc::real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true;
    const bool refused = libc::real.connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 &&
                         (errno == ECONNREFUSED || errno == ENOENT);
    libc::real.close(fd);
    return !refused;
}

bool endpoint_lives(const char *directory, char kind, unsigned port)
{
    DIR *const dir = ::opendir(directory);
    if (dir == nullptr)
        return true;
    bool lives = false;
    while (const dirent *const entry = lives ? nullptr : ::readdir(dir))
        lives = is_endpoint(entry->d_name, kind, port) && answers(directory, entry->d_name);
    ::closedir(dir);
    return lives;
}

bool is_left_by_the_dead(const char *path, int directory, const char *name)
{
    char target[128];
    Owner owner;
    int used = 0;
    unsigned port = 0;
    const ssize_t length = ::readlinkat(directory, name, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    if (std::sscanf(target, VMA_AUTHOR_SCANNED "%n", &owner.process, &owner.space, &used) != 2 || used == 0 ||
        owner.process <= 0)
        return true;
    if (owner.space != 0 && owner.space == pid_space())
        return is_dead(owner.process);
    if (name[0] == 'w')
        return is_old(directory, name);
    return std::sscanf(target + used, "%u.", &port) != 1 || !endpoint_lives(path, name[0], port);
}

} // namespace

std::uint64_t pid_space()
{
    struct stat st = {};
    return ::stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

bool is_old(int directory, const char *name)
{
    constexpr std::time_t kLasts = 3600; // seconds
    struct stat st = {};
    return ::fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtim.tv_sec + kLasts < ::time(nullptr);
}

Owner this_process()
{
    return {::getpid(), pid_space()};
}

void remove_names_of_the_dead(const char *directory)
{
    DIR *const dir = ::opendir(directory);
    if (dir == nullptr)
        return;
    while (const dirent *const entry = ::readdir(dir)) {
        const char *const name = entry->d_name;
        if ((name[0] == 'o' || name[0] == 'u' || name[0] == 'w') && name[1] == '-' &&
            is_left_by_the_dead(directory, ::dirfd(dir), name))
            ::unlinkat(::dirfd(dir), name, 0);
    }
    ::closedir(dir);
}

} // namespace vma::sock
