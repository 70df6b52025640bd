// SPDX-License-Identifier: BSD-2-Clause
// Loans: who is the last holder of a piece decides how it comes back, whatever the order and the threads.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/loan_list.hpp"

namespace {

using Loans = vma::core::LoanList<std::uint16_t>;

std::vector<std::uint16_t> collected(Loans &loans)
{
    std::vector<std::uint16_t> pieces;
    loans.collect([&](std::uint16_t piece) { pieces.push_back(piece); });
    std::ranges::sort(pieces);
    return pieces;
}

void what_is_not_lent_is_free_at_once(void **)
{
    Loans loans(4);
    assert_true(loans.is_allocated());
    assert_true(loans.release(0));
    assert_int_equal(loans.lent(), 0);
    assert_true(collected(loans).empty());
}

void given_back_before_its_release(void **)
{
    Loans loans(4);
    loans.lend(2);
    assert_int_equal(loans.lent(), 1);
    loans.give_back(2);
    assert_int_equal(loans.lent(), 1); // the owner holds it
    assert_true(collected(loans).empty());
    assert_true(loans.release(2));
    assert_int_equal(loans.lent(), 0);
    assert_true(loans.release(2)); // it can be used anew
}

void given_back_after_its_release(void **)
{
    Loans loans(4);
    for (const std::uint16_t piece : {std::uint16_t{1}, std::uint16_t{3}})
        loans.lend(piece);
    loans.lend(3); // to two
    assert_false(loans.release(1));
    assert_false(loans.release(3));
    loans.give_back(3);
    assert_true(collected(loans).empty());
    loans.give_back(1);
    loans.give_back(3);
    assert_int_equal(loans.lent(), 2);
    assert_true((collected(loans) == std::vector<std::uint16_t>{1, 3}));
    assert_int_equal(loans.lent(), 0);
    assert_true(collected(loans).empty());
}

// Each piece is lent to two threads, round after round, while the owner releases and collects: none is lost, none comes
// twice.
void threads_give_back(void **)
{
    constexpr std::uint16_t kPieces = 64;
    constexpr unsigned kRounds = 500, kThreads = 2;
    Loans loans(kPieces);
    std::atomic<unsigned> round{0};
    std::vector<std::thread> borrowers;
    for (unsigned t = 0; t < kThreads; ++t)
        borrowers.emplace_back([&] {
            for (unsigned done = 0; done < kRounds; ++done) {
                round.wait(done);
                for (std::uint16_t piece = 0; piece < kPieces; ++piece)
                    loans.give_back(piece);
            }
        });
    for (unsigned r = 1; r <= kRounds; ++r) {
        for (std::uint16_t piece = 0; piece < kPieces; ++piece)
            for (unsigned t = 0; t < kThreads; ++t)
                loans.lend(piece);
        round.store(r);
        round.notify_all();
        unsigned free[kPieces] = {};
        for (std::uint16_t piece = 0; piece < kPieces; ++piece)
            free[piece] += loans.release(piece);
        while (loans.lent() != 0)
            loans.collect([&](std::uint16_t piece) { ++free[piece]; });
        assert_true(std::ranges::all_of(free, [](unsigned times) { return times == 1; }));
    }
    for (std::thread &borrower : borrowers)
        borrower.join();
    assert_true(collected(loans).empty());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_lent_is_free_at_once),
        cmocka_unit_test(given_back_before_its_release),
        cmocka_unit_test(given_back_after_its_release),
        cmocka_unit_test(threads_give_back),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
