// SPDX-License-Identifier: BSD-2-Clause
// One function for each operation and type, found in one table. Types share one where it makes no difference which of
// them it is: sums and products wrap, so that a sign matters to order only, and what is only moved is just bytes.
#include "ofi/memory/atomic_apply.hpp"

#include <array>
#include <complex>
#include <cstring>
#include <functional>
#include <type_traits>

namespace vma::ofi {
namespace {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

// A value that is only moved.
template <std::size_t N> struct Opaque {
    std::byte bytes[N];
};

template <typename T> T load(const std::byte *from) noexcept
{
    T value{};
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <typename T> void store(std::byte *to, const T &value) noexcept
{
    std::memcpy(to, &value, sizeof value);
}

template <typename T> T truth(bool value) noexcept
{
    return value ? T{1} : T{};
}

// ---- Operations ----------------------------------------------------------------------------------------------------
//
// next() is what an operation makes of a target; kInputs says how many of its other arguments it looks at. at_once()
// stands where the processor has an instruction for it, and gives the value from before.

struct Min {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept { return operand < target ? operand : target; }
};

struct Max {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept { return operand > target ? operand : target; }
};

struct Sum {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept { return static_cast<T>(target + operand); }
    template <typename T> static T at_once(T *target, T operand) noexcept
    {
        return __atomic_fetch_add(target, operand, __ATOMIC_ACQ_REL);
    }
};

struct Prod {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept
    {
        if constexpr (std::is_unsigned_v<T>)
            return static_cast<T>(1U * target * operand); // two shorts would become signed, and overflow
        else
            return target * operand;
    }
};

struct LogicalOr {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept
    {
        return truth<T>(target != T{} || operand != T{});
    }
};

struct LogicalAnd {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept
    {
        return truth<T>(target != T{} && operand != T{});
    }
};

struct LogicalXor {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept
    {
        return truth<T>((target != T{}) != (operand != T{}));
    }
};

struct BitOr {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept { return static_cast<T>(target | operand); }
    template <typename T> static T at_once(T *target, T operand) noexcept
    {
        return __atomic_fetch_or(target, operand, __ATOMIC_ACQ_REL);
    }
};

struct BitAnd {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept { return static_cast<T>(target & operand); }
    template <typename T> static T at_once(T *target, T operand) noexcept
    {
        return __atomic_fetch_and(target, operand, __ATOMIC_ACQ_REL);
    }
};

struct BitXor {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T target, T operand, T) noexcept { return static_cast<T>(target ^ operand); }
    template <typename T> static T at_once(T *target, T operand) noexcept
    {
        return __atomic_fetch_xor(target, operand, __ATOMIC_ACQ_REL);
    }
};

struct Read {
    static constexpr int kInputs = 0;
    template <typename T> static T at_once(T *target, T) noexcept { return __atomic_load_n(target, __ATOMIC_ACQUIRE); }
};

struct Write {
    static constexpr int kInputs = 1;
    template <typename T> static T next(T, T operand, T) noexcept { return operand; }
    template <typename T> static T at_once(T *target, T operand) noexcept
    {
        return __atomic_exchange_n(target, operand, __ATOMIC_ACQ_REL);
    }
};

// Where the relation holds between what is compared and the target.
template <typename Relation> struct SwapIf {
    static constexpr int kInputs = 2;
    template <typename T> static T next(T target, T operand, T compare) noexcept
    {
        return Relation{}(compare, target) ? operand : target;
    }
};

struct MaskedSwap {
    static constexpr int kInputs = 2;
    template <typename T> static T next(T target, T operand, T compare) noexcept
    {
        return static_cast<T>((operand & compare) | (target & ~compare));
    }
};

// ---- Elements ------------------------------------------------------------------------------------------------------

template <typename Op, typename T>
concept AtOnce = requires(T *target, T operand)
{
    Op::at_once(target, operand);
};

// Each of these changes one element and gives its value from before.
template <typename Op, typename T> T change_atomically(T *target, T operand, T compare) noexcept
{
    if constexpr (AtOnce<Op, T>) {
        return Op::at_once(target, operand);
    } else {
        T before = __atomic_load_n(target, __ATOMIC_ACQUIRE);
        for (;;) {
            const T after = Op::next(before, operand, compare);
            // To write what is there would only take the cache line from those who read it.
            if (after == before ||
                __atomic_compare_exchange_n(target, &before, after, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                return before;
        }
    }
}

template <typename Op, typename T> T change(std::byte *target, T operand, T compare) noexcept
{
    const T before = load<T>(target);
    if constexpr (!std::is_same_v<Op, Read>) // memory that is only read may not be writable
        store(target, Op::next(before, operand, compare));
    return before;
}

template <typename Op, typename T, bool Atomically, bool Fetches>
void apply_each(std::byte *target, const std::byte *operand, const std::byte *compare, std::byte *result,
                std::size_t count) noexcept
{
    for (std::size_t at = 0; at < count * sizeof(T); at += sizeof(T)) {
        const T first = Op::kInputs > 0 ? load<T>(operand + at) : T{};
        const T second = Op::kInputs > 1 ? load<T>(compare + at) : T{};
        T before;
        if constexpr (Atomically)
            before = change_atomically<Op>(reinterpret_cast<T *>(target + at), first, second);
        else
            before = change<Op>(target + at, first, second);
        if constexpr (Fetches)
            store(result + at, before);
    }
}

// Without a result nothing is fetched, which the processor does with shorter instructions.
template <typename Op, typename T>
void apply(std::byte *target, const std::byte *operand, const std::byte *compare, std::byte *result,
           std::size_t count) noexcept
{
    if constexpr (std::is_integral_v<T> && sizeof(T) <= sizeof(std::uint64_t)) {
        if (reinterpret_cast<std::uintptr_t>(target) % sizeof(T) == 0) [[likely]] {
            if (result == nullptr)
                apply_each<Op, T, true, false>(target, operand, compare, result, count);
            else
                apply_each<Op, T, true, true>(target, operand, compare, result, count);
            return;
        }
    }
    if (result == nullptr)
        apply_each<Op, T, false, false>(target, operand, compare, result, count);
    else
        apply_each<Op, T, false, true>(target, operand, compare, result, count);
}

// ---- The table -----------------------------------------------------------------------------------------------------

using Apply = decltype(&apply<Sum, std::uint64_t>);

constexpr std::size_t kTypes = static_cast<std::size_t>(FI_UINT128) + 1;
constexpr std::size_t kOps = FI_ATOMIC_OP_LAST;
using Row = std::array<Apply, kTypes>;
using Table = std::array<Row, kOps>;

template <typename Op, typename T> constexpr Apply function_of() noexcept
{
    if constexpr (std::is_void_v<T>)
        return nullptr;
    else
        return apply<Op, T>;
}

// As what the types are taken, in the order of fi_datatype; void: an operation doesn't have it.
template <typename... T> struct Types {
    template <typename Op> static constexpr Row row() noexcept { return {function_of<Op, T>()...}; }
    static constexpr std::array<std::size_t, kTypes> sizes() noexcept { return {sizeof(T)...}; }
    static_assert(sizeof...(T) == kTypes);
};
static_assert(FI_INT8 == 0 && FI_FLOAT == 8 && FI_LONG_DOUBLE_COMPLEX == 13 && FI_INT128 == 14 && FI_UINT128 == 15);

using FloatComplex = std::complex<float>;
using DoubleComplex = std::complex<double>;
using LongComplex = std::complex<long double>;

using Ordered = Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                      std::uint64_t, float, double, void, void, long double, void, Int128, Uint128>;
using Values =
    Types<std::uint8_t, std::uint8_t, std::uint16_t, std::uint16_t, std::uint32_t, std::uint32_t, std::uint64_t,
          std::uint64_t, float, double, FloatComplex, DoubleComplex, long double, LongComplex, Uint128, Uint128>;
using Bits = Types<std::uint8_t, std::uint8_t, std::uint16_t, std::uint16_t, std::uint32_t, std::uint32_t,
                   std::uint64_t, std::uint64_t, void, void, void, void, void, void, Uint128, Uint128>;
using Moved =
    Types<std::uint8_t, std::uint8_t, std::uint16_t, std::uint16_t, std::uint32_t, std::uint32_t, std::uint64_t,
          std::uint64_t, std::uint32_t, std::uint64_t, std::uint64_t, Opaque<sizeof(DoubleComplex)>,
          Opaque<sizeof(long double)>, Opaque<sizeof(LongComplex)>, Uint128, Uint128>;
static_assert(Moved::sizes() == Values::sizes());

constexpr Table make_table() noexcept
{
    Table table{};
    table[FI_MIN] = Ordered::row<Min>();
    table[FI_MAX] = Ordered::row<Max>();
    table[FI_SUM] = Values::row<Sum>();
    table[FI_PROD] = Values::row<Prod>();
    table[FI_LOR] = Values::row<LogicalOr>();
    table[FI_LAND] = Values::row<LogicalAnd>();
    table[FI_BOR] = Bits::row<BitOr>();
    table[FI_BAND] = Bits::row<BitAnd>();
    table[FI_LXOR] = Values::row<LogicalXor>();
    table[FI_BXOR] = Bits::row<BitXor>();
    table[FI_ATOMIC_READ] = Moved::row<Read>();
    table[FI_ATOMIC_WRITE] = Moved::row<Write>();
    table[FI_CSWAP] = Values::row<SwapIf<std::equal_to<>>>();
    table[FI_CSWAP_NE] = Values::row<SwapIf<std::not_equal_to<>>>();
    table[FI_CSWAP_LE] = Ordered::row<SwapIf<std::less_equal<>>>();
    table[FI_CSWAP_LT] = Ordered::row<SwapIf<std::less<>>>();
    table[FI_CSWAP_GE] = Ordered::row<SwapIf<std::greater_equal<>>>();
    table[FI_CSWAP_GT] = Ordered::row<SwapIf<std::greater<>>>();
    table[FI_MSWAP] = Bits::row<MaskedSwap>();
    return table;
}

constinit const Table kTable = make_table();
constexpr std::array<std::size_t, kTypes> kSizes = Values::sizes();

} // namespace

std::size_t atomic_size(fi_datatype type) noexcept
{
    const auto place = static_cast<std::size_t>(type);
    return place < kTypes ? kSizes[place] : 0;
}

bool atomic_valid(AtomicKind kind, fi_datatype type, fi_op op) noexcept
{
    const auto row = static_cast<std::size_t>(op);
    const auto place = static_cast<std::size_t>(type);
    if (row >= kOps || place >= kTypes || kTable[row][place] == nullptr)
        return false;
    switch (kind) {
    case AtomicKind::base:
        return row < FI_CSWAP && row != FI_ATOMIC_READ;
    case AtomicKind::fetch:
        return row < FI_CSWAP;
    case AtomicKind::compare:
        return row >= FI_CSWAP;
    }
    return false;
}

void atomic_apply(AtomicKind kind, fi_datatype type, fi_op op, std::byte *target, const std::byte *operand,
                  const std::byte *compare, std::byte *result, std::size_t count) noexcept
{
    kTable[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)](
        target, operand, compare, kind == AtomicKind::base ? nullptr : result, count);
}

} // namespace vma::ofi
