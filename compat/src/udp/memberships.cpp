// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/udp/memberships.hpp"
#include "compat/src/base/addresses.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdlib>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/table/socket_state.hpp"
#include "compat/src/udp/shared.hpp"

namespace vma::sock::udp {

namespace {

// The lines of a file, each without its end; what is longer than the room for one is cut.
class Lines
{
public:
    explicit Lines(const char *path)
        : fd_(static_cast<int>(libc::real.syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC)))
    {
    }
    ~Lines()
    {
        if (fd_ >= 0)
            libc::real.close(fd_);
    }
    Lines(const Lines &) = delete;
    Lines &operator=(const Lines &) = delete;

    bool is_open() const { return fd_ >= 0; }
    char *next() // nullptr: there is none more
    {
        for (;;) {
            char *const line = room_ + at_;
            if (void *const end = memchr(line, '\n', filled_ - at_)) {
                *static_cast<char *>(end) = '\0';
                at_ = static_cast<std::size_t>(static_cast<char *>(end) + 1 - room_);
                return line;
            }
            if (!fill())
                return nullptr;
        }
    }

private:
    bool fill()
    {
        filled_ -= at_;
        memmove(room_, room_ + at_, filled_);
        at_ = 0;
        if (filled_ == sizeof room_)
            return false;
        const long n = libc::real.syscall(SYS_read, fd_, room_ + filled_, sizeof room_ - filled_);
        filled_ += n > 0 ? static_cast<std::size_t>(n) : 0;
        return n > 0;
    }

    const int fd_;
    std::size_t at_ = 0;
    std::size_t filled_ = 0;
    char room_[1024] = {}; // on the stack
};

bool read_bytes(const char *hex, std::uint8_t *out, std::size_t count)
{
    for (std::size_t i = 0; i < 2 * count; ++i) {
        const char c = hex[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        out[i / 2] = static_cast<std::uint8_t>(out[i / 2] << 4 | digit);
    }
    return true;
}

// "2\teth1 : 3 V3" begins an interface, whose groups follow: "\t\t\t\t010000E0 1 0:00000000 0", in the processor's byte
// order.
template <typename Visit> bool each_of_ipv4(Visit visit)
{
    Lines lines("/proc/thread-self/net/igmp");
    std::uint32_t interface = 0;
    while (char *const line = lines.next()) {
        if (*line >= '0' && *line <= '9') {
            interface = static_cast<std::uint32_t>(std::strtoul(line, nullptr, 10));
        } else if (*line == '\t') {
            const in_addr group = {static_cast<in_addr_t>(std::strtoul(line, nullptr, 16))};
            visit(mapped(group), interface);
        }
    }
    return lines.is_open();
}

// "2    eth1            ff020000000000000000000000000001     1 0000000C 0"
template <typename Visit> bool each_of_ipv6(Visit visit)
{
    Lines lines("/proc/thread-self/net/igmp6");
    while (char *const line = lines.next()) {
        char *name = nullptr;
        const auto interface = static_cast<std::uint32_t>(std::strtoul(line, &name, 10));
        const char *at = name + strspn(name, " ");
        at += strcspn(at, " ");
        at += strspn(at, " ");
        in6_addr group = {};
        if (read_bytes(at, group.s6_addr, sizeof group.s6_addr))
            visit(group, interface);
    }
    return lines.is_open();
}

void mix(std::uint64_t &fingerprint, std::uint64_t word)
{
    fingerprint = (fingerprint ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    fingerprint ^= fingerprint >> 29;
}

} // namespace

bool is_joined(const in6_addr &group, std::uint32_t interface)
{
    bool found = false;
    const auto look = [&](const in6_addr &one, std::uint32_t at) {
        found |= at == interface && IN6_ARE_ADDR_EQUAL(&one, &group);
    };
    return !(IN6_IS_ADDR_V4MAPPED(&group) ? each_of_ipv4(look) : each_of_ipv6(look)) || found;
}

std::uint32_t membership_generation()
{
    g_shared.watched.store(true, std::memory_order_relaxed);
    return g_shared.memberships.load(std::memory_order_acquire);
}

bool membership_changed(std::uint32_t since)
{
    return g_shared.memberships.load(std::memory_order_relaxed) != since;
}

// The first look finds a change, so that what was asked before it is asked again. Where nothing can be read each one
// does.
void look_at_memberships()
{
    if (!g_shared.watched.load(std::memory_order_relaxed))
        return;
    std::uint64_t fingerprint = 1;
    const auto add = [&fingerprint](const in6_addr &group, std::uint32_t interface) {
        std::uint64_t words[2];
        memcpy(words, &group, sizeof words);
        mix(fingerprint, interface);
        mix(fingerprint, words[0]);
        mix(fingerprint, words[1]);
    };
    const bool ipv4 = each_of_ipv4(add);
    static_cast<void>(each_of_ipv6(add)); // a kernel without IPv6 has no such file
    if (ipv4 && fingerprint == g_shared.fingerprint)
        return;
    g_shared.fingerprint = fingerprint;
    g_shared.memberships.fetch_add(1, std::memory_order_acq_rel);
}

void memberships_after_fork_in_child()
{
    g_shared.fingerprint = 0;
}

void wait_after_join(int level, int name)
{
    const std::uint32_t milliseconds = config::params().wait_after_join_msec;
    const bool v4 = level == IPPROTO_IP && (name == IP_ADD_MEMBERSHIP || name == IP_ADD_SOURCE_MEMBERSHIP);
    const bool v6 = level == IPPROTO_IPV6 && name == IPV6_JOIN_GROUP;
    const bool any = name == MCAST_JOIN_GROUP || name == MCAST_JOIN_SOURCE_GROUP;
    if (milliseconds == 0 || (!v4 && !v6 && !(any && (level == IPPROTO_IP || level == IPPROTO_IPV6))))
        return;
    const std::int64_t end = now_ns() + std::int64_t{milliseconds} * 1'000'000;
    for (std::int64_t left = end - now_ns(); left > 0; left = end - now_ns())
        libc::real.poll(nullptr, 0, static_cast<int>((left + 999'999) / 1'000'000));
}

} // namespace vma::sock::udp
