// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/assembler.hpp"

namespace vma::ether {

Assembler::Label Assembler::label()
{
    if (label_count_ == kMaxLabels) {
        broken_ = true;
        return {0};
    }
    places_[label_count_] = kUnbound;
    return {static_cast<std::uint8_t>(label_count_++)};
}

void Assembler::bind(Label label)
{
    places_[label.number] = size_;
}

void Assembler::load_map(Reg to, int map)
{
    emit(BPF_DW, to, Reg{BPF_PSEUDO_MAP_FD}, 0, map); // BPF_LD and BPF_IMM are both 0
    emit(0, Reg::r0, Reg::r0, 0, 0);
}

void Assembler::branch(int operation, Reg left, Reg right, std::int32_t value, Label to)
{
    if (size_ < kMaxInstructions)
        jumps_[jump_count_++] = {size_, to};
    emit(operation, left, right, 0, value);
}

void Assembler::emit(int operation, Reg to, Reg from, int offset, std::int32_t value)
{
    if (size_ == kMaxInstructions) {
        broken_ = true;
        return;
    }
    bpf_insn &made = code_[size_++];
    made.code = static_cast<std::uint8_t>(operation);
    made.dst_reg = static_cast<std::uint8_t>(to) & 0xf;
    made.src_reg = static_cast<std::uint8_t>(from) & 0xf;
    made.off = static_cast<std::int16_t>(offset);
    made.imm = value;
}

std::span<const bpf_insn> Assembler::finish()
{
    for (std::size_t i = 0; i < jump_count_; ++i) {
        const Jump &jump = jumps_[i];
        const std::size_t place = places_[jump.to.number];
        // Forward only: old kernels refuse loops, and this program has none.
        if (place == kUnbound || place <= jump.from || place >= size_)
            broken_ = true;
        else
            code_[jump.from].off = static_cast<std::int16_t>(place - jump.from - 1);
    }
    return broken_ ? std::span<const bpf_insn>{} : std::span<const bpf_insn>{code_.data(), size_};
}

} // namespace vma::ether
