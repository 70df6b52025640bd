// SPDX-License-Identifier: BSD-2-Clause
// The threads that work on the lanes of a step or a mesh: one for all, or one each. They keep their endpoints going
// until stop(), since a peer may still need them when their own work is done.
#pragma once

#include "util/vma_lat/roles/lane.hpp"
#include "util/vma_lat/transport/sleeper.hpp"

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace vma::lat {

class Crew
{
public:
    // `timeout_ns`: the longest time without a completion while something is to come, 0 for any.
    Crew(Endpoints &endpoints, std::uint64_t timeout_ns);
    Crew(const Crew &) = delete;
    Crew &operator=(const Crew &) = delete;
    ~Crew();

    // One for each connection, in their order.
    Failure start(const std::vector<LaneWork> &works);

    // Readable when all lanes are done, or one failed.
    int event_fd() const { return event_.get(); }
    bool done() const { return busy_.load(std::memory_order_acquire) == 0; }
    bool failed() const { return failed_.load(std::memory_order_acquire); }
    std::uint64_t completions() const; // so far, for a line of progress

    // Ends the threads; then the lanes can be looked at. What went wrong, if anything did.
    Failure stop();
    const std::deque<Lane> &lanes() const { return lanes_; }

private:
    struct Worker {
        std::vector<Lane *> lanes;
        std::vector<fid_cq *> queues;
        Sleeper sleeper;
        std::atomic<std::uint64_t> completions{0};
        std::thread thread;
        unsigned looks = 0;
        bool counted = false; // done
    };

    bool over() const { return stop_.load(std::memory_order_acquire) || failed() || stopped(); }
    void work(Worker &worker);
    bool read_queue(Worker &worker, std::uint32_t number, bool &any);
    bool take(const fi_cq_data_entry &entry, const Lane *only);
    bool pump_all(Worker &worker);
    bool pump_stalled(Worker &worker, bool &stalled);
    bool in_time(Worker &worker);
    void rest(Worker &worker, bool stalled);
    bool queue_error(fid_cq *queue);
    bool fail(Error why);
    void report();

    Endpoints &endpoints_;
    const std::uint64_t timeout_ns_;
    std::deque<Lane> lanes_;
    std::vector<Lane *> by_tag_; // the lane that immediate data name
    std::deque<Worker> workers_;
    std::atomic<std::uint32_t> singles_left_{0};
    std::atomic<std::uint32_t> busy_{0}; // workers
    std::atomic<bool> stop_{false};
    std::atomic<bool> failed_{false};
    std::mutex failure_lock_;
    Failure failure_; // the first
    Fd event_;
};

// What all lanes of a crew that has stopped saw.
Tally tally_of(const Crew &crew);

} // namespace vma::lat
