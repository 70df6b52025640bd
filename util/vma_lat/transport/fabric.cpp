// SPDX-License-Identifier: BSD-2-Clause
// Messages over endpoints: what happens while a test runs. How they are opened is fabric_open.cpp.
#include "util/vma_lat/transport/fabric.hpp"

#include "util/vma_lat/clock.hpp"

#include <cerrno>
#include <cstring>

namespace vma::lat {

ssize_t FabricTransport::post(Buffer &buffer)
{
    return fi_recv(channels_[buffer.channel].endpoint.get(), buffer.place, plan_.size, descriptor_, FI_ADDR_UNSPEC,
                   &buffer.context);
}

// What a queue's error says; `canceled`: a peer that closed is behind it.
std::string FabricTransport::queue_error(fid_cq *queue, bool &canceled)
{
    fi_cq_err_entry entry{};
    fi_cq_readerr(queue, &entry, 0);
    canceled = entry.err == FI_ECANCELED || entry.err == FI_ECONNRESET || entry.err == FI_ECONNABORTED ||
               entry.err == FI_ENOTCONN || entry.err == FI_ESHUTDOWN || entry.err == FI_EIO || entry.err == EPIPE;
    return libfabric().strerror(entry.err);
}

Got FabricTransport::send(std::uint32_t number, std::span<const std::byte> message)
{
    const Channel &channel = channels_[number];
    const bool inject = message.size() <= info_->tx_attr->inject_size;
    if (!inject)
        std::memcpy(memory_.get(), message.data(), message.size()); // that memory is registered
    bool posted = false;
    for (;;) {
        if (!posted) {
            const ssize_t result = inject
                                       ? fi_inject(channel.endpoint.get(), message.data(), message.size(), channel.peer)
                                       : fi_send(channel.endpoint.get(), memory_.get(), message.size(), descriptor_,
                                                 channel.peer, &send_context_);
            if (result == 0 && inject)
                return Got::kMessage;
            if (result == -FI_ENOTCONN || result == -FI_ECONNRESET || result == -FI_ESHUTDOWN || result == -EPIPE)
                return Got::kClosed;
            if (result != 0 && result != -FI_EAGAIN) {
                send_fault_ = std::string("sending: ") + libfabric().strerror(static_cast<int>(-result));
                return Got::kFailed;
            }
            posted = result == 0;
        }
        fi_cq_msg_entry entry{};
        const ssize_t got = fi_cq_read(sent_.get(), &entry, 1);
        if (got > 0 && posted)
            return Got::kMessage;
        if (got < 0 && got != -FI_EAGAIN) {
            bool canceled = false;
            send_fault_ = "sending: " + queue_error(sent_.get(), canceled);
            return canceled ? Got::kClosed : Got::kFailed;
        }
        if (stopped())
            return Got::kNothing;
    }
}

Got FabricTransport::receive(Arrival &arrival)
{
    if (given_ != nullptr) {
        const ssize_t result = post(*given_);
        // Full for the moment: the provider needs its queue to be read, and this buffer is in nobody's way.
        if (result == 0)
            given_ = nullptr;
    }
    fi_cq_msg_entry entry{};
    const ssize_t got = wait_received(entry);
    if (got > 0) {
        auto *buffer = static_cast<Buffer *>(entry.op_context);
        if (given_ != nullptr && post(*given_) != 0) {
            receive_fault_ = "receiving: a buffer can't be posted again";
            return Got::kFailed;
        }
        given_ = buffer;
        arrival = {buffer->channel, std::span(buffer->place, entry.len)};
        return Got::kMessage;
    }
    if (got == -FI_EAGAIN || got == -FI_EINTR || got == 0)
        return peer_closed() ? Got::kClosed : Got::kNothing;
    bool canceled = false;
    receive_fault_ = "receiving: " + queue_error(received_.get(), canceled);
    return canceled && connected() ? Got::kClosed : Got::kFailed;
}

// Looked at only when nothing comes: an event says nothing that messages before it don't.
bool FabricTransport::peer_closed()
{
    if (!connected())
        return false;
    fi_eq_cm_entry entry{};
    std::uint32_t event = 0;
    return fi_eq_read(events_.get(), &event, &entry, sizeof entry, 0) >= 0 && event == FI_SHUTDOWN;
}

ssize_t FabricTransport::wait_received(fi_cq_msg_entry &entry)
{
    if (plan_.wait == Wait::kSpin)
        return spin(entry);
    ssize_t got = fi_cq_read(received_.get(), &entry, 1);
    if (got != -FI_EAGAIN)
        return got;
    if (plan_.wait == Wait::kRecvfrom)
        return fi_cq_sread(received_.get(), &entry, 1, nullptr, kTickMs);
    fid *queue = &received_->fid;
    if (fi_trywait(fabric_.get(), &queue, 1) == 0)
        waiter_.next_ready();
    got = fi_cq_read(received_.get(), &entry, 1);
    return got;
}

ssize_t FabricTransport::spin(fi_cq_msg_entry &entry)
{
    constexpr unsigned kLook = 256; // reads between two looks at the clock
    const std::uint64_t end = now_ns() + kTickMs * kMillisecond;
    do {
        for (unsigned i = 0; i < kLook; ++i) {
            const ssize_t got = fi_cq_read(received_.get(), &entry, 1);
            if (got != -FI_EAGAIN)
                return got;
        }
    } while (!stopped() && now_ns() < end);
    return -FI_EAGAIN;
}

} // namespace vma::lat
