// SPDX-License-Identifier: BSD-2-Clause
// The XDP program of a NIC with its maps: frames of steered flows go to the AF_XDP socket of the queue they came by,
// all others to the kernel. It decides nothing else; doc/raw-ethernet.md says what it takes and what it leaves, and
// why.
#pragma once

#include <array>
#include <cstdint>

#include "core/fd.hpp"

namespace vma::ether {

struct SteeringCounters {
    std::uint64_t hits = 0;   // frames given to a socket
    std::uint64_t passes = 0; // frames that are no steered flow's
    std::uint64_t errors = 0; // frames of a steered flow that the kernel got, as their queue has no socket
};

enum class XdpMode {
    kAuto,    // native where the driver can, else generic
    kNative,  // in the driver
    kGeneric, // in the kernel's common path, behind the driver: any interface, but see doc/raw-ethernet.md
};

enum class XdpStamps {
    kNone,
    kSoftware, // FrameStamps::arrived alone
    // both. The program is one interface's, in native mode (Linux 6.3, and 6.14 with frames of several buffers)
    kHardware,
};

class XdpProgram
{
public:
    struct Size {
        std::uint32_t flows = 16384;   // keys of the map of flows: allocated at once, some 100 bytes each
        std::uint32_t addresses = 256; // local addresses that flows of any address mean
        std::uint32_t queues = 64;     // indexes of queues lie below
        std::uint32_t places = 1;      // processes that share it; each has a socket for each queue
    };

    // What another process needs to use it: descriptors, which keep program and attachment, and plain numbers.
    static constexpr std::size_t kDescriptors = 5;
    using Descriptors = std::array<core::UniqueFd, kDescriptors>;
    struct Facts {
        XdpMode mode = XdpMode::kAuto;
        XdpStamps stamps = XdpStamps::kNone;
        bool several_buffers = false;
        std::uint32_t queue_bits = 0;
    };

    struct Wish {
        bool several_buffers = true; // it shall take frames that have several, as sockets with has_several_buffers() do
        XdpStamps stamps = XdpStamps::kNone;
        unsigned interface = 0; // its index, for stamps of its hardware
    };

    // Makes the maps and loads the program; nothing is attached. Of the wish it does what the kernel has:
    // takes_several_buffers(), stamps(). 0 or negative errno: -EPERM without CAP_BPF and CAP_NET_ADMIN.
    [[nodiscard]] static int open(const Size &size, const Wish &wish, XdpProgram &opened) noexcept;

    // That of another process, which has given these.
    static XdpProgram adopt(Descriptors given, const Facts &facts) noexcept;
    std::array<int, kDescriptors> descriptors() const noexcept; // those to give away, once it is attached
    const Facts &facts() const noexcept { return facts_; }

    // Frames of that queue and of flows with that place go to that AF_XDP socket from now on. Negative errno where it
    // is none, or -E2BIG for its index.
    [[nodiscard]] int set_socket(unsigned queue, int socket, unsigned place = 0) noexcept;
    // They go to the kernel.
    void remove_socket(unsigned queue, unsigned place) noexcept;

    // The program runs for the frames of that interface until detach(), the end of this object, or of the process,
    // however that comes. Negative errno: -EBUSY if the interface has an XDP program already, -EOPNOTSUPP and -ERANGE
    // (its MTU is too large) from a driver that can't, which kAuto does not give.
    [[nodiscard]] int attach(unsigned interface, XdpMode mode) noexcept;
    void detach() noexcept { link_.reset(); }
    XdpMode mode() const noexcept { return facts_.mode; } // what attach() got
    // Linux before 5.18 has no such programs.
    bool takes_several_buffers() const noexcept { return facts_.several_buffers; }
    XdpStamps stamps() const noexcept { return facts_.stamps; }

    // Sums over all processors. Allocates; not for the data path.
    [[nodiscard]] int counters(SteeringCounters &sums) const noexcept;

    int flows_map() const noexcept { return flows_.get(); }
    int addresses_map() const noexcept { return addresses_.get(); }
    int program() const noexcept { return program_.get(); }

private:
    int make_maps(const Size &size) noexcept;
    bool load(const Wish &wish, XdpStamps stamps, bool several_buffers) noexcept;

    std::uint32_t socket_index(unsigned queue, unsigned place) const noexcept
    {
        return place << facts_.queue_bits | queue;
    }

    core::UniqueFd flows_;     // FlowKey -> the place of the process whose flow it is
    core::UniqueFd addresses_; // 16 bytes of an address -> a bit for each place that named it
    core::UniqueFd sockets_;   // place and index of a queue -> AF_XDP socket
    core::UniqueFd counters_;
    core::UniqueFd program_;
    core::UniqueFd link_; // last: the first to go
    Facts facts_;
};

} // namespace vma::ether
