// SPDX-License-Identifier: BSD-2-Clause
// The other queues of a queue's endpoints: where an endpoint sends by one queue and receives by another, a program that
// reads or sleeps on one of them alone makes progress on both. Else two ends that each wait for their own sends, and
// never read what they receive, wait for ever.
#pragma once

#include <cstdint>
#include <memory>

namespace vma::local {

struct Queue;

class Companions
{
public:
    explicit Companions(Queue &owner) noexcept : owner_(owner) {}

    // Both take the owner's lock. 0, -FI_ENOMEM or -errno, and then nothing has changed.
    int add(Queue &queue) noexcept;
    void remove(const Queue &queue) noexcept;

    bool any() const noexcept { return count_ != 0; } // the owner's lock is held

    // Without any queue's lock: does something with each. Stops where that gives false, which it returns.
    template <typename Action> bool each(Action &&action) noexcept;

private:
    struct One {
        Queue *queue;
        unsigned endpoints; // that both have
    };

    One *find(const Queue &queue) noexcept;
    void wait_for_visitors() noexcept;
    bool enter() noexcept;
    void leave() noexcept;

    Queue &owner_;
    std::unique_ptr<One[]> list_;
    std::uint32_t count_ = 0, room_ = 0;
    unsigned visitors_ = 0; // who goes through the list without the lock
    unsigned changing_ = 0; // who waits until nobody does: nobody else begins to
};

// Of an endpoint that sends by one queue and receives by another: who reads either makes progress on both. Takes both
// locks, one after the other. Nothing where they are one. 0, -FI_ENOMEM or -errno, and then nothing has changed.
int accompany(Queue &one, Queue &other) noexcept;
void part(Queue &one, Queue &other) noexcept;

template <typename Action> bool Companions::each(Action &&action) noexcept
{
    if (!enter())
        return true;
    bool all = true;
    for (std::uint32_t i = 0; all && i < count_; ++i)
        all = action(*list_[i].queue);
    leave();
    return all;
}

} // namespace vma::local
