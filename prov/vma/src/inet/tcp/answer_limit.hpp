// SPDX-License-Identifier: BSD-2-Clause
// How often one connection answers segments that can't be part of it (RFC 5961, 7). Each connection counts for itself:
// a count that two share tells whoever has one of them what is sent to the other (CVE-2016-5696).
#pragma once

#include "prov/vma/src/inet/wire/types.hpp"

namespace vma::inet {

// So many at once, and then one more each period.
struct AnswerRate {
    Nanos period;
    std::uint32_t at_once;
};

// Whatever may have been guessed: in no five seconds more than ten, as RFC 5961 has it.
inline constexpr AnswerRate kGuessAnswers = {kSecond, 5};
// What is again what has come, from where the peer may be: it hears of each (RFC 2883), within reason.
inline constexpr AnswerRate kDuplicateAnswers = {kMillisecond, 1000};

class AnswerLimit
{
public:
    bool take(Nanos now, const AnswerRate &rate)
    {
        const Nanos due = paid_until_ > now ? paid_until_ : now;
        if (due - now > rate.period * (rate.at_once - 1))
            return false;
        paid_until_ = due + rate.period;
        return true;
    }

private:
    Nanos paid_until_ = 0; // those that were taken would have been due, one a period
};

} // namespace vma::inet
