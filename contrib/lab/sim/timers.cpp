// SPDX-License-Identifier: BSD-2-Clause
#include "contrib/lab/sim/timers.hpp"

namespace vma::sim {

void Timers::start(bool manual)
{
    manual_ = manual;
    manual_now_ = std::chrono::seconds(1);
    jobs_.clear();
}

void Timers::stop()
{
    {
        const std::lock_guard guard(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable())
        thread_.join();
    ending_ = false;
}

Timers::Ns Timers::now() const
{
    return manual_ ? manual_now_ : std::chrono::steady_clock::now().time_since_epoch();
}

Timers::Key Timers::at(Ns when, std::function<void()> job)
{
    const Key key{when, ++last_};
    jobs_.emplace(key, std::move(job));
    if (!manual_) {
        if (!thread_.joinable())
            thread_ = std::thread([this] { loop(); });
        changed_.notify_all();
    }
    return key;
}

void Timers::cancel(Key &key)
{
    jobs_.erase(key);
    key = {};
}

void Timers::work()
{
    while (!jobs_.empty() && jobs_.begin()->first.first <= now()) {
        const auto due = jobs_.extract(jobs_.begin());
        due.mapped()();
    }
}

void Timers::advance(Ns by)
{
    const Ns until = manual_now_ + by;
    while (next() <= until) {
        manual_now_ = std::max(manual_now_, next());
        work();
    }
    manual_now_ = until;
}

void Timers::loop()
{
    std::unique_lock lock(mutex_);
    while (!ending_) {
        work();
        if (jobs_.empty())
            changed_.wait(lock);
        else
            changed_.wait_until(lock, std::chrono::steady_clock::time_point(next()));
    }
}

} // namespace vma::sim
