// SPDX-License-Identifier: BSD-2-Clause
// The order of events. In each round every sender writes on some of its connections, one after the other; what a wait
// reports is then always what was written first, and nothing behind a gap, for epoll in that order. (The kernel's
// poll() and select() look at one descriptor after the other, and may have passed what is written meanwhile: they are
// held to it where all descriptors are the library's.) Some descriptors may be the kernel's alone: what was written
// first, to the one or the other, comes in the same call at the latest as what was written after it (two in a round:
// doc/multiplexing.md).
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/ends.hpp"

namespace {

constexpr int kRounds = 150;
constexpr std::size_t kMost = 64;

enum class Way { kLevel, kEdge, kOneShot, kPoll, kSelect };
constexpr const char *kNames[] = {"epoll", "epoll edge-triggered", "epoll one-shot", "poll", "select"};

struct Channel {
    fabtest::Ends ends;
    bool kernel; // the kernel's alone
};

struct Sender {
    std::vector<std::size_t> channels;
    std::vector<std::size_t> order; // of this round
    std::size_t reported = 0;
};

[[noreturn]] void fail(const char *what)
{
    std::perror(what);
    std::exit(2);
}

class Waiter
{
public:
    Waiter(const std::vector<Channel> &channels, Way way) : channels_(channels), way_(way)
    {
        if (way_ > Way::kOneShot)
            return;
        for (std::size_t i = 0; i < channels.size(); ++i)
            control(EPOLL_CTL_ADD, i);
    }
    ~Waiter() { ::close(epoll_); }
    Waiter(const Waiter &) = delete;
    Waiter &operator=(const Waiter &) = delete;

    // In the order of the call's answer.
    std::vector<std::size_t> wait(int milliseconds) const
    {
        std::vector<std::size_t> ready;
        if (way_ <= Way::kOneShot) {
            epoll_event events[kMost];
            const int n = ::epoll_wait(epoll_, events, kMost, milliseconds);
            for (int i = 0; i < n; ++i)
                ready.push_back(static_cast<std::size_t>(events[i].data.u64));
        } else if (way_ == Way::kPoll) {
            std::vector<pollfd> fds;
            for (const Channel &channel : channels_)
                fds.push_back({channel.ends.b, POLLIN, 0});
            ::poll(fds.data(), fds.size(), milliseconds);
            for (std::size_t i = 0; i < fds.size(); ++i)
                if (fds[i].revents != 0)
                    ready.push_back(i);
        } else {
            fd_set set;
            FD_ZERO(&set);
            for (const Channel &channel : channels_)
                FD_SET(channel.ends.b, &set);
            timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
            const int n = ::select(FD_SETSIZE, &set, nullptr, nullptr, &time);
            for (std::size_t i = 0; n > 0 && i < channels_.size(); ++i)
                if (FD_ISSET(channels_[i].ends.b, &set))
                    ready.push_back(i);
        }
        return ready;
    }
    void taken(std::size_t channel) const
    {
        if (way_ == Way::kOneShot)
            control(EPOLL_CTL_MOD, channel);
    }
    bool tells_order() const { return way_ <= Way::kOneShot; }

private:
    void control(int what, std::size_t channel) const
    {
        epoll_event event = {};
        event.events = EPOLLIN;
        if (way_ == Way::kEdge)
            event.events |= static_cast<std::uint32_t>(EPOLLET);
        if (way_ == Way::kOneShot)
            event.events |= static_cast<std::uint32_t>(EPOLLONESHOT);
        event.data.u64 = channel;
        if (::epoll_ctl(epoll_, what, channels_[channel].ends.b, &event) != 0)
            fail("epoll_ctl");
    }

    const std::vector<Channel> &channels_;
    const Way way_;
    const int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
};

// What one call reported of a sender's: where each stands in the sender's order. False: out of order, or behind a gap.
bool in_order(const std::vector<Channel> &channels, Sender &sender, const std::vector<std::size_t> &ready, bool strict)
{
    std::size_t count = 0;
    std::size_t last[2] = {0, 0}; // of ours and the kernel's: one more than the place of the last one
    bool ordered = true;
    for (const std::size_t channel : ready) {
        const auto at = std::find(sender.order.begin(), sender.order.end(), channel);
        if (at == sender.order.end())
            continue;
        const auto place = static_cast<std::size_t>(at - sender.order.begin()) + 1;
        std::size_t &before = last[channels[channel].kernel ? 1 : 0];
        ordered = ordered && place > before;
        before = place;
        ++count;
    }
    sender.reported += count;
    return !strict || (ordered && std::max(last[0], last[1]) <= sender.reported);
}

class Run
{
public:
    Run(const std::vector<Channel> &channels, std::size_t senders, Way way)
        : channels_(channels),
          mixed_(std::any_of(channels.begin(), channels.end(), [](const Channel &c) { return c.kernel; })),
          waiter_(channels_, way), senders_(senders)
    {
        for (std::size_t i = 0; i < channels.size(); ++i)
            senders_[i % senders].channels.push_back(i);
    }

    int wrong_rounds()
    {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < senders_.size(); ++i)
            threads.emplace_back([this, i] { send(senders_[i], static_cast<unsigned>(i)); });
        int wrong = 0;
        (void)waiter_.wait(0); // what has just been added is looked at
        for (int round = 1; round <= kRounds; ++round) {
            std::size_t left = 0;
            for (Sender &sender : senders_) {
                std::shuffle(sender.channels.begin(), sender.channels.end(), random_);
                const auto some = static_cast<std::ptrdiff_t>(mixed_ ? 2 : 1 + random_() % sender.channels.size());
                sender.order.assign(sender.channels.begin(), sender.channels.begin() + some);
                sender.reported = 0;
                left += sender.order.size();
            }
            round_.store(round, std::memory_order_release);
            wrong += take(left) ? 0 : 1;
            if (!waiter_.wait(0).empty()) // takes what is over off the kernel's list too
                ++wrong;
        }
        for (std::thread &thread : threads)
            thread.join();
        return wrong;
    }

private:
    void send(const Sender &sender, unsigned seed)
    {
        std::minstd_rand random(seed + 1);
        for (int round = 1; round <= kRounds; ++round) {
            while (round_.load(std::memory_order_acquire) != round)
                std::this_thread::yield();
            for (const std::size_t channel : sender.order) {
                if (::write(channels_[channel].ends.a, "x", 1) != 1)
                    fail("write");
                for (auto i = random() % 8 == 0 ? random() % 2000 : 0; i != 0; --i)
                    asm volatile("" ::: "memory");
            }
        }
    }
    bool take(std::size_t left)
    {
        bool right = true;
        while (left != 0) {
            const std::vector<std::size_t> ready = waiter_.wait(random_() % 4 == 0 ? 0 : patience::milliseconds());
            for (Sender &sender : senders_)
                right = in_order(channels_, sender, ready, waiter_.tells_order()) && right;
            for (const std::size_t channel : ready) {
                char byte = 0;
                if (::read(channels_[channel].ends.b, &byte, 1) != 1)
                    fail("read");
                waiter_.taken(channel);
                --left;
            }
        }
        return right;
    }

    const std::vector<Channel> channels_;
    const bool mixed_;
    const Waiter waiter_;
    std::vector<Sender> senders_;
    std::mt19937 random_{1};
    std::atomic<int> round_{0};
};

fabtest::Ends kernel_pair()
{
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        fail("socketpair");
    return {fds[0], fds[1]};
}

} // namespace

int main()
{
    std::vector<Channel> ours;
    std::vector<Channel> kernels;
    for (std::size_t i = 0; i < kMost; ++i) {
        ours.push_back({fabtest::accelerated(), false});
        kernels.push_back({kernel_pair(), true});
    }
    int wrong = 0;
    for (const std::size_t count : {std::size_t{2}, std::size_t{3}, std::size_t{9}, kMost}) {
        for (const std::size_t senders : {std::size_t{1}, std::size_t{2}}) {
            for (const bool mixed : {false, true}) {
                if (mixed && senders != 1)
                    continue;
                std::vector<Channel> channels(ours.begin(), ours.begin() + static_cast<std::ptrdiff_t>(count));
                for (std::size_t i = 0; mixed && i < count; i += 3)
                    channels[i] = kernels[i];
                for (const Way way : {Way::kLevel, Way::kEdge, Way::kOneShot, Way::kPoll, Way::kSelect}) {
                    const int found = Run(channels, senders, way).wrong_rounds();
                    if (found != 0)
                        std::fprintf(stderr, "%s, %zu connections%s, %zu senders: %d of %d rounds out of order\n",
                                     kNames[static_cast<int>(way)], count, mixed ? ", some the kernel's" : "", senders,
                                     found, kRounds);
                    wrong += found;
                }
            }
        }
    }
    return wrong == 0 ? 0 : 1;
}
