// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/roles/crew.hpp"

#include "util/vma_lat/roles/lane_messages.hpp"

#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>

namespace vma::lat {

Crew::Crew(Endpoints &endpoints, std::uint64_t timeout_ns) : endpoints_(endpoints), timeout_ns_(timeout_ns) {}

Crew::~Crew()
{
    stop();
}

Failure Crew::start(const std::vector<LaneWork> &works)
{
    const Progress &progress = endpoints_.shape().progress;
    event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_)
        return system_error("eventfd");
    by_tag_.assign(kMaxConnections, nullptr);
    for (std::uint32_t i = 0; i < works.size(); ++i) {
        lanes_.emplace_back(endpoints_, i, works[i], singles_left_);
        by_tag_[works[i].in_tag] = &lanes_.back();
        if (workers_.empty() || progress.each)
            workers_.emplace_back();
        Worker &worker = workers_.back();
        worker.lanes.push_back(&lanes_.back());
        if (worker.queues.empty() || !progress.shared)
            worker.queues.push_back(endpoints_.queue(i));
    }
    for (Worker &worker : workers_) {
        if (auto failure = worker.sleeper.open(progress.wait, endpoints_.fabric(), worker.queues))
            return failure;
    }
    busy_.store(static_cast<std::uint32_t>(workers_.size()));
    for (Worker &worker : workers_)
        worker.thread = std::thread([this, &worker] { work(worker); });
    return {};
}

Failure Crew::stop()
{
    stop_.store(true, std::memory_order_release);
    for (Worker &worker : workers_) {
        worker.sleeper.wake();
        if (worker.thread.joinable())
            worker.thread.join();
    }
    return failure_;
}

std::uint64_t Crew::completions() const
{
    std::uint64_t sum = 0;
    for (const Worker &worker : workers_)
        sum += worker.completions.load(std::memory_order_relaxed);
    return sum;
}

void Crew::report()
{
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
}

bool Crew::fail(Error why)
{
    {
        const std::lock_guard lock(failure_lock_);
        if (!failure_)
            failure_ = std::move(why);
    }
    failed_.store(true, std::memory_order_release);
    for (Worker &worker : workers_)
        worker.sleeper.wake();
    report();
    return false;
}

void Crew::work(Worker &worker)
{
    constexpr unsigned kLooks = 1024; // at the queues, between two at the clock, unless it slept
    const bool polls = endpoints_.shape().progress.wait == Model::kPoll;
    bool streaming = false;
    if (!pump_all(worker))
        return;
    while (!over()) {
        bool any = false;
        for (const std::uint32_t number : worker.sleeper.ready()) {
            if (!read_queue(worker, number, any))
                return;
        }
        // The last of the lanes that worked one by one has ended: all begin the second part, and other threads may
        // sleep.
        if (!streaming && singles_left_.load(std::memory_order_acquire) == 0) {
            streaming = true;
            for (Worker &each : workers_)
                each.sleeper.wake();
            if (!pump_all(worker))
                return;
            continue;
        }
        bool stalled = false;
        if (!pump_stalled(worker, stalled))
            return;
        if (!any)
            rest(worker, stalled);
        const bool look = ++worker.looks % kLooks == 0 || (!any && !polls);
        if (look && timeout_ns_ != 0 && !worker.counted && !in_time(worker))
            return;
    }
}

bool Crew::pump_all(Worker &worker)
{
    for (Lane *lane : worker.lanes) {
        if (!lane->pump())
            return fail({lane->fault_status(), lane->fault()});
    }
    return true;
}

bool Crew::pump_stalled(Worker &worker, bool &stalled)
{
    for (Lane *lane : worker.lanes) {
        if (!lane->stalled())
            continue;
        if (!lane->pump())
            return fail({lane->fault_status(), lane->fault()});
        stalled = stalled || lane->stalled();
    }
    return true;
}

// A peer of one lane may be silent while others keep the thread busy.
bool Crew::in_time(Worker &worker)
{
    const std::uint64_t now = now_ns();
    for (Lane *lane : worker.lanes) {
        if (lane->late(now, timeout_ns_))
            return fail(error(kExitServer, "%s of %u bytes, %s: nothing came for %llu ms; the test ends",
                              name_of(endpoints_.shape().operation), endpoints_.shape().size,
                              endpoints_.name(lane->connection()).c_str(),
                              static_cast<unsigned long long>(timeout_ns_ / kMillisecond)));
    }
    return true;
}

// Nothing came: is all done, or is it time to sleep?
void Crew::rest(Worker &worker, bool stalled)
{
    if (!worker.counted &&
        std::all_of(worker.lanes.begin(), worker.lanes.end(), [](const Lane *lane) { return lane->done(); })) {
        worker.counted = true;
        if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            report();
    }
    if (stalled) {
        worker.sleeper.look_at_all(); // what makes room may be no event of ours
        sched_yield();
    } else {
        worker.sleeper.sleep();
    }
}

bool Crew::read_queue(Worker &worker, std::uint32_t number, bool &any)
{
    fid_cq *queue = worker.queues[number];
    const Lane *only = endpoints_.shape().progress.shared ? nullptr : worker.lanes[number];
    std::array<fi_cq_data_entry, 16> entries;
    const ssize_t got = fi_cq_read(queue, entries.data(), entries.size());
    if (got == -FI_EAGAIN || got == 0)
        return true;
    if (got == -FI_EAVAIL)
        return queue_error(queue);
    if (got < 0)
        return fail(fabric_error("fi_cq_read", got));
    any = true;
    for (ssize_t i = 0; i < got; ++i) {
        if (!take(entries[static_cast<std::size_t>(i)], only))
            return false;
    }
    worker.completions.store(worker.completions.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(got),
                             std::memory_order_relaxed);
    return true;
}

// `only`: the one lane whose queue it came from, if lanes have their own.
bool Crew::take(const fi_cq_data_entry &entry, const Lane *only)
{
    // A peer's write that used up no receive has no context of ours: its data say which connection it is on.
    const bool stranger = (entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) != 0 && !endpoints_.takes_receives();
    Lane *lane = nullptr;
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
        lane = entry.data >> kSequenceBits < by_tag_.size() ? by_tag_[entry.data >> kSequenceBits] : nullptr;
        if (lane == nullptr || (only != nullptr && lane != only))
            return fail(error(kExitServer, "immediate data came that do not name their connection; the test ends"));
    }
    bool fine = true;
    if (stranger) {
        if (lane == nullptr) // the provider tells of writes without data, which nobody asked for
            return true;
        fine = lane->on_arrival(static_cast<std::uint32_t>(entry.data & kSequenceMask));
    } else {
        auto *posted = static_cast<Posted *>(entry.op_context);
        lane = &lanes_[posted->connection];
        fine = lane->on_completion(entry, *posted);
    }
    return (fine && lane->pump()) || fail({lane->fault_status(), lane->fault()});
}

bool Crew::queue_error(fid_cq *queue)
{
    fi_cq_err_entry entry{};
    fi_cq_readerr(queue, &entry, 0);
    std::array<char, 128> words{};
    const char *more = fi_cq_strerror(queue, entry.prov_errno, entry.err_data, words.data(), words.size());
    const auto *posted = static_cast<const Posted *>(entry.op_context);
    const bool ours = posted != nullptr && (entry.flags & FI_REMOTE_WRITE) == 0;
    return fail(error(kExitServer, "%s of %u bytes%s failed: %s%s%s%s; the test ends",
                      name_of(endpoints_.shape().operation), endpoints_.shape().size,
                      ours ? format(" on %s", endpoints_.name(posted->connection).c_str()).c_str() : "",
                      libfabric().strerror(entry.err), more != nullptr ? " (" : "", more != nullptr ? more : "",
                      more != nullptr ? ")" : ""));
}

Tally tally_of(const Crew &crew)
{
    Tally sum;
    for (const Lane &lane : crew.lanes()) {
        sum.arrived += lane.tally().arrived;
        if (sum.damaged == 0)
            sum.first = lane.tally().first;
        sum.damaged += lane.tally().damaged;
    }
    return sum;
}

} // namespace vma::lat
