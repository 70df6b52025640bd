// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/table/uring.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/read_urings.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

constexpr const char *kNotEntered = "an io_uring that has not been entered yet";
constexpr char kLink[] = "anon_inode:[io_uring]";

struct Entry { // of getdents64(2)
    std::uint64_t inode;
    std::int64_t offset;
    std::uint16_t length;
    std::uint8_t type;
    char name[1];
};

int number_of(const char *name)
{
    int number = 0;
    for (; *name >= '0' && *name <= '9'; ++name)
        number = number * 10 + (*name - '0');
    return number;
}

// Those whose submissions are read are no reason to leave.
bool is_ring(int folder, const char *name)
{
    char target[sizeof kLink] = {};
    const ssize_t length = ::readlinkat(folder, name, target, sizeof target);
    return length == sizeof kLink - 1 && memcmp(target, kLink, sizeof kLink - 1) == 0 &&
           !is_read_uring(number_of(name));
}

bool any_ring(int folder)
{
    alignas(Entry) char block[2048];
    for (;;) {
        const long bytes = libc::real.syscall(SYS_getdents64, folder, block, sizeof block);
        if (bytes <= 0)
            return false;
        for (long at = 0; at < bytes;) {
            const auto *const entry = reinterpret_cast<const Entry *>(block + at);
            if (entry->name[0] != '.' && is_ring(folder, entry->name))
                return true;
            at += entry->length;
        }
    }
}

} // namespace

bool finds_ring()
{
    const int saved = errno;
    const int folder = libc::real.open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool found = folder >= 0 && any_ring(folder);
    if (folder >= 0)
        libc::real.close(folder);
    errno = saved;
    return found;
}

void ring_seen(const char *how)
{
    if (g_process.uring.returned.load(std::memory_order_acquire))
        return;
    if (!g_process.uring.in_use.exchange(true))
        VMA_LOG(kInfo,
                "%s: this process uses io_uring, which can reach any socket unseen: all its sockets stay on the kernel",
                how);
    // By every caller until one has come to the end: to wait for the first one instead would be for ever in a handler
    // that has interrupted it, or in a child that was forked meanwhile.
    pin_all("io_uring");
    g_process.uring.returned.store(true, std::memory_order_release);
}

// Of the others there is nothing to give back.
void return_before_ring()
{
    each_index(g_sockets.noted, [](std::uint32_t index) {
        Socket &s = *socket_by_index(index);
        const Mode mode = s.mode.load(std::memory_order_acquire);
        if (mode == Mode::kKernelOnly || mode == Mode::kOffloaded)
            pin_to_kernel(s, "io_uring");
    });
}

namespace {

// The first eight times, then at each doubling.
bool is_look_due(std::atomic<std::uint32_t> &looks)
{
    constexpr std::uint32_t kFirst = 8;
    const std::uint32_t look = looks.fetch_add(1, std::memory_order_relaxed) + 1;
    return look <= kFirst || (look & (look - 1)) == 0;
}

// A ring that was found while another thread set one up or closed one need not be another one, so the next look is due
// again. Not for ever: threads may do nothing else.
bool finds_ring_now_and_then(std::atomic<std::uint32_t> &looks)
{
    constexpr std::uint32_t kMostUnclear = 16;
    if (!is_look_due(looks))
        return false;
    auto &uring = g_process.uring;
    const std::uint32_t ended = uring.ended.load(std::memory_order_seq_cst);
    const bool found = finds_ring();
    if (!found || uring.begun.load(std::memory_order_seq_cst) == ended) {
        uring.unclear_looks.store(0, std::memory_order_relaxed);
        return found;
    }
    looks.fetch_sub(1, std::memory_order_relaxed);
    return uring.unclear_looks.fetch_add(1, std::memory_order_relaxed) >= kMostUnclear;
}

} // namespace

bool meets_ring()
{
    return finds_ring_now_and_then(g_process.uring.first_looks);
}

bool rings_keep(Socket &s)
{
    const char *reason = s.kernel_reason.load(std::memory_order_relaxed);
    const bool keeps = rings_forbid();
    const bool for_now = keeps && !ring_in_use() && s.mode.load(std::memory_order_acquire) == Mode::kKernelOnly;
    if (for_now ? reason != nullptr : reason != kNotEntered)
        return keeps;
    if (s.kernel_reason.compare_exchange_strong(reason, for_now ? kNotEntered : nullptr))
        tell_way(s);
    return keeps;
}

bool may_offload_beside_rings(Socket &s)
{
    if (rings_keep(s))
        return false;
    if (!finds_ring_now_and_then(g_process.uring.offload_looks))
        return true;
    const int saved = errno;
    ring_seen("/proc/self/fd");
    errno = saved;
    return false;
}

} // namespace vma::sock
