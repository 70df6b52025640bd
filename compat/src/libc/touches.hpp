// SPDX-License-Identifier: BSD-2-Clause
// The table that fault.hpp's instructions are in, as handlers of faults read it. Inlined, as one of them may use no
// stack (handlers.cpp). Private to compat/src/libc.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <type_traits>

namespace vma::libc {

struct Touch { // both relative to where they stand
    std::int32_t instruction;
    std::int32_t fault;
};

extern "C" {
[[gnu::visibility("hidden"), gnu::weak]] extern const Touch __start_vma_touches[];
[[gnu::visibility("hidden"), gnu::weak]] extern const Touch __stop_vma_touches[];
}

[[gnu::always_inline]] inline std::uintptr_t place_of(const std::int32_t &relative)
{
    return reinterpret_cast<std::uintptr_t>(&relative) + static_cast<std::uintptr_t>(std::intptr_t{relative});
}

// Sends the interrupted thread to where it goes on, if an instruction of the table failed.
[[gnu::always_inline]] inline bool go_on(void *context)
{
#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
    auto &at = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP];
#else
    auto &at = static_cast<ucontext_t *>(context)->uc_mcontext.pc;
#endif
    for (const Touch *touch = __start_vma_touches; touch != __stop_vma_touches; ++touch) {
        if (place_of(touch->instruction) != static_cast<std::uintptr_t>(at))
            continue;
        at = static_cast<std::remove_reference_t<decltype(at)>>(place_of(touch->fault));
        return true;
    }
#else
    static_cast<void>(context);
#endif
    return false;
}

} // namespace vma::libc
