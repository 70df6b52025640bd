// SPDX-License-Identifier: BSD-2-Clause
#include "ether/net_if.hpp"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/clock.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "ofi/libfabric.hpp"

namespace vma::ether {
namespace {

constexpr std::size_t kBurst = 32;     // frames of one queue before it is another's turn
constexpr int kMostTurns = 256;        // of sort(): other flows go on
constexpr unsigned kTimelessTurns = 8; // in turn without a look at the clock: nothing has come, and no timer runs
constexpr std::size_t kMostNextHops = NetState::kMaxNeighbours / 2; // more would push each other's neighbours out

constexpr std::uint32_t kUsualGroStreams = 32;
constexpr std::uint32_t kMostGroStreams = 2147483647; // more than a burst has frames are never needed

// The process's, without a lock: exchange() lets one thread warn.
constinit std::atomic<bool> g_warned{false};

bool fill_random(inet::HashKey &key) noexcept
{
    return ::getrandom(&key, sizeof key, 0) == sizeof key;
}

} // namespace

inet::Nanos now_ns() noexcept
{
    return core::monotonic_ns();
}

std::uint32_t configured_gro_streams() noexcept
{
    const char *const text = ofi::param(ofi::Param::gro_streams_max);
    if (text == nullptr)
        return kUsualGroStreams;
    std::uint32_t value = 0;
    if (core::parse_number(text, kMostGroStreams, value))
        return value;
    if (!g_warned.exchange(true, std::memory_order_relaxed))
        VMA_WARN(domain, "FI_VMA_GRO_STREAMS_MAX is \"%s\", expected a number from 0 to %u: %u is taken", text,
                 kMostGroStreams, kUsualGroStreams);
    return kUsualGroStreams;
}

int NetIf::open(const char *interface, const inet::TcpLimits &limits, std::unique_ptr<NetIf> &opened,
                const NicOptions &nic) noexcept
{
    std::unique_ptr<NetIf> net_if(new (std::nothrow) NetIf);
    if (!net_if)
        return -ENOMEM;
    if (const int error = net_if->open_all(interface, limits, nic)) {
        VMA_WARN(core, "%s can't be used without the kernel: %s", interface, std::strerror(-error));
        return error;
    }
    opened = std::move(net_if);
    return 0;
}

int NetIf::open_all(const char *interface, const inet::TcpLimits &limits, const NicOptions &nic) noexcept
{
    int error = NetState::open(net_);
    if (error != 0)
        return error;
    const Link *const link = net_.link(std::string_view(interface));
    if (link == nullptr)
        return -ENODEV;
    if ((error = Nic::open(interface, nic, nic_)) != 0)
        return error;
    if (stamps() == XdpStamps::kHardware)
        open_times(interface);
    inet::StackOptions stack;
    stack.mac = link->mac;
    stack.mtu = static_cast<std::uint16_t>(std::min(link->mtu, 65535U));
    stack.tcp = limits;
    longest_frame_ = inet::kMaxEthernetHeader + stack.mtu;
    if (!fill_random(stack.secret))
        return -errno;
    stack_.reset(new (std::nothrow) inet::Stack(stack, now_ns()));
    if (!stack_)
        return -ENOMEM;
    stack_->set_offloads(nic_.visit([](const auto &device) { return device.offloads(); }));
    name_addresses();
    generation_ = net_.generation();
    neighbour_generation_ = net_.neighbour_generation();
    return open_wait_set();
}

void NetIf::open_times(const char *interface) noexcept
{
    nic_.visit([this, interface](auto &nic) {
        const auto &queue = nic.queues().front();
        if constexpr (requires { queue.clock(); })
            times_.open(interface, queue.context(), queue.clock());
        else
            times_.open(interface, nullptr, {});
    });
}

int NetIf::open_wait_set() noexcept
{
    timer_ = core::make_fd([] { return core::kernel::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); });
    wait_set_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    if (!timer_ || !wait_set_ || !core::watch_fd(wait_set_.get(), timer_.get()) ||
        !core::watch_fd(wait_set_.get(), net_.fd()))
        return -errno;
    return nic_.visit([this](auto &nic) {
        for (const auto &queue : nic.queues()) {
            if (!core::watch_fd(wait_set_.get(), queue.fd()))
                return -errno;
        }
        const int more = nic.wait_fd();
        return more < 0 || core::watch_fd(wait_set_.get(), more) ? 0 : -errno;
    });
}

// ---- frames --------------------------------------------------------------------------------------------------------

inet::FrameInfo NetIf::describe(const ReceivedFrame &frame, bool partial_sums) const noexcept
{
    inet::FrameInfo info{frame.checksums_good, frame.stamps.arrived, frame.stamps.hardware};
    if (partial_sums)
        info.partial_sums = frame.bytes.size() > longest_frame_ ? inet::PartialSums::kTcp : inet::PartialSums::kAny;
    return info;
}

template <typename Takes>
void NetIf::take(inet::Nanos now, std::span<const ReceivedFrame> frames, bool partial_sums, Takes takes) noexcept
{
    const bool alone = frames.size() == 1; // nothing to merge it with
    for (const ReceivedFrame &frame : frames) {
        const inet::FrameInfo info = describe(frame, partial_sums);
        if (!takes(frame, info))
            continue;
        if (alone)
            stack_->input(now, frame.bytes, info);
        else
            stack_->gather(now, frame.bytes, info);
    }
    stack_->flush(now);
}

template <typename Clock> bool NetIf::receive(Clock clock, FrameTaker *taker) noexcept
{
    return nic_.visit([=, this](auto &nic) {
        bool any = false;
        const bool partial_sums = nic.has_partial_sums();
        for (auto &queue : nic.queues()) {
            std::array<ReceivedFrame, kBurst> burst;
            const std::span<const ReceivedFrame> frames = std::span(burst).first(queue.receive(burst));
            if (frames.empty()) {
                queue.drive();
                continue;
            }
            any = true;
            take(clock(), frames, partial_sums, [&nic, taker](const ReceivedFrame &frame, const inet::FrameInfo &info) {
                return nic.takes(frame.bytes) && (taker == nullptr || !taker->take(frame.bytes, info));
            });
            for (const ReceivedFrame &frame : frames)
                queue.release(frame.index);
            if (frames.size() > most_at_once_) [[unlikely]]
                most_at_once_ = frames.size();
        }
        return any;
    });
}

void NetIf::sort(inet::Nanos now, FrameTaker &taker) noexcept
{
    for (int i = 0; i < kMostTurns && receive([now] { return now; }, &taker); ++i) {
    }
}

bool NetIf::needs_no_time() noexcept
{
    if (timeless_ == kTimelessTurns || armed_ != inet::kNever || stack_->deadline() != inet::kNever ||
        stack_->wants_output() || stack_->wants_next_hops()) {
        timeless_ = 0;
        return false;
    }
    ++timeless_;
    return true;
}

bool NetIf::turn() noexcept
{
    tcp().collect();
    inet::Nanos read = 0; // once a turn, and only where it is asked for
    const auto clock = [&read] { return read != 0 ? read : read = now_ns(); };
    bool any = receive(clock);
    if (!any && needs_no_time())
        return false;
    const inet::Nanos now = recent_ = clock();
    if (armed_ <= now)
        clear_timer();
    if (stack_->deadline() <= now) {
        stack_->advance(now);
        any = true;
    }
    if (now >= next_look_)
        any = follow_net(now) || any;
    inet::IpAddress remote;
    while (stack_->next_wanted(remote)) {
        if (std::find(next_hops_.begin(), next_hops_.end(), remote) == next_hops_.end()) {
            if (next_hops_.size() >= kMostNextHops)
                forget_next_hops();
            next_hops_.push_back(remote);
        }
        find_next_hop(now, remote);
    }
    const bool wants = stack_->wants_output();
    if (wants)
        send(now);
    return any || wants;
}

LentFrames *NetIf::lender_of(const std::uint8_t *data, std::size_t length) noexcept
{
    return nic_.visit([=](auto &nic) {
        LentFrames *found = nullptr;
        for (auto &queue : nic.queues())
            found = found != nullptr ? found : queue.lender_of(data, length);
        return found;
    });
}

BlockLender *NetIf::stream_lender() noexcept
{
    if (!stream_lender_)
        stream_lender_ = BlockLender::make(tcp().arena());
    return stream_lender_.get();
}

bool NetIf::send(inet::Nanos now) noexcept
{
    return nic_.visit([this, now](auto &nic) {
        auto &queue = nic.queues().front();
        bool taken = true;
        while (taken && stack_->wants_output()) {
            const FrameIndex frame = queue.take();
            if (frame == kNoFrame) {
                ++send_shortage_;
                taken = false;
                break;
            }
            inet::FrameWork work;
            const std::size_t length = stack_->output(now, queue.bytes(frame), work);
            taken = length != 0 && queue.submit(frame, static_cast<std::uint32_t>(length), work);
            if (!taken)
                queue.release(frame);
        }
        return queue.flush() != -EAGAIN && taken;
    });
}

bool NetIf::send_datagrams() noexcept
{
    if (stack_->wants_output()) [[unlikely]]
        return send(now_ns());
    return nic_.visit([](auto &nic) { return nic.queues().front().flush() != -EAGAIN; });
}

int NetIf::write_datagram(inet::Nanos now, inet::NextHopIndex next_hop, const inet::IpOut &ip, inet::UdpPorts ports,
                          std::span<inet::Bytes> parts) noexcept
{
    std::array<std::uint8_t, inet::kUdpHeader> header{};
    parts.front() = header;
    inet::Fragmenter fragments = stack_->datagram(now, next_hop, ip, parts);
    inet::FrameWork work;
    header = stack_->datagram_header(fragments, ip, ports, parts.subspan(1), work);
    const std::size_t count = fragments.frames();
    std::array<FrameIndex, kMostFragments> frames;
    if (count > frames.size())
        return -EMSGSIZE;
    const bool written = nic_.visit([&](auto &nic) {
        auto &queue = nic.queues().front();
        std::size_t taken = 0;
        while (taken < count && (frames[taken] = queue.take()) != kNoFrame)
            ++taken;
        bool whole = taken == count;
        for (std::size_t i = 0; i < taken; ++i) {
            const std::size_t length = whole ? fragments.next(queue.bytes(frames[i]).data()) : 0;
            whole = whole && queue.submit(frames[i], static_cast<std::uint32_t>(length), work);
            if (!whole)
                queue.release(frames[i]);
        }
        return whole;
    });
    if (!written)
        ++send_shortage_;
    return written ? 0 : -EAGAIN;
}

void NetIf::tell(fi_vma_port_counters &counters) noexcept
{
    counters = {};
    counters.most_at_once = most_at_once_;
    counters.send_shortage = send_shortage_;
    nic_.visit([&counters](auto &nic) {
        for (const auto &queue : nic.queues()) {
            const QueueState state = queue.state();
            counters.dropped += state.dropped;
            counters.waiting += state.waiting;
            counters.frames += state.frames;
            counters.frames_free += state.free;
            counters.frames_lent += state.lent;
            counters.send_frames += state.send_frames;
            counters.send_free += state.send_free;
        }
    });
    tell_blocks(counters);
}

void NetIf::ask_kernel(fi_vma_port_counters &counters) noexcept
{
    QueueState counted;
    nic_.visit([&counted](auto &nic) {
        for (const auto &queue : nic.queues())
            queue.ask_kernel(counted);
    });
    counters.dropped += counted.dropped;
    counters.shortage += counted.no_frame;
}

void NetIf::tell_blocks(fi_vma_port_counters &counters) const noexcept
{
    const inet::BlockPool &blocks = stack_->tcp().blocks();
    counters.blocks = blocks.total();
    counters.blocks_free = blocks.available();
    counters.block_shortage = stack_->tcp().counters().no_memory;
}

bool NetIf::watch_too(int fd) noexcept
{
    return core::watch_fd(wait_set_.get(), fd);
}

bool NetIf::arm(inet::Nanos latest) noexcept
{
    const inet::Nanos deadline = std::min(stack_->deadline(), latest);
    const bool quiet = nic_.visit([](auto &nic) { return nic.arm(); });
    return quiet && !stack_->wants_output() && deadline > now_ns() && set_timer(deadline);
}

void NetIf::wake_at_once() noexcept
{
    static_cast<void>(set_timer(1));
}

bool NetIf::set_timer(inet::Nanos when) noexcept
{
    if (when == armed_)
        return true;
    itimerspec at{};
    if (when != inet::kNever) {
        at.it_value.tv_sec = static_cast<time_t>(when / inet::kSecond);
        at.it_value.tv_nsec = static_cast<long>(when % inet::kSecond);
    }
    if (core::kernel::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr) != 0)
        return false;
    armed_ = when;
    return true;
}

void NetIf::clear_timer() noexcept // it has rung
{
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t done = core::kernel::read(timer_.get(), &count, sizeof count);
    armed_ = inet::kNever;
}

} // namespace vma::ether
