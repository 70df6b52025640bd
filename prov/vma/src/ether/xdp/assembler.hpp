// SPDX-License-Identifier: BSD-2-Clause
// An assembler for BPF (Linux's Documentation/bpf/standardization/instruction-set.rst): a method an instruction, labels
// for jumps forward. The program is some hundred instructions, so building the library needs no compiler for another
// machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <linux/bpf.h>
#include <span>

namespace vma::ether {

// r0: result of calls and of the program; r1-r5: arguments, lost in a call; r6-r9: kept; r10: end of the stack (512
// bytes).
enum class Reg : std::uint8_t { r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10 };

enum class If : std::uint8_t { kEqual = BPF_JEQ, kNotEqual = BPF_JNE, kAbove = BPF_JGT, kBelow = BPF_JLT }; // unsigned

class Assembler
{
public:
    static constexpr std::size_t kMaxInstructions = 512;
    static constexpr std::size_t kMaxLabels = 32;

    struct Label {
        std::uint8_t number;
    };

    Label label();
    void bind(Label label); // the next instruction is where it leads

    void move(Reg to, Reg from) { alu(BPF_MOV, to, from); }
    void move(Reg to, std::int32_t value) { alu(BPF_MOV, to, value); }
    void add(Reg to, Reg from) { alu(BPF_ADD, to, from); }
    void add(Reg to, std::int32_t value) { alu(BPF_ADD, to, value); }
    void subtract(Reg to, Reg from) { alu(BPF_SUB, to, from); }
    void mask(Reg to, std::int32_t value) { alu(BPF_AND, to, value); }
    void set(Reg to, Reg bits) { alu(BPF_OR, to, bits); }
    void shift_left(Reg to, std::int32_t bits) { alu(BPF_LSH, to, bits); }
    void to_host16(Reg reg) { emit(BPF_ALU | BPF_END | BPF_TO_BE, reg, Reg::r0, 0, 16); } // from the wire's order

    // T: the unsigned integer that is at base + offset, in the order it has there.
    template <typename T> void load(Reg to, Reg base, int offset)
    {
        emit(BPF_LDX | kSize<T> | BPF_MEM, to, base, offset, 0);
    }
    template <typename T> void store(Reg base, int offset, Reg from)
    {
        emit(BPF_STX | kSize<T> | BPF_MEM, base, from, offset, 0);
    }
    template <typename T> void store(Reg base, int offset, std::int32_t value)
    {
        emit(BPF_ST | kSize<T> | BPF_MEM, base, Reg::r0, offset, value);
    }
    void load_map(Reg to, int map); // takes two instructions

    void jump(Label to) { branch(BPF_JMP | BPF_JA, Reg::r0, Reg::r0, 0, to); }
    void jump(If condition, Reg left, Reg right, Label to)
    {
        branch(static_cast<std::uint8_t>(condition) | BPF_JMP | BPF_X, left, right, 0, to);
    }
    void jump(If condition, Reg left, std::int32_t right, Label to)
    {
        branch(static_cast<std::uint8_t>(condition) | BPF_JMP | BPF_K, left, Reg::r0, right, to);
    }
    void call(std::int32_t helper) { emit(BPF_JMP | BPF_CALL, Reg::r0, Reg::r0, 0, helper); }
    void call_kernel(std::int32_t function) // by its BTF id in the kernel itself
    {
        emit(BPF_JMP | BPF_CALL, Reg::r0, Reg{BPF_PSEUDO_KFUNC_CALL}, 0, function);
    }
    void exit() { emit(BPF_JMP | BPF_EXIT, Reg::r0, Reg::r0, 0, 0); }

    // The program with its jumps filled in; empty where it is too long or jumps to a label that is bound nowhere. It
    // lives as long as the assembler.
    std::span<const bpf_insn> finish();

private:
    static constexpr std::size_t kUnbound = ~std::size_t{0};

    template <typename T>
    static constexpr std::uint8_t kSize = sizeof(T) == 1   ? BPF_B
                                          : sizeof(T) == 2 ? BPF_H
                                          : sizeof(T) == 4 ? BPF_W
                                                           : BPF_DW;

    struct Jump {
        std::size_t from;
        Label to;
    };

    void alu(int operation, Reg to, Reg from) { emit(BPF_ALU64 | BPF_X | operation, to, from, 0, 0); }
    void alu(int operation, Reg to, std::int32_t value) { emit(BPF_ALU64 | BPF_K | operation, to, Reg::r0, 0, value); }
    void branch(int operation, Reg left, Reg right, std::int32_t value, Label to);
    void emit(int operation, Reg to, Reg from, int offset, std::int32_t value);

    std::array<bpf_insn, kMaxInstructions> code_{};
    std::array<Jump, kMaxInstructions> jumps_{};
    std::array<std::size_t, kMaxLabels> places_{};
    std::size_t size_ = 0;
    std::size_t jump_count_ = 0;
    std::size_t label_count_ = 0;
    bool broken_ = false;
};

} // namespace vma::ether
