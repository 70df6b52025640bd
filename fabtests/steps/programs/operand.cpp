// SPDX-License-Identifier: BSD-2-Clause
// The operands of x86-64's instructions: Intel's manual, volume 2, chapter 2 and the opcode maps of appendix A.
#include "fabtests/steps/programs/operand.hpp"

namespace step {

namespace {

constexpr int kStackPointer = 4;

// The bytes of an instruction, one after the other; zero behind them.
class Reader
{
public:
    Reader(const std::uint8_t *code, std::size_t len) : at_(code), end_(code + len) {}
    std::uint8_t next() { return at_ < end_ ? *at_++ : std::uint8_t{0}; }
    std::uint8_t look() const { return at_ < end_ ? *at_ : std::uint8_t{0}; }
    std::int32_t number(unsigned bytes)
    {
        std::uint32_t value = 0;
        for (unsigned i = 0; i < bytes; ++i)
            value |= static_cast<std::uint32_t>(next()) << (8 * i);
        return bytes == 1 ? static_cast<std::int8_t>(value) : static_cast<std::int32_t>(value);
    }

private:
    const std::uint8_t *at_, *end_;
};

struct Prefixes {
    bool own_segment = false;                   // fs or gs
    std::uint8_t index_high = 0, base_high = 0; // REX.X and REX.B, in their place
    unsigned disp8_scale = 1;                   // EVEX
};

bool is_prefix(std::uint8_t byte)
{
    return byte == 0x66 || byte == 0x67 || byte == 0xf0 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e ||
           byte == 0x36 || byte == 0x3e || byte == 0x26 || byte == 0x64 || byte == 0x65;
}

bool has_modrm(std::uint8_t opcode)
{
    if (opcode < 0x40)
        return (opcode & 7) < 4;
    if (opcode >= 0x80 && opcode < 0x90)
        return opcode != 0x8d; // lea looks at nothing
    if (opcode >= 0xd0 && opcode < 0xe0)
        return opcode < 0xd4 || opcode >= 0xd8;
    return opcode == 0x63 || opcode == 0x69 || opcode == 0x6b || opcode == 0xc0 || opcode == 0xc1 || opcode == 0xc6 ||
           opcode == 0xc7 || opcode == 0xf6 || opcode == 0xf7 || opcode == 0xfe || opcode == 0xff;
}

// Of the second map (0F).
bool has_modrm_0f(std::uint8_t opcode)
{
    if (opcode == 0x0d || (opcode >= 0x18 && opcode < 0x20))
        return false; // hints
    if (opcode < 0x10)
        return opcode < 0x04;
    return !(opcode >= 0x30 && opcode < 0x38) && opcode != 0x77 && !(opcode >= 0x80 && opcode < 0x90) &&
           !(opcode >= 0xa0 && opcode < 0xa3) && !(opcode >= 0xa8 && opcode < 0xab) && opcode < 0xff &&
           !(opcode >= 0xc8 && opcode < 0xd0);
}

Operand from_modrm(Reader &in, const Prefixes &prefixes)
{
    const std::uint8_t modrm = in.next(), mode = modrm >> 6, low = modrm & 7;
    Operand operand;
    if (mode == 3 || prefixes.own_segment)
        return operand;
    bool no_base = mode == 0 && low == 5; // relative to the instruction
    if (no_base)
        return operand;
    operand.base = static_cast<std::int8_t>(low | prefixes.base_high);
    if (low == 4) {
        const std::uint8_t sib = in.next(), index = static_cast<std::uint8_t>(((sib >> 3) & 7) | prefixes.index_high);
        operand.scale = static_cast<std::uint8_t>(1 << (sib >> 6));
        operand.index = index == 4 ? std::int8_t{-1} : static_cast<std::int8_t>(index);
        operand.base = static_cast<std::int8_t>((sib & 7) | prefixes.base_high);
        no_base = mode == 0 && (sib & 7) == 5;
    }
    if (no_base)
        operand.base = -1;
    if (mode == 1)
        operand.displacement = in.number(1) * static_cast<std::int32_t>(prefixes.disp8_scale);
    else if (mode == 2 || no_base)
        operand.displacement = in.number(4);
    if (operand.base != kStackPointer)
        operand.kind = Operand::kMemory;
    return operand;
}

Operand vector(Reader &in, std::uint8_t first, Prefixes &prefixes)
{
    const std::uint8_t second = in.next();
    if (first != 0xc5) { // their bits are inverted
        prefixes.index_high = (second & 0x40) != 0 ? 0 : 8;
        prefixes.base_high = (second & 0x20) != 0 ? 0 : 8;
        in.next();
    }
    if (first == 0x62)
        prefixes.disp8_scale = 16U << (in.next() >> 5 & 3); // as if each took a whole register
    const std::uint8_t opcode = in.next();
    return opcode == 0x77 ? Operand{} : from_modrm(in, prefixes);
}

Operand with_kind(Operand::Kind kind)
{
    Operand operand;
    operand.kind = kind;
    return operand;
}

Operand second_map(Reader &in, const Prefixes &prefixes)
{
    const std::uint8_t opcode = in.next();
    if (opcode == 0x05)
        return with_kind(Operand::kSystemCall);
    if (opcode == 0x38 || opcode == 0x3a) {
        in.next();
        return from_modrm(in, prefixes);
    }
    return has_modrm_0f(opcode) ? from_modrm(in, prefixes) : Operand{};
}

} // namespace

Operand decode(const std::uint8_t *code, std::size_t len)
{
    Reader in(code, len);
    Prefixes prefixes;
    std::uint8_t opcode = in.next();
    while (is_prefix(opcode)) {
        prefixes.own_segment = prefixes.own_segment || opcode == 0x64 || opcode == 0x65;
        opcode = in.next();
    }
    if (opcode >= 0x40 && opcode < 0x50) {
        prefixes.index_high = (opcode & 2) != 0 ? 8 : 0;
        prefixes.base_high = (opcode & 1) != 0 ? 8 : 0;
        opcode = in.next();
    }
    switch (opcode) {
    case 0x0f:
        return second_map(in, prefixes);
    case 0xc4:
    case 0xc5:
    case 0x62:
        return vector(in, opcode, prefixes);
    case 0xa4:
    case 0xa5:
    case 0xa6:
    case 0xa7:
        return with_kind(Operand::kBoth);
    case 0xaa:
    case 0xab:
    case 0xae:
    case 0xaf:
        return with_kind(Operand::kDestination);
    case 0xac:
    case 0xad:
        return with_kind(Operand::kSource);
    default:
        return has_modrm(opcode) ? from_modrm(in, prefixes) : Operand{};
    }
}

unsigned addresses(const Operand &operand, const user_regs_struct &r, std::uint64_t (&found)[2])
{
    const std::uint64_t values[16] = {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi,
                                      r.r8,  r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15};
    switch (operand.kind) {
    case Operand::kMemory:
        found[0] = static_cast<std::uint64_t>(static_cast<std::int64_t>(operand.displacement)) +
                   (operand.base >= 0 ? values[operand.base] : 0) +
                   (operand.index >= 0 ? values[operand.index] * operand.scale : 0);
        return 1;
    case Operand::kSource:
        found[0] = r.rsi;
        return 1;
    case Operand::kDestination:
        found[0] = r.rdi;
        return 1;
    case Operand::kBoth:
        found[0] = r.rsi;
        found[1] = r.rdi;
        return 2;
    default:
        return 0;
    }
}

} // namespace step
