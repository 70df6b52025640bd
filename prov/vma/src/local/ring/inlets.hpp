// SPDX-License-Identifier: BSD-2-Clause
// The datagram side of a completion queue: the rings it looks at itself, and who is meant by a bit of its doorbell that
// belongs to no connected endpoint. The same scheme as for those: some are looked at, the others ring.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace vma::local {

class Inlet;
struct Queue;

// Who has a bit of a queue's doorbell.
class BellHandler
{
public:
    virtual void on_bell() noexcept = 0; // with the queue's lock held

protected:
    ~BellHandler() = default;
};

// Who has to be asked, as nothing rings for it: an endpoint that another provider carries to other hosts.
class Poller
{
public:
    virtual void poll() noexcept = 0;      // with the queue's lock held, in each read
    virtual bool may_sleep() noexcept = 0; // likewise: the descriptor it has added wakes whoever sleeps then

protected:
    ~Poller() = default;
};

// Everything with the queue's lock held.
class Inlets
{
public:
    // How many are looked at: each costs a look in each read, and, where somebody may sleep, a change of mind before
    // each sleep.
    static constexpr unsigned kActive = 16;
    static constexpr unsigned kActiveBeforeSleep = 4;

    explicit Inlets(Queue &queue) noexcept : queue_(queue) {}

    bool used() const noexcept { return handlers_ != 0; }
    bool any_active() const noexcept { return active_count_ != 0; }
    // A bit for the handler. 0 or a negative fi_errno.
    int add(BellHandler &handler, std::uint32_t &bit) noexcept;
    void remove(BellHandler &handler, std::uint32_t bit) noexcept;
    void remove(Inlet &inlet, std::uint32_t bit) noexcept;

    void rung(std::uint32_t bit) noexcept
    {
        if (bit < size_ && by_bit_[bit])
            by_bit_[bit]->on_bell();
    }
    void poll() noexcept;
    // One whose ring was answered: from now on it is looked at, if it is its turn.
    void consider(Inlet &inlet, std::uint32_t bit) noexcept;
    // All ring from now on.
    void deactivate_all() noexcept;
    void ring_all() noexcept;

    void add(Poller &poller) noexcept;
    void remove(const Poller &poller) noexcept;
    bool may_sleep() noexcept
    {
        return std::all_of(pollers_.begin(), pollers_.end(), [](Poller *poller) { return poller->may_sleep(); });
    }

private:
    unsigned limit() const noexcept;
    bool grow(std::uint32_t bit) noexcept;
    void deactivate(unsigned index) noexcept;

    Queue &queue_;
    Inlet *active_[kActive] = {}; // the one that was active last in front
    unsigned active_count_ = 0;
    unsigned handlers_ = 0;
    std::unique_ptr<BellHandler *[]> by_bit_;
    std::uint32_t size_ = 0;
    std::vector<Poller *> pollers_;
};

} // namespace vma::local
