// SPDX-License-Identifier: BSD-2-Clause
// How long the helper thread's next sleep is. While something moves it has a turn each VMA_TIMER_RESOLUTION_MSEC; after
// seconds in which nothing has it rests on the queues, as threads of the program do, or has long turns where the
// program itself looks at them now and then.
#pragma once

#include <atomic>
#include <cstdint>

#include "compat/src/base/helper_wake.hpp"

namespace vma::sock {

enum class Sleep { kTurn, kLongTurn, kRest };

// The helper thread's own.
class Rests
{
public:
    // A turn is over that took so many; whether anything has come, gone or been due in it.
    void note(bool moved, std::uint32_t turns);
    Sleep next() const;
    // A rest was ended by the program's own look, which found nothing: for the next seconds there are long turns
    // instead.
    void was_disturbed();

    // Before the sleep; what is due by then is to be looked for after it. False: there is no descriptor to be woken by.
    static bool begin();
    static void end(bool told);
    // To be polled meanwhile; readable: `told`.
    static int told_fd();

private:
    std::uint32_t quiet_ = 0;      // turns
    std::uint32_t long_turns_ = 0; // that are left
};

std::uint32_t long_turn_ms();
inline constexpr std::uint32_t kRestMs = 1000;

void rests_after_fork_in_child();

} // namespace vma::sock
