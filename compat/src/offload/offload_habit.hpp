// SPDX-License-Identifier: BSD-2-Clause
// After how many calls a connection leaves the kernel where nobody has said it. To leave costs what some ten exchanges
// gain, so where connections end just behind VMA_LIFT_AFTER the next ones wait longer, and where they go on for long
// between processes that have met before they wait less, or leave before their first byte (first_byte.cpp): how long
// earlier ones were says what would have been best. doc/rendezvous.md
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"

namespace vma::sock {

// What waits before the first byte have taken too long, of which there may be some microseconds a connection, and less
// where each one does. The habit's lock.
class LongWaits
{
public:
    static constexpr std::int64_t kFairUs = 300; // that each one may take
    static constexpr std::int64_t kPayUs = 16;   // off with each connection
    static constexpr std::int64_t kMostUs = 2048;

    void note(std::int64_t us)
    {
        if (us <= kFairUs) {
            pay_ = kPayUs;
            return;
        }
        debt_ += us - kFairUs;
        if (debt_ >= kMostUs && !leave_out_) {
            leave_out_ = true;
            pay_ = std::max<std::int64_t>(pay_ / 2, 1);
        }
    }
    void connection_ended()
    {
        debt_ = std::max<std::int64_t>(debt_ - pay_, 0);
        leave_out_ = leave_out_ && debt_ > kMostUs / 2;
    }
    bool leave_out() const { return leave_out_; }

private:
    std::int64_t debt_ = 0;
    std::int64_t pay_ = kPayUs;
    bool leave_out_ = false;
};

// How many of the last ones were so, in 256ths. The habit's lock.
class Share
{
public:
    static constexpr std::int32_t kAll = 256;

    constexpr explicit Share(std::int32_t value) : value_(value) {}
    void learn(bool so) { value_ += ((so ? kAll : 0) - value_) / kNew; }
    void forget() { value_ -= value_ / kForget; } // so that it is tried again
    bool is_most() const { return value_ > kAll / 2; }

private:
    static constexpr std::int32_t kNew = 4; // of the newest one
    static constexpr std::int32_t kForget = 128;

    std::int32_t value_;
};

// Of the connections that a process makes, or of those that it accepts. Any thread.
class OffloadHabit
{
public:
    // The shortest wait is a quarter of VMA_LIFT_AFTER, each further choice the double of the one before.
    static constexpr std::size_t kChoices = 7;
    static constexpr std::uint32_t kBegin = 2; // VMA_LIFT_AFTER itself
    // Calls by an endpoint that gain what the way there takes, measured by contrib/bench/short_conn. With one processor
    // for both ends they gain less.
    static constexpr std::int64_t kCost = 20;
    static constexpr std::int64_t kSharedCost = 66;
    // Likewise of one that leaves before its first byte.
    static constexpr std::int64_t kFirstCost = 14;
    static constexpr std::int64_t kSharedFirstCost = 50;

    enum class First : std::uint8_t {
        kNo,
        kOnSeveral, // where the two ends have a processor each
        kAnywhere,
    };

    // How many calls one waits, where `usual` is VMA_LIFT_AFTER. One relaxed load.
    std::uint32_t wait(std::uint32_t usual) const { return shortest(usual) << choice_.load(std::memory_order_relaxed); }

    // Whether the next one is best accelerated before its first byte. Who accepts does his part wherever it would be
    // worth it, if somebody asks: that is one who has met him, or wants to find out. One relaxed load each.
    First first() const { return first_.load(std::memory_order_relaxed); }
    First first_if_asked() const { return first_if_asked_.load(std::memory_order_relaxed); }

    // One has become accelerated. `known`: its two processes had another one before. Where most are not, the way costs
    // more than that, and none is shorter than VMA_LIFT_AFTER.
    void learn_peer(bool known);
    // An accelerated one is about to end. `shared`: what it waited for came while others had its processor.
    void learn_cost(bool shared);
    // The same of one that this process made. `in_sets`: it was never waited for by itself, but in an epoll set or its
    // kin. Who has many such ones waits for none while others have something to do, and pays for the way in full.
    void learn_waiting(bool in_sets);
    // One was to be accelerated before its first byte, and waited so long for that.
    void learn_first(std::int64_t us);
    // What accept() left before the first byte of one was taken, or not. That costs little, so some are one in vain.
    void learn_offer(bool taken);
    // One has ended after so many calls on its end. Fewer than the shortest wait teach nothing of waits.
    void ended(std::uint64_t calls, std::uint32_t usual);
    void after_fork_in_child(); // who has met nobody

private:
    void learn_waits(std::int64_t calls, std::uint32_t usual); // with lock_, as the next ones
    void note_wait(std::int64_t us);
    First best_first() const;
    void count_untried(std::int64_t calls, std::uint32_t usual);

    static std::uint32_t shortest(std::uint32_t usual) { return usual > (1U << kBegin) ? usual >> kBegin : 1; }

    static constexpr std::int32_t kUntried = 64; // connections, after which so many try whether they have met
    static constexpr std::int32_t kTries = 16;
    static constexpr std::uint32_t kMissed = 8; // offers in succession that nobody took, which are one wait in vain
    static constexpr std::int32_t kTrust = 512; // the usual wait has to be wrong some times before another one is tried

    std::atomic<std::uint32_t> choice_{kBegin};
    std::atomic<First> first_{First::kNo};
    std::atomic<First> first_if_asked_{First::kNo};
    Mutex lock_;
    // All with lock_: what each choice would have gained lately, in sixteenths of calls, and how many of the last were
    // between processes that had not met, or shared a processor, or were waited for in sets.
    std::array<std::int32_t, kChoices> gains_ = {0, 0, kTrust};
    std::int32_t calls_ = 0; // of the last ones, in sixteenths: what would be gained before the first byte
    Share unmet_{Share::kAll};
    Share shared_{0};
    Share in_sets_{0};
    LongWaits waits_;
    std::uint32_t missed_ = 0;
    std::int32_t untried_ = 0; // that would have gained if they had met, and were over before their wait
};

class Stream;
enum class Role : std::uint8_t;
// How many sends and receives take a connection off the kernel. Who was let go (VMA_IDLE_STREAMS) has to show that it
// is used again, where one call would do.
std::uint32_t calls_before_offload(const Stream &s);
// Whether one that is made or accepted now is accelerated before its first byte.
OffloadHabit::First habitual_first(Role role);
void learn_about_first(const Stream &s, std::int64_t waited_ns);
void learn_about_peer(const Stream &s);   // it has become accelerated; its endpoint is there
void note_end_of_stream(const Stream &s); // it is closed: the last that is done with its counters
void offload_habits_after_fork_in_child();

} // namespace vma::sock
