// SPDX-License-Identifier: BSD-2-Clause
// Makes the sockets of a queue: the first registers the frames and has the fill and completion rings, the others are
// bound beside it (XDP_SHARED_UMEM) by the processes that take their places.
#include "ether/xdp/queue_parts.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ether/nic/frame_memory.hpp"
#include "ether/xdp/metadata.hpp"
#include "ether/xdp/release_wait.hpp"
#include "ofi/libfabric.hpp"

#ifndef XDP_USE_SG // Linux 6.6
#define XDP_USE_SG (1 << 4)
#endif

namespace vma::ether {
namespace {

constexpr std::size_t kHugePage = 2 << 20;
constexpr std::uint32_t kMinFrames = 64;
constexpr std::uint32_t kMaxFrames = 1 << 20;
constexpr std::uint32_t kMostBuffers = 17;  // of a frame to send: 64 KiB and its headers. The kernel takes 18
constexpr std::uint32_t kSharedRing = 512;  // entries of a place's receive ring, where there are several
constexpr std::uint32_t kSharedFill = 2048; // frames that the kernel has to receive into at a time
constexpr std::uint32_t kInHand = 64;       // frames that a process holds while it looks at them, or to send soon

bool is_ring_size(std::uint32_t frames)
{
    return std::has_single_bit(frames) && frames >= kMinFrames && frames <= kMaxFrames;
}

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
             "NO IMMEDIATE ACTION NEEDED! Not enough hugepage resources for VMA memory allocation: %zu bytes of frames "
             "(%s); VMA will continue working with regular memory allocation. Those that there are: grep Huge "
             "/proc/meminfo; more: sysctl vm.nr_hugepages",
             bytes, std::strerror(error));
}

sockaddr_xdp address_of(unsigned interface, unsigned queue, int flags) noexcept
{
    sockaddr_xdp address{};
    address.sxdp_family = AF_XDP;
    address.sxdp_ifindex = interface;
    address.sxdp_queue_id = queue;
    address.sxdp_flags = static_cast<std::uint16_t>(flags);
    return address;
}

int bind_to(const sockaddr_xdp &address, int fd) noexcept
{
    return core::kernel::bind(fd, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0 ? 0 : -errno;
}

class Maker
{
public:
    Maker(unsigned interface, const XdpSocketOptions &options, QueueParts &parts)
        : interface_(interface), options_(options), parts_(parts), facts_(parts.facts)
    {
    }

    int make() noexcept
    {
        if (const int status = make_first(); status != 0)
            return status;
        for (unsigned place = 1; place < options_.places; ++place) {
            if (const int status = make_further(); status != 0)
                return status;
        }
        parts_.fresh = true;
        return 0;
    }

private:
    int first() const noexcept { return parts_.sockets.front().get(); }
    bool is_shared() const noexcept { return options_.places > 1; }

    int add_socket() noexcept
    {
        core::UniqueFd made = core::make_fd([] { return core::kernel::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0); });
        if (!made)
            return -errno;
        parts_.sockets.push_back(std::move(made));
        return 0;
    }

    int make_first() noexcept
    {
        if (const int status = add_socket(); status != 0)
            return status;
        if (const int status = map_frames(); status != 0)
            return status;
        int status = set_option(first(), SOL_XDP, XDP_UMEM_FILL_RING, facts_.fill_ring);
        if (status == 0)
            status = set_option(first(), SOL_XDP, XDP_UMEM_COMPLETION_RING, facts_.completion_ring);
        if (status == 0)
            status = set_rings(first());
        if (status == 0)
            status = bind_first();
        for (ReleaseWait wait(interface_); status == -EBUSY && wait.next();)
            status = bind_first();
        return status;
    }

    int make_further() noexcept
    {
        if (const int status = add_socket(); status != 0)
            return status;
        return set_rings(parts_.sockets.back().get());
    }

    int set_rings(int fd) const noexcept
    {
        const int status = set_option(fd, SOL_XDP, XDP_RX_RING, facts_.receive_ring);
        return status != 0 ? status : set_option(fd, SOL_XDP, XDP_TX_RING, facts_.send_ring);
    }

    // Without a copy, if the driver can; with frames of several buffers, if it and the kernel can. Where both don't go
    // together, those that need the latter get it.
    int bind_first() noexcept
    {
        int status = -EINVAL;
        for (const int flags : {XDP_ZEROCOPY | XDP_USE_SG, XDP_ZEROCOPY, XDP_COPY | XDP_USE_SG, int{XDP_COPY}}) {
            const bool zero_copy = (flags & XDP_ZEROCOPY) != 0;
            const bool several = (flags & XDP_USE_SG) != 0;
            if ((zero_copy && !options_.zero_copy) || (several && !options_.several_buffers) ||
                (zero_copy && !several && options_.longest_sent > facts_.size.frame_size - kXdpHeadroom))
                continue;
            status = bind_to(address_of(interface_, facts_.queue, flags | XDP_USE_NEED_WAKEUP), first());
            if (status == 0 || status == -EBUSY) {
                facts_.zero_copy = zero_copy;
                facts_.several = several;
                return status;
            }
        }
        return status;
    }

    int map_frames() noexcept
    {
        const Pages pages = wanted_pages();
        const std::size_t used = facts_.bytes();
        const std::size_t whole = (used + kHugePage - 1) / kHugePage * kHugePage;
        if (!is_shared())
            parts_.frames = program_memory(used);
        int status = parts_.frames ? register_frames(used) : 0;
        if (parts_.frames && status == 0)
            return 0;
        for (const bool huge : {true, false}) {
            if (huge && pages != Pages::kHuge && pages != Pages::kHugeIfThere)
                continue;
            if (!huge && pages == Pages::kHuge)
                warn_about_pages(whole, -status);
            if ((status = map_pages(whole, huge)) != 0)
                continue;
            if (!huge && pages != Pages::kSmall)
                ::madvise(parts_.frames.data(), whole, MADV_HUGEPAGE); // where the kernel likes
            // The kernel holds these very pages: fork() must not make us write to copies of them.
            ::madvise(parts_.frames.data(), whole, MADV_DONTFORK);
            // Takes all pages: a control group may not give huge ones. Further buffers of a frame would need a gap
            // before them.
            if ((status = register_frames(used)) == 0)
                break;
        }
        return status;
    }

    // Memory that others can map is a memfd's.
    int map_pages(std::size_t bytes, bool huge) noexcept
    {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | (huge ? MAP_HUGETLB : 0);
        if (is_shared()) {
            parts_.memory = core::make_memory("vma-frames", bytes, huge ? MFD_HUGETLB : 0);
            if (!parts_.memory)
                return -errno;
            flags = MAP_SHARED;
        }
        const int fd = parts_.memory ? parts_.memory.get() : -1;
        parts_.frames = {::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0), bytes};
        return parts_.frames ? 0 : -errno;
    }

    // A kernel that doesn't know metadata refuses its flag, and gets memory without.
    int register_frames(std::size_t bytes) noexcept
    {
        const bool offloads = options_.offloads && facts_.size.send_buffers == 1 &&
                              options_.longest_sent + sizeof(XdpSendMetadata) <= facts_.size.frame_size;
        XdpMemory memory;
        memory.address = reinterpret_cast<std::uintptr_t>(parts_.frames.data());
        memory.length = bytes;
        memory.buffer_size = facts_.size.frame_size;
        int status = -EINVAL;
        if (offloads) {
            memory.flags = kXdpMemoryHasSendMetadata;
            memory.send_metadata = sizeof(XdpSendMetadata);
            status = set_option(first(), SOL_XDP, XDP_UMEM_REG, memory);
        }
        facts_.send_offset = status == 0 ? memory.send_metadata : 0;
        if (status != -EINVAL)
            return status;
        memory.flags = memory.send_metadata = 0;
        return set_option(first(), SOL_XDP, XDP_UMEM_REG, memory);
    }

    const unsigned interface_;
    const XdpSocketOptions &options_;
    QueueParts &parts_;
    QueueFacts &facts_;
};

template <typename Entry>
int map_ring(int fd, std::uint64_t where, const xdp_ring_offset &at, std::uint32_t size, MemoryMap &memory,
             XdpRing<Entry> &ring)
{
    memory = map_shared_memory(fd, at.desc + size * sizeof(Entry), where);
    if (!memory)
        return -errno;
    const auto word = [&](std::uint64_t offset) { return reinterpret_cast<std::uint32_t *>(memory.data() + offset); };
    ring = {word(at.producer), word(at.consumer), word(at.flags), reinterpret_cast<Entry *>(memory.data() + at.desc),
            size};
    return 0;
}

// Any socket of the queue has the rings that all share.
int read_offsets(int fd, xdp_mmap_offsets &at)
{
    socklen_t size = sizeof at;
    if (core::kernel::getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size) != 0)
        return -errno;
    return size == sizeof at ? 0 : -EOPNOTSUPP; // Linux before 5.4, whose rings have no flags
}

} // namespace

MemoryMap map_shared_memory(int fd, std::size_t bytes, std::uint64_t where) noexcept
{
    MemoryMap made{
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(where)),
        bytes};
    if (made)
        ::madvise(made.data(), bytes, MADV_DONTFORK);
    return made;
}

int bind_place(unsigned interface, const QueueParts &parts, unsigned place) noexcept
{
    if (place == 0)
        return 0; // its socket is the one that the others are bound beside
    sockaddr_xdp address = address_of(interface, parts.facts.queue, XDP_SHARED_UMEM);
    address.sxdp_shared_umem_fd = static_cast<std::uint32_t>(parts.sockets.front().get());
    const int status = bind_to(address, parts.sockets[place].get());
    return status == -EBUSY ? 0 : status; // it is bound: somebody has had the place before
}

int map_place(const QueueParts &parts, unsigned place, PlaceRings &mapped) noexcept
{
    const int fd = parts.sockets[place].get();
    xdp_mmap_offsets at{};
    int status = read_offsets(fd, at);
    if (status == 0)
        status = map_ring(fd, XDP_PGOFF_RX_RING, at.rx, parts.facts.receive_ring, mapped.memory[0], mapped.received);
    if (status == 0)
        status = map_ring(fd, XDP_PGOFF_TX_RING, at.tx, parts.facts.send_ring, mapped.memory[1], mapped.queued);
    return status;
}

int map_shared(const QueueParts &parts, SharedRings &mapped) noexcept
{
    const int fd = parts.sockets.front().get();
    xdp_mmap_offsets at{};
    int status = read_offsets(fd, at);
    if (status == 0)
        status = map_ring(fd, XDP_UMEM_PGOFF_FILL_RING, at.fr, parts.facts.fill_ring, mapped.memory[0], mapped.fill);
    if (status == 0)
        status = map_ring(fd, XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, parts.facts.completion_ring, mapped.memory[1],
                          mapped.completed);
    return status;
}

int plan_queue(unsigned queue, const XdpSocketOptions &options, QueueFacts &facts) noexcept
{
    if (!is_ring_size(options.receive_frames) || !is_ring_size(options.send_frames) ||
        (options.frame_size != 2048 && options.frame_size != 4096) || options.places == 0 ||
        options.places > kMostPlaces)
        return -EINVAL;
    facts.queue = queue;
    FramePoolSize &size = facts.size;
    size.frame_size = options.frame_size;
    size.send_buffers = 1;
    if (options.several_buffers)
        size.send_buffers =
            std::clamp((options.longest_sent + size.frame_size - 1) / size.frame_size, 1u, kMostBuffers);
    size.send = options.send_frames;
    // Fewer frames where each is long: no more than twice the memory.
    while (size.send > kMinFrames && size.send * size.send_buffers > 2 * options.send_frames)
        size.send /= 2;
    const bool shared = options.places > 1;
    facts.receive_ring = shared ? std::min(options.receive_frames, kSharedRing) : options.receive_frames;
    facts.lendable = options.receive_frames / 2;
    size.receive = options.receive_frames;
    facts.fill_ring = options.receive_frames;
    facts.kept = size.send;
    if (shared) {
        facts.fill_ring = std::min(options.receive_frames, kSharedFill);
        size.receive = facts.receive_ring + facts.lendable + options.places * (facts.receive_ring + kInHand);
        facts.kept = kInHand;
        size.send += options.places * kInHand;
    }
    // All frames fit both: one that is taken can be sent.
    facts.send_ring = facts.completion_ring = std::bit_ceil(size.send * size.send_buffers);
    return 0;
}

int make_queue(unsigned interface, const XdpSocketOptions &options, QueueParts &parts) noexcept
{
    if (parts.pool == nullptr) {
        const std::size_t bytes = FramePool::bytes(parts.facts.size);
        parts.own_pool = {::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes};
        if (!parts.own_pool)
            return -errno;
        parts.pool = parts.own_pool.data();
    }
    return Maker(interface, options, parts).make();
}

} // namespace vma::ether
