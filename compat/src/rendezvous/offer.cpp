// SPDX-License-Identifier: BSD-2-Clause
// Offers: names in the user's directory.
#include "compat/src/rendezvous/offer.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/join.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/generation.hpp"
#include "compat/src/rendezvous/owner.hpp"
#include "compat/src/rendezvous/state.hpp"
#include "compat/src/rendezvous/unread_links.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

constexpr std::size_t kPathMax = kOffersPathMax;

// Written with the offload lock held; what stands before `generations` is read by who has seen that.
struct Directory {
    char path[kPathMax] = {};
    bool refused = false;                            // it can't be used
    std::uint64_t netns = 0;                         // where the kernel does not tell that of a socket
    std::uint32_t id = 0;                            // of the words below
    std::atomic<Generations *> generations{nullptr}; // set with the offload lock, read by every call
};
[[VMA_STARTUP_DATA]] constinit Directory g_directory;

struct Name {
    char text[kPathMax + 128];
};

std::size_t put_hex(char *out, const void *bytes, std::size_t count)
{
    static constexpr char digits[] = "0123456789abcdef";
    const auto *const in = static_cast<const unsigned char *>(bytes);
    for (std::size_t i = 0; i < count; ++i) {
        out[2 * i] = digits[in[i] >> 4];
        out[2 * i + 1] = digits[in[i] & 15];
    }
    return 2 * count;
}

Name offer_name(const sockaddr_in6 &connector, const sockaddr_in6 &acceptor, std::uint64_t network)
{
    Name name;
    int length = std::snprintf(name.text, sizeof name.text, "%s/o-%" PRIx32 "-%" PRIx64 "-", g_directory.path,
                               g_directory.id, network != 0 ? network : g_directory.netns);
    auto *out = name.text + length;
    for (const sockaddr_in6 *end : {&connector, &acceptor}) {
        out += put_hex(out, &end->sin6_addr, sizeof end->sin6_addr);
        out += put_hex(out, &end->sin6_port, sizeof end->sin6_port);
        *out++ = '-';
    }
    out[-1] = '\0';
    return name;
}

[[VMA_AT_STARTUP]] bool is_of_another(const char *path, uid_t user)
{
    struct stat st = {};
    return ::lstat(path, &st) == 0 && st.st_uid != user;
}

// As the provider has it. Everybody may make the first name; the second one is in a folder that is this user's alone,
// where he has one.
[[VMA_AT_STARTUP]] int print_default_path(char (&out)[kPathMax])
{
    const uid_t user = ::geteuid();
    char number[std::numeric_limits<uid_t>::digits10 + 1];
    const char *const end = std::to_chars(std::begin(number), std::end(number), user).ptr;
    const std::size_t length = libc::join(out, sizeof out, {"/dev/shm/vma-", {number, end}});
    if (!is_of_another(out, user))
        return static_cast<int>(length);
    return user == 0 ? std::snprintf(out, sizeof out, "/run/vma-0")
                     : std::snprintf(out, sizeof out, "/run/user/%u/vma", user);
}

[[VMA_AT_STARTUP]] int print_path(char (&out)[kPathMax])
{
    const char *const wanted = config::params().shm_dir;
    const bool named = wanted != nullptr && *wanted != '\0';
    return named ? std::snprintf(out, sizeof out, "%s", wanted) : print_default_path(out);
}

bool prepare_directory()
{
    const int length = print_path(g_directory.path);
    if (static_cast<std::size_t>(length) >= sizeof g_directory.path) {
        VMA_LOG(kWarn,
                "VMA_SHM_DIR: the name is too long (%d characters, at most %zu); all connections stay on the kernel",
                length, sizeof g_directory.path - 1);
        return false;
    }
    struct stat st;
    if (::mkdir(g_directory.path, 0700) != 0 && errno != EEXIST) {
        VMA_LOG(kWarn, "cannot make the directory %s: %s; all connections stay on the kernel", g_directory.path,
                strerror(errno));
        return false;
    }
    if (::lstat(g_directory.path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() ||
        (st.st_mode & 077) != 0) {
        VMA_LOG(kWarn, "%s is not a directory of this user with mode 0700; all connections stay on the kernel",
                g_directory.path);
        return false;
    }
    if (::stat("/proc/self/ns/net", &st) == 0)
        g_directory.netns = st.st_ino;
    return true;
}

bool parse_target(const char *target, Offer &offer)
{
    unsigned port = 0;
    unsigned index = 0;
    std::uint64_t cookie = 0;
    int used = 0;
    Owner owner;
    if (std::sscanf(target, VMA_AUTHOR_SCANNED "%u.%u.%" SCNx64 "%n", &owner.process, &owner.space, &port, &index,
                    &cookie, &used) != 5 ||
        target[used] != '\0' || port == 0 || port > 65535 || owner.process <= 0)
        return false;
    offer = {static_cast<std::uint16_t>(port), index, cookie};
    return true;
}

bool read_offer(const char *name, Offer &offer)
{
    char target[128];
    const ssize_t length = ::readlink(name, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    return parse_target(target, offer);
}

} // namespace

bool read_addresses(int fd, Addresses &out)
{
    out.network = udp::network_of(fd);
    return read_address(fd, Side::kLocal, out.local) && read_address(fd, Side::kPeer, out.peer);
}

bool on_this_host(const Addresses &a)
{
    return (is_loopback(a.local.sin6_addr) && is_loopback(a.peer.sin6_addr)) ||
           memcmp(&a.local.sin6_addr, &a.peer.sin6_addr, sizeof a.local.sin6_addr) == 0;
}

bool open_offers()
{
    if (g_directory.generations.load(std::memory_order_relaxed) != nullptr)
        return true;
    if (g_directory.refused || !filters_allow())
        return false;
    Generations *const words = prepare_directory() ? map_generations(g_directory.path, g_directory.id) : nullptr;
    if (words == nullptr) {
        g_directory.refused = true; // which was said, once
        return false;
    }
    g_directory.generations.store(words, std::memory_order_release);
    remove_names_of_the_dead(g_directory.path);
    remove_unread_of_the_dead();
    return true;
}

const char *offers_directory()
{
    return g_directory.path;
}

[[VMA_AT_STARTUP]] void offers_path(char (&out)[kOffersPathMax])
{
    if (g_directory.generations.load(std::memory_order_acquire) != nullptr)
        memcpy(out, g_directory.path, sizeof out);
    else if (print_path(out) >= static_cast<int>(sizeof out))
        std::snprintf(out, sizeof out, "/dev/null"); // nothing is in there
}

bool publish_offer(const Addresses &a, const Offer &offer)
{
    const Name name = offer_name(a.local, a.peer, a.network);
    char target[128];
    const Owner owner = this_process();
    std::snprintf(target, sizeof target, VMA_AUTHOR_PRINTED "%u.%u.%" PRIx64, owner.process, owner.space,
                  unsigned{offer.port}, offer.socket, offer.cookie);
    int result = ::symlink(target, name.text);
    if (result != 0 && errno == EEXIST) { // of an earlier connection with the same addresses
        ::unlink(name.text);
        result = ::symlink(target, name.text);
    }
    if (result != 0) {
        VMA_LOG(kWarn, "cannot leave an offer in %s: %s; the connection stays on the kernel", g_directory.path,
                strerror(errno));
        return false;
    }
    generations().offers.fetch_add(1, std::memory_order_release);
    return true;
}

bool find_offer(const Addresses &a, Offer &out)
{
    return read_offer(offer_name(a.peer, a.local, a.network).text, out);
}

void remove_offer(const Addresses &a, bool as_acceptor)
{
    ::unlink(as_acceptor ? offer_name(a.peer, a.local, a.network).text : offer_name(a.local, a.peer, a.network).text);
}

Generations &generations()
{
    Generations *const words = g_directory.generations.load(std::memory_order_acquire);
    return words != nullptr ? *words : g_rendezvous.none;
}

bool offers_are_open()
{
    return g_directory.generations.load(std::memory_order_acquire) != nullptr;
}

std::uint32_t generations_id()
{
    return g_directory.id;
}

std::uint32_t offers_generation()
{
    return generations().offers.load(std::memory_order_acquire);
}

std::uint64_t random_cookie()
{
    std::uint64_t cookie = 0;
    while (::getrandom(&cookie, sizeof cookie, 0) != sizeof cookie || cookie == 0) {
    }
    return cookie;
}

void withdraw_offer(Socket &s)
{
    if (s.cookie == 0)
        return;
    s.cookie = 0;
    remove_offer(s.addresses, false);
}

} // namespace vma::sock
