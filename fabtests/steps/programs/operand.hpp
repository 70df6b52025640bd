// SPDX-License-Identifier: BSD-2-Clause
// What an instruction of x86-64 reaches in memory: as much of its encoding as tells that. Not a disassembler: lengths
// and names are nobody's business here.
#pragma once

#include <sys/user.h>

#include <cstddef>
#include <cstdint>

namespace step {

struct Operand {
    enum Kind : std::uint8_t {
        kNothing, // registers, the stack, the thread's own storage, or relative to itself: nothing that others see
        kMemory,
        kSource,      // what rsi points to (lods)
        kDestination, // what rdi points to (stos)
        kBoth,        // (movs)
        kSystemCall
    } kind = kNothing;
    std::int8_t base = -1, index = -1; // numbers of registers
    std::uint8_t scale = 1;
    std::int32_t displacement = 0;
};

Operand decode(const std::uint8_t *code, std::size_t len);

// Where it reaches, with these registers: one or two addresses. Returns how many.
unsigned addresses(const Operand &operand, const user_regs_struct &registers, std::uint64_t (&found)[2]);

} // namespace step
