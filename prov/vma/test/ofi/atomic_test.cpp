// SPDX-License-Identifier: BSD-2-Clause
// Atomic operations on memory: each operation and type against what fi_atomic(3) says of it, on random values at any
// alignment, what is refused, and registered memory in pieces. VMA_TEST_SEED repeats a run.
#include "fabtests/seed.hpp"

#include <complex>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <type_traits>
#include <vector>

#include <rdma/fi_errno.h>

#include "ofi/domain.hpp"
#include "ofi/memory/atomic_apply.hpp"
#include "ofi/memory/mr.hpp"

namespace {

using namespace vma;
using ofi::AtomicKind;
using Random = std::mt19937_64;

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

template <typename T>
constexpr bool kComplex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>> ||
                          std::is_same_v<T, std::complex<long double>>;
template <typename T> constexpr bool kInteger = !kComplex<T> && !std::is_floating_point_v<T>;

constexpr AtomicKind kKinds[] = {AtomicKind::base, AtomicKind::fetch, AtomicKind::compare};

// Calls use(T{}) with the type that the number stands for.
template <typename Use> void with_type(fi_datatype type, Use &&use)
{
    switch (type) {
    case FI_INT8:
        return use(std::int8_t{});
    case FI_UINT8:
        return use(std::uint8_t{});
    case FI_INT16:
        return use(std::int16_t{});
    case FI_UINT16:
        return use(std::uint16_t{});
    case FI_INT32:
        return use(std::int32_t{});
    case FI_UINT32:
        return use(std::uint32_t{});
    case FI_INT64:
        return use(std::int64_t{});
    case FI_UINT64:
        return use(std::uint64_t{});
    case FI_FLOAT:
        return use(float{});
    case FI_DOUBLE:
        return use(double{});
    case FI_FLOAT_COMPLEX:
        return use(std::complex<float>{});
    case FI_DOUBLE_COMPLEX:
        return use(std::complex<double>{});
    case FI_LONG_DOUBLE:
        return use(static_cast<long double>(0));
    case FI_LONG_DOUBLE_COMPLEX:
        return use(std::complex<long double>{});
    case FI_INT128:
        return use(Int128{});
    case FI_UINT128:
        return use(Uint128{});
    default:
        UNIT_FAIL("a type that the test doesn't know");
    }
}

bool is_one_of(fi_op op, std::initializer_list<fi_op> ops)
{
    for (const fi_op one : ops) {
        if (one == op)
            return true;
    }
    return false;
}

// fi_atomic(3), of types that there are.
bool should_be_valid(AtomicKind kind, fi_datatype type, fi_op op)
{
    const bool compares =
        is_one_of(op, {FI_CSWAP, FI_CSWAP_NE, FI_CSWAP_LE, FI_CSWAP_LT, FI_CSWAP_GE, FI_CSWAP_GT, FI_MSWAP});
    if (compares != (kind == AtomicKind::compare) || (op == FI_ATOMIC_READ && kind == AtomicKind::base))
        return false;
    bool valid = true;
    with_type(type, [&]<typename T>(T) {
        if (!kInteger<T> && is_one_of(op, {FI_BOR, FI_BAND, FI_BXOR, FI_MSWAP}))
            valid = false;
        if (kComplex<T> && is_one_of(op, {FI_MIN, FI_MAX, FI_CSWAP_LE, FI_CSWAP_LT, FI_CSWAP_GE, FI_CSWAP_GT}))
            valid = false;
    });
    return valid;
}

// ---- What is expected ----------------------------------------------------------------------------------------------

template <typename T> T sum(T a, T b)
{
    if constexpr (kInteger<T>)
        return static_cast<T>(static_cast<Uint128>(a) + static_cast<Uint128>(b));
    else if constexpr (kComplex<T>)
        return {a.real() + b.real(), a.imag() + b.imag()};
    else
        return a + b;
}

template <typename T> T product(T a, T b)
{
    if constexpr (kInteger<T>)
        return static_cast<T>(static_cast<Uint128>(a) * static_cast<Uint128>(b));
    else if constexpr (kComplex<T>)
        return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    else
        return a * b;
}

template <typename T> T by_bits(fi_op op, T target, T operand, T compare)
{
    const auto a = static_cast<Uint128>(target);
    const auto b = static_cast<Uint128>(operand);
    const auto mask = static_cast<Uint128>(compare);
    switch (op) {
    case FI_BOR:
        return static_cast<T>(a | b);
    case FI_BAND:
        return static_cast<T>(a & b);
    case FI_BXOR:
        return static_cast<T>(a ^ b);
    default: // FI_MSWAP
        return static_cast<T>((b & mask) | (a & ~mask));
    }
}

template <typename T> T by_order(fi_op op, T target, T operand, T compare)
{
    switch (op) {
    case FI_MIN:
        return operand < target ? operand : target;
    case FI_MAX:
        return operand > target ? operand : target;
    case FI_CSWAP_LE:
        return compare <= target ? operand : target;
    case FI_CSWAP_LT:
        return compare < target ? operand : target;
    case FI_CSWAP_GE:
        return compare >= target ? operand : target;
    case FI_CSWAP_GT:
        return compare > target ? operand : target;
    default:
        if constexpr (kInteger<T>)
            return by_bits(op, target, operand, compare);
        return target;
    }
}

template <typename T> T expected(fi_op op, T target, T operand, T compare)
{
    const bool a = target != T(0);
    const bool b = operand != T(0);
    switch (op) {
    case FI_SUM:
        return sum(target, operand);
    case FI_PROD:
        return product(target, operand);
    case FI_LOR:
        return a || b ? T(1) : T(0);
    case FI_LAND:
        return a && b ? T(1) : T(0);
    case FI_LXOR:
        return (a && !b) || (!a && b) ? T(1) : T(0);
    case FI_ATOMIC_READ:
        return target;
    case FI_ATOMIC_WRITE:
        return operand;
    case FI_CSWAP:
        return compare == target ? operand : target;
    case FI_CSWAP_NE:
        return compare != target ? operand : target;
    default:
        if constexpr (!kComplex<T>)
            return by_order(op, target, operand, compare);
        return target;
    }
}

// ---- Trials --------------------------------------------------------------------------------------------------------

// Integers are often at their bounds; products of the others are exact.
template <typename T> T any(Random &random)
{
    if constexpr (kComplex<T>) {
        const auto real = any<typename T::value_type>(random);
        return {real, any<typename T::value_type>(random)};
    } else if constexpr (kInteger<T>) {
        const Uint128 top = static_cast<Uint128>(1) << (8 * sizeof(T) - 1);
        const Uint128 bounds[] = {0, 1, top, top - 1, ~static_cast<Uint128>(0)};
        const Uint128 bits = static_cast<Uint128>(random()) << 64 | random();
        return static_cast<T>(random() % 2 == 0 ? bounds[random() % std::size(bounds)] : bits);
    } else {
        return static_cast<T>(static_cast<int>(random() % 17) - 8) / T(4);
    }
}

// Elements at any alignment, between bytes that nobody may change.
template <typename T> class Buffer
{
public:
    Buffer(Random &random, const std::vector<T> &values, std::size_t shift)
        : bytes_(kMargin + shift + values.size() * sizeof(T) + kMargin), shift_(shift), count_(values.size())
    {
        for (std::byte &byte : bytes_)
            byte = static_cast<std::byte>(random());
        original_ = bytes_;
        if (!values.empty())
            std::memcpy(at(), values.data(), values.size() * sizeof(T));
    }
    std::byte *at() { return bytes_.data() + kMargin + shift_; }
    bool holds(const std::vector<T> &values)
    {
        for (std::size_t i = 0; i < count_; ++i) {
            T value{};
            std::memcpy(&value, at() + i * sizeof(T), sizeof value);
            if (value != values[i])
                return false;
        }
        const std::size_t end = kMargin + shift_ + count_ * sizeof(T);
        return std::memcmp(bytes_.data(), original_.data(), kMargin + shift_) == 0 &&
               std::memcmp(bytes_.data() + end, original_.data() + end, kMargin) == 0;
    }

private:
    static constexpr std::size_t kMargin = 16; // a multiple of every alignment, as the vector's own memory is

    std::vector<std::byte> bytes_;
    std::vector<std::byte> original_;
    std::size_t shift_;
    std::size_t count_;
};

template <typename T>
bool comes_out(Random &random, AtomicKind kind, fi_datatype type, fi_op op, std::size_t count, std::size_t shift)
{
    std::vector<T> before(count), operands(count), compares(count), after(count);
    for (std::size_t i = 0; i < count; ++i) {
        before[i] = any<T>(random);
        operands[i] = any<T>(random);
        compares[i] = random() % 2 == 0 ? before[i] : any<T>(random);
        after[i] = expected(op, before[i], operands[i], compares[i]);
    }
    Buffer<T> target(random, before, shift);
    Buffer<T> operand(random, operands, shift);
    Buffer<T> compare(random, compares, 15 - shift);
    Buffer<T> result(random, operands, (shift + 3) % 16);
    ofi::atomic_apply(kind, type, op, target.at(), op == FI_ATOMIC_READ ? nullptr : operand.at(),
                      kind == AtomicKind::compare ? compare.at() : nullptr,
                      kind == AtomicKind::base ? nullptr : result.at(), count);
    return target.holds(after) && operand.holds(operands) && compare.holds(compares) &&
           result.holds(kind == AtomicKind::base ? operands : before);
}

template <typename Use> void for_each_pair(Use &&use)
{
    for (const AtomicKind kind : kKinds) {
        for (int type = FI_INT8; type <= FI_UINT128; ++type) {
            for (int op = FI_MIN; op < FI_ATOMIC_OP_LAST; ++op)
                use(kind, static_cast<fi_datatype>(type), static_cast<fi_op>(op));
        }
    }
}

void report(AtomicKind kind, fi_datatype type, fi_op op)
{
    print_error("kind %d, type %d, operation %d\n", static_cast<int>(kind), static_cast<int>(type),
                static_cast<int>(op));
}

void pairs_are_valid_or_refused(void **)
{
    for_each_pair([](AtomicKind kind, fi_datatype type, fi_op op) {
        if (ofi::atomic_valid(kind, type, op) != should_be_valid(kind, type, op)) {
            report(kind, type, op);
            UNIT_FAIL("wrongly offered, or wrongly refused");
        }
    });
    for (const AtomicKind kind : kKinds) {
        assert_false(ofi::atomic_valid(kind, FI_VOID, FI_ATOMIC_WRITE));
        assert_false(ofi::atomic_valid(kind, FI_INT64, FI_NOOP));
        assert_false(ofi::atomic_valid(kind, FI_INT64, static_cast<fi_op>(FI_ATOMIC_OP_LAST)));
    }
}

void sizes(void **)
{
    for (int number = FI_INT8; number <= FI_UINT128; ++number) {
        const auto type = static_cast<fi_datatype>(number);
        with_type(type, [type]<typename T>(T) { assert_int_equal(ofi::atomic_size(type), sizeof(T)); });
    }
    assert_int_equal(ofi::atomic_size(FI_VOID), 0);
}

void results_are_as_the_manual_says(void **)
{
    Random random(vma::test::seed());
    for_each_pair([&random](AtomicKind kind, fi_datatype type, fi_op op) {
        if (!should_be_valid(kind, type, op))
            return;
        with_type(type, [&]<typename T>(T) {
            for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 64U}) {
                for (const std::size_t shift : {0U, 1U, 2U, 4U, 8U, 15U}) {
                    if (comes_out<T>(random, kind, type, op, count, shift))
                        continue;
                    report(kind, type, op);
                    print_error("%zu elements at %zu\n", count, shift);
                    UNIT_FAIL("not what it should come to");
                }
            }
        });
    });
}

// It is neither less nor more than any other, and not itself.
void no_number(void **)
{
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double one = 1;
    double target = one;
    const auto call = [&target](AtomicKind kind, fi_op op, const double &operand, const double &compare) {
        double before = 0;
        ofi::atomic_apply(kind, FI_DOUBLE, op, reinterpret_cast<std::byte *>(&target),
                          reinterpret_cast<const std::byte *>(&operand), reinterpret_cast<const std::byte *>(&compare),
                          reinterpret_cast<std::byte *>(&before), 1);
    };
    call(AtomicKind::fetch, FI_MIN, nan, one);
    assert_true(target == one);
    call(AtomicKind::fetch, FI_MAX, nan, one);
    assert_true(target == one);
    call(AtomicKind::fetch, FI_SUM, nan, one);
    assert_true(target != target);
    call(AtomicKind::compare, FI_CSWAP, one, nan);
    assert_true(target != target);
    call(AtomicKind::compare, FI_CSWAP_NE, one, nan);
    assert_true(target == one);
}

void memory_that_is_read_is_not_written(void **)
{
    void *const page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    for (int type = FI_INT8; type <= FI_UINT128; ++type) {
        for (const std::size_t shift : {0U, 1U}) {
            std::byte result[32];
            std::memset(result, 1, sizeof result);
            const auto datatype = static_cast<fi_datatype>(type);
            ofi::atomic_apply(AtomicKind::fetch, datatype, FI_ATOMIC_READ, static_cast<std::byte *>(page) + shift,
                              nullptr, nullptr, result, 1);
            for (std::size_t i = 0; i < ofi::atomic_size(datatype); ++i)
                assert_true(result[i] == std::byte{0});
        }
    }
    assert_int_equal(::munmap(page, 4096), 0);
}

// With an instruction for it, and in a loop; each thread's operations leave those of the other alone.
void the_program_changes_it_too(void **)
{
    constexpr int kRounds = 100'000;
    std::uint32_t added = 0;
    std::uint32_t swapped = 0; // its lowest bit is ours, the others are the program's
    std::thread program([&] {
        for (int i = 0; i < kRounds; ++i) {
            __atomic_fetch_add(&added, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&swapped, 2, __ATOMIC_RELAXED);
        }
    });
    const std::uint32_t one = 1;
    for (int i = 0; i < kRounds; ++i) {
        const std::uint32_t bit = i % 2 == 0 ? 0 : 1;
        std::uint32_t before = 0;
        const auto *const mask = reinterpret_cast<const std::byte *>(&one);
        ofi::atomic_apply(AtomicKind::base, FI_UINT32, FI_SUM, reinterpret_cast<std::byte *>(&added), mask, nullptr,
                          nullptr, 1);
        ofi::atomic_apply(AtomicKind::compare, FI_UINT32, FI_MSWAP, reinterpret_cast<std::byte *>(&swapped),
                          reinterpret_cast<const std::byte *>(&bit), mask, reinterpret_cast<std::byte *>(&before), 1);
    }
    program.join();
    assert_int_equal(added, 2 * kRounds);
    assert_int_equal(swapped, 2 * kRounds + 1);
}

// ---- Registered memory ---------------------------------------------------------------------------------------------

// A table with one registration of two pieces.
struct Registered {
    ofi::Fabric fabric;
    ofi::Domain domain{fabric};
    ofi::MrTable table;
    ofi::Mr mr{domain};
    std::uint64_t pieces[2][2] = {{1, 2}, {3, 4}};

    Registered()
    {
        mr.iov[0] = {pieces[0], sizeof pieces[0]};
        mr.iov[1] = {pieces[1], sizeof pieces[1]};
        mr.iov_count = 2;
        mr.length = sizeof pieces;
        mr.access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        assert_int_equal(table.add(mr, 7, false), 0);
    }
    ~Registered() { table.remove(mr); }
    Registered(const Registered &) = delete;
    Registered &operator=(const Registered &) = delete;
};

void registered_memory_is_changed_in_pieces(void **)
{
    Registered registered;
    const std::uint64_t operand[] = {10, 20};
    std::uint64_t before[2] = {};
    const auto add = [&](const iovec *parts, unsigned count) noexcept {
        std::size_t done = 0;
        for (unsigned i = 0; i < count; ++i) {
            const std::size_t elements = parts[i].iov_len / sizeof(std::uint64_t);
            ofi::atomic_apply(AtomicKind::fetch, FI_UINT64, FI_SUM, static_cast<std::byte *>(parts[i].iov_base),
                              reinterpret_cast<const std::byte *>(operand + done), nullptr,
                              reinterpret_cast<std::byte *>(before + done), elements);
            done += elements;
        }
        return done == 2 ? 0 : FI_EIO;
    };
    assert_int_equal(registered.table.access(7, 8, 16, FI_REMOTE_READ | FI_REMOTE_WRITE, add), 0);
    assert_true(before[0] == 2 && before[1] == 3);
    assert_true(registered.pieces[0][0] == 1 && registered.pieces[0][1] == 12);
    assert_true(registered.pieces[1][0] == 23 && registered.pieces[1][1] == 4);
}

void registered_memory_is_checked(void **)
{
    Registered registered;
    registered.mr.access = FI_REMOTE_READ;
    unsigned calls = 0;
    const auto use = [&calls](const iovec *, unsigned count) noexcept {
        ++calls;
        return count == 0 ? 0 : FI_EIO;
    };
    ofi::MrTable &table = registered.table;
    assert_int_equal(table.access(8, 0, 8, FI_REMOTE_READ, use), FI_ENOKEY);
    assert_int_equal(table.access(7, 0, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, use), FI_EACCES);
    assert_int_equal(table.access(7, 25, 8, FI_REMOTE_READ, use), FI_EINVAL);
    assert_int_equal(table.access(7, UINT64_MAX, 8, FI_REMOTE_READ, use), FI_EINVAL);
    assert_int_equal(calls, 0);
    assert_int_equal(table.access(7, 0, 32, FI_REMOTE_READ, use), FI_EIO); // its own, and the table is free again
    assert_int_equal(table.access(7, 32, 0, FI_REMOTE_READ, use), 0);
    assert_int_equal(calls, 2);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_valid_or_refused),
        cmocka_unit_test(sizes),
        cmocka_unit_test(results_are_as_the_manual_says),
        cmocka_unit_test(no_number),
        cmocka_unit_test(memory_that_is_read_is_not_written),
        cmocka_unit_test(the_program_changes_it_too),
        cmocka_unit_test(registered_memory_is_changed_in_pieces),
        cmocka_unit_test(registered_memory_is_checked),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
