// SPDX-License-Identifier: BSD-2-Clause
// The clock of the simulated wire and what is due when: real time, with a thread that does what is due, or a clock that
// only the test turns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace vma::sim {

// Jobs run under the lock that the constructor is given, which every call but stop() expects to be held.
class Timers
{
public:
    using Ns = std::chrono::nanoseconds;
    using Key = std::pair<Ns, std::uint64_t>; // {0, 0} is none

    explicit Timers(std::mutex &mutex) : mutex_(mutex) {}
    Timers(const Timers &) = delete;
    Timers &operator=(const Timers &) = delete;
    ~Timers() { stop(); }

    // Forgets all jobs; a manual clock starts at 1 s, so that no time is 0.
    void start(bool manual);
    // Ends the thread. Without the lock.
    void stop();

    Ns now() const;
    Ns next() const { return jobs_.empty() ? Ns::max() : jobs_.begin()->first.first; }
    Key at(Ns when, std::function<void()> job);
    // Nothing happens for one that ran already, and none; sets it to none.
    void cancel(Key &key);
    // Does what is due.
    void work();
    // Manual clock only.
    void advance(Ns by);

private:
    void loop();

    std::mutex &mutex_;
    std::map<Key, std::function<void()>> jobs_;
    std::uint64_t last_ = 0;
    bool manual_ = false;
    Ns manual_now_{};
    bool ending_ = false;
    std::condition_variable changed_;
    std::thread thread_;
};

} // namespace vma::sim
