// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/helper_rest.hpp"

#include <sys/eventfd.h>

#include <algorithm>

#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/private_fd.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kQuietMs = 3000;
constexpr std::uint32_t kLongTurnMs = 100; // peers wait for what only this thread may answer
constexpr std::uint32_t kLongTurns = 64;   // before the next rest

} // namespace

void end_rest()
{
    if (!g_process.rest.on.exchange(false, std::memory_order_seq_cst))
        return;
    const std::uint64_t one = 1;
    (void)!libc::uncancelled::write(g_process.rest.told.load(std::memory_order_relaxed), &one, sizeof one);
}

void Rests::note(bool moved, std::uint32_t turns)
{
    quiet_ = moved ? 0 : std::min(quiet_ + turns, helper_turns_in(kQuietMs));
    if (moved)
        long_turns_ = 0;
    else if (long_turns_ != 0)
        --long_turns_;
}

Sleep Rests::next() const
{
    if (quiet_ < helper_turns_in(kQuietMs))
        return Sleep::kTurn;
    return long_turns_ != 0 ? Sleep::kLongTurn : Sleep::kRest;
}

void Rests::was_disturbed()
{
    long_turns_ = kLongTurns;
}

bool Rests::begin()
{
    if (told_fd() < 0) {
        const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            return false;
        g_process.rest.told.store(libc::make_private(fd), std::memory_order_relaxed);
    }
    g_process.rest.on.store(true, std::memory_order_seq_cst);
    return true;
}

void Rests::end(bool told)
{
    std::uint64_t count = 0;
    g_process.rest.on.store(false, std::memory_order_relaxed);
    if (told)
        (void)!libc::uncancelled::read(g_process.rest.told.load(std::memory_order_relaxed), &count, sizeof count);
}

int Rests::told_fd()
{
    return g_process.rest.told.load(std::memory_order_relaxed);
}

std::uint32_t long_turn_ms()
{
    return std::max(helper_turn_ms(), kLongTurnMs);
}

void rests_after_fork_in_child()
{
    g_process.rest.on.store(false, std::memory_order_relaxed);
    if (const int fd = g_process.rest.told.exchange(-1, std::memory_order_relaxed); fd >= 0)
        libc::close_private(fd); // the parent's
}

} // namespace vma::sock
