// SPDX-License-Identifier: BSD-2-Clause
// Names are symbolic links: "u-<words>-<cookie>-<inode>" of receivers, "w-..." of wishes.
#include "compat/src/rendezvous/names.hpp"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/rendezvous/generation.hpp"
#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::uint32_t kMostSockets = 1 << 20;

struct Path {
    char text[320];
};

Path path_of(char kind, const Identity &who)
{
    Path path;
    std::snprintf(path.text, sizeof path.text, "%s/%c-%" PRIx32 "-%" PRIx64 "-%" PRIx32, offers_directory(), kind,
                  generations_id(), who.cookie, who.inode);
    return path;
}

[[gnu::noinline]] void remove_link(char kind, const Identity &who) // its path is no part of a caller's frame
{
    ::unlink(path_of(kind, who).text);
}

bool make_link(char kind, const Identity &who, const char *target)
{
    const Path path = path_of(kind, who);
    ::unlink(path.text); // of a process that died, or of our own before a fork
    if (::symlink(target, path.text) == 0 || errno == EEXIST)
        return true;
    VMA_LOG(kWarn, "cannot leave a name in %s: %s; datagrams go by the kernel", offers_directory(), strerror(errno));
    return false;
}

} // namespace

bool identify(int fd, Identity &out)
{
    struct stat st = {};
    out.cookie = libc::read_cookie(fd);
    if (out.cookie == 0 || ::fstat(fd, &st) != 0)
        return false;
    out.inode = static_cast<std::uint32_t>(st.st_ino);
    return true;
}

bool publish_name(const Identity &who, const Target &target)
{
    char text[96];
    std::snprintf(text, sizeof text, VMA_AUTHOR_PRINTED "%u.%u.%" PRIx32, target.owner.process, target.owner.space,
                  unsigned{target.port}, target.index, target.cookie);
    const bool published = make_link('u', who, text);
    withdraw_wish(who);
    names_changed();
    return published;
}

void withdraw_name(const Identity &who)
{
    remove_link('u', who);
    names_changed();
}

bool find_name(const Identity &who, Target &out)
{
    char text[96];
    const ssize_t length = ::readlink(path_of('u', who).text, text, sizeof text - 1);
    if (length < 0)
        return false;
    text[length] = '\0';
    unsigned port = 0;
    int used = 0;
    if (std::sscanf(text, VMA_AUTHOR_SCANNED "%u.%" SCNu32 ".%" SCNx32 "%n", &out.owner.process, &out.owner.space,
                    &port, &out.index, &out.cookie, &used) != 5 ||
        text[used] != '\0' || port == 0 || port > 65535 || out.owner.process <= 0 || out.index >= kMostSockets)
        return false;
    out.port = static_cast<std::uint16_t>(port);
    return true;
}

std::uint32_t leave_wish(const Identity &who)
{
    char text[64];
    const Owner owner = this_process();
    std::snprintf(text, sizeof text, VMA_AUTHOR_PRINTED, owner.process, owner.space);
    make_link('w', who, text);
    return names_changed();
}

void withdraw_wish(const Identity &who)
{
    remove_link('w', who);
}

bool is_wished(const Identity &who)
{
    char text[32];
    return ::readlink(path_of('w', who).text, text, sizeof text) > 0;
}

std::uint32_t generation()
{
    return generations().datagrams.load(std::memory_order_acquire);
}

std::uint32_t names_changed()
{
    return generations().datagrams.fetch_add(1, std::memory_order_acq_rel) + 1;
}

} // namespace vma::sock::udp
