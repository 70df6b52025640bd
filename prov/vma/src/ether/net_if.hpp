// SPDX-License-Identifier: BSD-2-Clause
// A NIC of this machine with a stack of ours on it: frames in and out, timers, and the next hops to peers as the
// kernel's routes and neighbours say. What the stack tells its users, and who they are, is not its matter.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/fd.hpp"
#include "ether/block_lender.hpp"
#include "ether/netlink/cache.hpp"
#include "ether/nic.hpp"
#include "ether/nic/device_times.hpp"
#include "ether/nic/frame_taker.hpp"
#include "inet/stack.hpp"

namespace vma::ether {

inet::Nanos now_ns() noexcept; // the clock of all of them

// FI_VMA_GRO_STREAMS_MAX as it is now: flows whose segments a stack merges at a time, 0: none. What is no number is
// warned of once, and the default. Thread-safe.
std::uint32_t configured_gro_streams() noexcept;

// Not thread-safe: one owner at a time.
class NetIf
{
public:
    // 0 or negative errno, which is logged: those of Nic::open, of netlink, -ENOMEM.
    [[nodiscard]] static int open(const char *interface, const inet::TcpLimits &limits, std::unique_ptr<NetIf> &opened,
                                  const NicOptions &nic = {}) noexcept;

    inet::Stack &stack() noexcept { return *stack_; }
    inet::Tcp &tcp() noexcept { return stack_->tcp(); }
    Flows &flows() noexcept { return nic_.flows(); }
    NetState &net() noexcept { return net_; }
    XdpStamps stamps() noexcept // of received frames
    {
        return nic_.visit([](auto &nic) { return nic.stamps(); });
    }
    // What reads their clock, where it is the device's. Thread-safe.
    DeviceTimes &device_times() noexcept { return times_; }
    // Interrupts of received frames are held back until there are so many, or for so many microseconds. 0 or negative
    // errno.
    int moderate(std::uint16_t frames, std::uint16_t microseconds) noexcept
    {
        return nic_.visit([=](auto &nic) { return nic.moderate(frames, microseconds); });
    }
    // Of received frames: how often they were asked for, before a sleep, and how often one was seen. 0; -EOPNOTSUPP:
    // the kernel has them.
    int tell_interrupts(std::uint64_t &asked, std::uint64_t &received) noexcept
    {
        return nic_.visit([&](auto &nic) { return nic.tell_interrupts(asked, received); });
    }
    ibv_pd *protection_domain() noexcept // nullptr: of AF_XDP
    {
        return nic_.visit([](auto &nic) { return nic.protection_domain(); });
    }
    bool has_raw_packets() const noexcept { return nic_.is_raw(); }
    unsigned interface() const noexcept { return nic_.interface(); } // its index

    // What the NIC and its stack count; and adds what the kernel does, thread-safe, with a system call a queue.
    void tell(fi_vma_port_counters &counters) noexcept;
    void ask_kernel(fi_vma_port_counters &counters) noexcept;

    // Who lends a part of a frame that is being taken; nullptr: nobody.
    LentFrames *lender_of(const std::uint8_t *data, std::size_t length) noexcept;
    // Who lends what streams have received (inet::Tcp::lend); nullptr: no memory, nothing is lent.
    BlockLender *stream_lender() noexcept;

    // Takes what has come, lets time pass, sends what there is to send. True: there was something. No system call where
    // there is nothing to send and nothing has changed, but for one look at netlink, and at a NIC's events, a
    // millisecond.
    bool turn() noexcept;
    // All that has come so far, the frames that `taker` does not want to the stack.
    void sort(inet::Nanos now, FrameTaker &taker) noexcept;
    // Sends what there is to send. False: the device takes no more now, turn() goes on.
    bool send(inet::Nanos now) noexcept;
    // Likewise, after write_datagram(): the clock is only read if there is more than that.
    bool send_datagrams() noexcept;
    // When turn() last looked at the clock: some ms ago, or where nobody polls, as long as the caller lets pass between
    // turns.
    inet::Nanos recent() const noexcept { return recent_; }

    // One datagram, in as many frames as its path asks for; they leave with the next send(). 0; -EAGAIN: too few frames
    // are free now; -EMSGSIZE: it takes more than kMostFragments. Nothing is written then. The first of `parts` is the
    // header's, and is written here; the rest is the data.
    [[nodiscard]] int write_datagram(inet::Nanos now, inet::NextHopIndex next_hop, const inet::IpOut &ip,
                                     inet::UdpPorts ports, std::span<inet::Bytes> parts) noexcept;
    static constexpr std::size_t kMostFragments = 64;

    // Readable when turn() has something to do; for the stack's timers and a NIC's raw packets only after arm().
    int wait_fd() const noexcept { return wait_set_.get(); }
    int service_fd() noexcept // as the NIC's wait_fd()
    {
        return nic_.visit([](const auto &nic) { return nic.wait_fd(); });
    }
    void serve() noexcept
    {
        nic_.visit([](auto &nic) { nic.follow(); });
    }
    [[nodiscard]] bool watch_too(int fd) noexcept; // as long as it is open
    // Before a sleep that ends at `latest` at the latest. False: there is something to do at once.
    bool arm(inet::Nanos latest = inet::kNever) noexcept;
    void wake_at_once() noexcept;

    // Peers to which another NIC leads by now, since the last call. One to which none leads is waited for, as in the
    // kernel.
    std::vector<inet::IpAddress> take_lost_peers() noexcept { return std::exchange(lost_peers_, {}); }
    bool has_lost_peers() const noexcept { return !lost_peers_.empty(); }

    // The route that a packet to `remote` would take. 0, or what connect() of the kernel would say: -ENETUNREACH,
    // -EHOSTUNREACH and their like; -ENODEV: it leaves by another NIC, or not at all. `source` may be any address.
    [[nodiscard]] int find_route(const inet::IpAddress &remote, const inet::IpAddress &source, Route &route) noexcept;

    // The next hop to a group is ready afterwards if the kernel would send to it by this interface at all.
    void find_group_next_hop(inet::Nanos now, const inet::IpAddress &group) noexcept { find_next_hop(now, group); }

private:
    void tell_blocks(fi_vma_port_counters &counters) const noexcept;
    int open_all(const char *interface, const inet::TcpLimits &limits, const NicOptions &nic) noexcept;
    void open_times(const char *interface) noexcept;
    int open_wait_set() noexcept;
    inet::FrameInfo describe(const ReceivedFrame &frame, bool partial_sums) const noexcept;
    template <typename Takes>
    void take(inet::Nanos now, std::span<const ReceivedFrame> frames, bool partial_sums, Takes takes) noexcept;
    template <typename Clock> bool receive(Clock clock, FrameTaker *taker = nullptr) noexcept;
    bool needs_no_time() noexcept; // nothing has come; counts how often in turn
    bool follow_net(inet::Nanos now) noexcept;
    bool set_timer(inet::Nanos when) noexcept;
    void clear_timer() noexcept;
    void forget_next_hops() noexcept;
    void follow_next_hops(inet::Nanos now) noexcept;
    void note_answer(inet::Nanos now, const inet::IpAddress &remote, NeighbourState state) noexcept;
    bool find_mac(inet::Nanos now, const Route &route, const inet::IpAddress &remote, inet::Mac &mac) noexcept;
    bool find_next_hop(inet::Nanos now, const inet::IpAddress &remote) noexcept; // false: it leads by another NIC
    void name_addresses() noexcept;

    NetState net_;
    Nic nic_;
    DeviceTimes times_;
    std::unique_ptr<inet::Stack> stack_;
    BlockLender::Owned stream_lender_; // since it was asked for
    core::UniqueFd wait_set_;          // epoll
    core::UniqueFd timer_;             // timerfd
    std::size_t longest_frame_ = 0;    // bytes, of the link; the kernel may hand over longer ones
    std::size_t most_at_once_ = 0;     // frames of a burst
    std::uint64_t send_shortage_ = 0;  // times that no frame to send was free
    inet::Nanos armed_ = inet::kNever;
    inet::Nanos next_look_ = 0; // at netlink
    inet::Nanos recent_ = 0;
    unsigned timeless_ = 0; // turns without a look at the clock
    std::uint64_t generation_ = 0;
    std::uint64_t neighbour_generation_ = 0;
    std::vector<inet::IpAddress> next_hops_; // peers whose link addresses are being found out, or followed
    struct Asked {
        inet::IpAddress remote;
        inet::Nanos at;
    };
    std::vector<Asked> asked_; // those of them whose neighbours are being asked after
    std::vector<inet::IpAddress> lost_peers_;
    std::vector<inet::IpAddress> named_; // to the steering program
};

} // namespace vma::ether
