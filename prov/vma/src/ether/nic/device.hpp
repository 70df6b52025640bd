// SPDX-License-Identifier: BSD-2-Clause
// What a NIC of each kind has, and each of its queues: the calls are the same, and which kind it is, is asked once a
// burst (Nic::visit()) and not once a frame.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ether/nic/flows.hpp"
#include "ether/nic/frames.hpp"
#include "ether/nic/lent_frames.hpp"
#include "inet/wire/send_offloads.hpp"

struct ibv_pd;

namespace vma::ether {

// As XdpSocket says.
template <typename Q>
concept NicQueue = requires(Q queue, const Q &same, std::span<ReceivedFrame> burst, FrameIndex frame, QueueState state,
                            const inet::FrameWork work, const std::uint8_t *data, std::size_t length)
{
    {
        queue.receive(burst)
    }
    noexcept->std::same_as<std::size_t>;
    {
        queue.release(frame)
    }
    noexcept;
    {
        queue.take()
    }
    noexcept->std::same_as<FrameIndex>;
    {
        queue.bytes(frame)
    }
    noexcept->std::same_as<std::span<std::uint8_t>>;
    {
        queue.submit(frame, std::uint32_t{}, work)
    }
    noexcept->std::same_as<bool>;
    {
        queue.flush()
    }
    noexcept->std::same_as<int>;
    {
        queue.drive()
    }
    noexcept;
    {
        same.lender_of(data, length)
    }
    noexcept->std::same_as<LentFrames *>;
    {
        same.fd()
    }
    noexcept->std::same_as<int>;
    {
        same.state()
    }
    noexcept->std::same_as<QueueState>;
    {
        same.ask_kernel(state)
    }
    noexcept;
};

template <typename N>
concept NicDevice = requires(N nic, const N &same, std::span<const std::uint8_t> frame, std::uint64_t count)
{
    requires NicQueue<typename decltype(nic.queues())::value_type>;
    {
        same.interface()
    }
    noexcept->std::same_as<unsigned>; // its index
    {
        nic.flows()
    }
    noexcept->std::same_as<Flows &>;
    // Whether a received frame is of a flow of ours: what isn't, is thrown away.
    {
        same.takes(frame)
    }
    noexcept->std::same_as<bool>;
    // Whether the kernel may have left out checksums of frames, and made long ones of several: inet::PartialSums.
    {
        same.has_partial_sums()
    }
    noexcept->std::same_as<bool>;
    {
        same.stamps()
    }
    noexcept; // XdpStamps: which stamps received frames have
    // What the device does with frames to be sent; submit() is told of each.
    {
        same.offloads()
    }
    noexcept->std::same_as<inet::SendOffloads>;
    {
        nic.arm()
    }
    noexcept->std::same_as<bool>; // before a sleep on the queues' fd(); false: frames are there already
    {
        nic.follow()
    }
    noexcept; // what the device has to tell, now and then
    {
        same.wait_fd()
    }
    noexcept->std::same_as<int>; // readable: follow() has something to do at once; -1: there is none
    {
        nic.moderate(std::uint16_t{}, std::uint16_t{})
    }
    noexcept->std::same_as<int>;
    {
        same.tell_interrupts(count, count)
    }
    noexcept->std::same_as<int>;
    {
        same.protection_domain()
    }
    noexcept->std::same_as<ibv_pd *>; // nullptr: it has none
};

} // namespace vma::ether
