// SPDX-License-Identifier: BSD-2-Clause
// Opening an AF_XDP socket: its memory, its rings, and the queue it is bound to.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ether/nic/frame_memory.hpp"
#include "ether/xdp/metadata.hpp"
#include "ether/xdp/socket.hpp"
#include "ofi/libfabric.hpp"

#ifndef XDP_USE_SG // Linux 6.6
#define XDP_USE_SG (1 << 4)
#endif

namespace vma::ether {
namespace {

constexpr std::size_t kHugePage = 2 << 20;
constexpr long kRetryNsec = 1'000'000;
constexpr int kRetries = 100;
constexpr std::uint32_t kMinFrames = 64;
constexpr std::uint32_t kMaxFrames = 1 << 20;
constexpr std::uint32_t kMostBuffers = 17; // of a frame to send: 64 KiB and its headers. The kernel takes 18

bool is_ring_size(std::uint32_t frames)
{
    return std::has_single_bit(frames) && frames >= kMinFrames && frames <= kMaxFrames;
}

template <typename T> int set(int fd, int level, int option, const T &value)
{
    return core::kernel::setsockopt(fd, level, option, &value, sizeof value) == 0 ? 0 : -errno;
}

template <typename Entry>
int map_ring(int fd, std::uint64_t where, const xdp_ring_offset &at, std::uint32_t size, MemoryMap &memory,
             XdpRing<Entry> &ring)
{
    const std::size_t bytes = at.desc + size * sizeof(Entry);
    memory = {::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(where)),
              bytes};
    if (!memory)
        return -errno;
    // A child's mapping would keep the socket, and so the queue, after our end.
    ::madvise(memory.data(), bytes, MADV_DONTFORK);
    const auto word = [&](std::uint64_t offset) { return reinterpret_cast<std::uint32_t *>(memory.data() + offset); };
    ring = {word(at.producer), word(at.consumer), word(at.flags), reinterpret_cast<Entry *>(memory.data() + at.desc),
            size};
    return 0;
}

} // namespace

int XdpSocket::open(unsigned interface, unsigned queue, const XdpSocketOptions &options, XdpSocket &opened) noexcept
{
    if (!is_ring_size(options.receive_frames) || !is_ring_size(options.send_frames) ||
        (options.frame_size != 2048 && options.frame_size != 4096))
        return -EINVAL;
    XdpSocket made;
    made.queue_ = queue;
    if (const int status = made.set_up(options); status != 0)
        return status;
    int status = made.bind(interface, options);
    // The kernel lets go of a queue some milliseconds after its socket is closed, or its process killed.
    for (int i = 0; i < kRetries && status == -EBUSY; ++i) {
        const timespec pause{0, kRetryNsec};
        core::kernel::nanosleep(&pause, nullptr);
        status = made.bind(interface, options);
    }
    if (status == 0 && made.several_)
        status = made.gatherer_.open();
    if (status != 0)
        return status;
    if (options.busy_poll_usec != 0 && made.set_busy_polling(options) != 0)
        VMA_WARN(domain, "no busy polling of interface %u, queue %u: this kernel has none", interface, queue);
    opened = std::move(made);
    return 0;
}

int XdpSocket::set_up(const XdpSocketOptions &options) noexcept
{
    fd_ = core::make_fd([] { return core::kernel::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0); });
    if (!fd_)
        return -errno;
    frame_size_ = options.frame_size;
    send_frames_ = options.send_frames;
    if (options.several_buffers)
        send_buffers_ = std::clamp((options.longest_sent + frame_size_ - 1) / frame_size_, 1u, kMostBuffers);
    // Fewer frames where each is long: no more than twice the memory.
    while (send_frames_ > kMinFrames && send_frames_ * send_buffers_ > 2 * options.send_frames)
        send_frames_ /= 2;
    if (const int status = map_frames(options); status != 0)
        return status;
    if (const int status = map_rings(options); status != 0)
        return status;

    received_at_ = std::make_unique<std::uint16_t[]>(options.receive_frames);
    lent_ = LentFrames::make(frames_.data(), frame_size_, options.receive_frames);
    for (FrameIndex i = 0; i < options.receive_frames; ++i)
        release(i);
    refill();
    free_ = std::make_unique<FrameIndex[]>(send_frames_);
    for (FrameIndex i = 0; i < send_frames_; ++i) // the lowest is taken first
        release(options.receive_frames + (send_frames_ - 1 - i) * send_buffers_);
    unsent_ = std::make_unique<std::uint8_t[]>(options.receive_frames + std::size_t{send_frames_} * send_buffers_);
    return 0;
}

namespace {

// FI_VMA_HUGE_PAGES.
enum class Pages { kHuge, kHugeIfThere, kLargeIfLiked, kSmall };

Pages wanted_pages() noexcept
{
    const char *const text = ofi::param(ofi::Param::huge_pages);
    if (text == nullptr || std::strcmp(text, "auto") == 0)
        return Pages::kHugeIfThere;
    if (std::strcmp(text, "yes") == 0)
        return Pages::kHuge;
    if (std::strcmp(text, "no") == 0)
        return Pages::kLargeIfLiked;
    if (std::strcmp(text, "never") == 0)
        return Pages::kSmall;
    VMA_WARN(fabric, "FI_VMA_HUGE_PAGES=%s is not valid (expected auto, yes, no or never): using auto", text);
    return Pages::kHugeIfThere;
}

void warn_about_pages(std::size_t bytes, int error) noexcept
{
    VMA_WARN(fabric,
             "no immediate action needed: not enough huge pages for %zu bytes of frames (%s); going on with ordinary "
             "ones. Those that there are: grep Huge /proc/meminfo; more: sysctl vm.nr_hugepages",
             bytes, std::strerror(error));
}

} // namespace

int XdpSocket::map_frames(const XdpSocketOptions &options) noexcept
{
    const Pages pages = wanted_pages();
    const std::size_t used = (options.receive_frames + std::size_t{send_frames_} * send_buffers_) * frame_size_;
    const std::size_t whole = (used + kHugePage - 1) / kHugePage * kHugePage;
    const bool send_metadata =
        options.offloads && send_buffers_ == 1 && options.longest_sent + sizeof(XdpSendMetadata) <= frame_size_;
    frames_ = program_memory(used);
    int status = frames_ ? register_frames(used, send_metadata) : 0;
    if (frames_ && status == 0)
        return 0;
    for (const bool huge : {true, false}) {
        if (huge && pages != Pages::kHuge && pages != Pages::kHugeIfThere)
            continue;
        if (!huge && pages == Pages::kHuge)
            warn_about_pages(whole, -status);
        constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
        const int flags = huge ? kFlags | MAP_HUGETLB : kFlags;
        frames_ = {::mmap(nullptr, whole, PROT_READ | PROT_WRITE, flags, -1, 0), whole};
        if (!frames_) {
            status = -errno;
            continue;
        }
        if (!huge && pages != Pages::kSmall)
            ::madvise(frames_.data(), whole, MADV_HUGEPAGE); // where the kernel likes
        // The kernel holds these very pages: fork() must not make us write to copies of them.
        ::madvise(frames_.data(), whole, MADV_DONTFORK);
        // Takes all pages: a control group may not give huge ones. Further buffers of a frame would need a gap before
        // them.
        status = register_frames(used, send_metadata);
        if (status == 0)
            break;
    }
    return status;
}

// A kernel that doesn't know metadata refuses its flag, and gets memory without.
int XdpSocket::register_frames(std::size_t bytes, bool offloads) noexcept
{
    XdpMemory memory;
    memory.address = reinterpret_cast<std::uintptr_t>(frames_.data());
    memory.length = bytes;
    memory.buffer_size = frame_size_;
    int status = -EINVAL;
    if (offloads) {
        memory.flags = kXdpMemoryHasSendMetadata;
        memory.send_metadata = sizeof(XdpSendMetadata);
        status = set(fd_.get(), SOL_XDP, XDP_UMEM_REG, memory);
    }
    send_offset_ = status == 0 ? memory.send_metadata : 0;
    if (status != -EINVAL)
        return status;
    memory.flags = memory.send_metadata = 0;
    return set(fd_.get(), SOL_XDP, XDP_UMEM_REG, memory);
}

int XdpSocket::map_rings(const XdpSocketOptions &options) noexcept
{
    const int fd = fd_.get();
    const std::uint32_t to_send = std::bit_ceil(send_frames_ * send_buffers_);
    const struct {
        int option;
        std::uint32_t size;
    } rings[] = {{XDP_UMEM_FILL_RING, options.receive_frames},
                 {XDP_UMEM_COMPLETION_RING, to_send},
                 {XDP_RX_RING, options.receive_frames},
                 {XDP_TX_RING, to_send}};
    for (const auto &ring : rings) {
        if (const int status = set(fd, SOL_XDP, ring.option, ring.size); status != 0)
            return status;
    }
    xdp_mmap_offsets at{};
    socklen_t size = sizeof at;
    if (core::kernel::getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size) != 0)
        return -errno;
    if (size != sizeof at) // Linux before 5.4, whose rings have no flags
        return -EOPNOTSUPP;
    int status = map_ring(fd, XDP_UMEM_PGOFF_FILL_RING, at.fr, options.receive_frames, ring_memory_[0], fill_);
    if (status == 0)
        status = map_ring(fd, XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, to_send, ring_memory_[1], completed_);
    if (status == 0)
        status = map_ring(fd, XDP_PGOFF_RX_RING, at.rx, options.receive_frames, ring_memory_[2], received_);
    if (status == 0)
        status = map_ring(fd, XDP_PGOFF_TX_RING, at.tx, to_send, ring_memory_[3], queued_);
    return status;
}

// Without a copy, if the driver can; with frames of several buffers, if it and the kernel can. Where both don't go
// together, those that need the latter get it.
int XdpSocket::bind(unsigned interface, const XdpSocketOptions &options) noexcept
{
    sockaddr_xdp address{};
    address.sxdp_family = AF_XDP;
    address.sxdp_ifindex = interface;
    address.sxdp_queue_id = queue_;
    int status = -EINVAL;
    for (const int flags : {XDP_ZEROCOPY | XDP_USE_SG, XDP_ZEROCOPY, XDP_COPY | XDP_USE_SG, int{XDP_COPY}}) {
        const bool zero_copy = (flags & XDP_ZEROCOPY) != 0;
        const bool several = (flags & XDP_USE_SG) != 0;
        if ((zero_copy && !options.zero_copy) || (several && !options.several_buffers) ||
            (zero_copy && !several && options.longest_sent > buffer_room()))
            continue;
        address.sxdp_flags = static_cast<std::uint16_t>(flags | XDP_USE_NEED_WAKEUP);
        status = core::kernel::bind(fd_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0
                     ? 0
                     : -errno;
        if (status == 0 || status == -EBUSY) {
            zero_copy_ = zero_copy;
            several_ = several;
            return status;
        }
    }
    return status;
}

int XdpSocket::set_busy_polling(const XdpSocketOptions &options) noexcept
{
    int status = set(fd_.get(), SOL_SOCKET, SO_PREFER_BUSY_POLL, int{1});
    if (status == 0)
        status = set(fd_.get(), SOL_SOCKET, SO_BUSY_POLL, static_cast<int>(options.busy_poll_usec));
    if (status == 0)
        status = set(fd_.get(), SOL_SOCKET, SO_BUSY_POLL_BUDGET, static_cast<int>(options.busy_poll_budget));
    busy_polling_ = status == 0;
    return status;
}

} // namespace vma::ether
