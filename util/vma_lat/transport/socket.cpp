// SPDX-License-Identifier: BSD-2-Clause
// Messages over UDP and TCP sockets: what happens while a test runs. How they are opened is socket_open.cpp.
#include "util/vma_lat/transport/socket.hpp"

#include "util/vma_lat/clock.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vma::lat {

namespace {

Got fail(std::string &fault, const char *what)
{
    fault = std::string(what) + ": " + std::strerror(errno);
    return Got::kFailed;
}

} // namespace

std::unique_ptr<Transport> make_socket_transport(const Plan &plan, const Local &local)
{
    return std::make_unique<SocketTransport>(plan, local);
}

SocketTransport::SocketTransport(const Plan &plan, const Local &local) : plan_(plan), local_(local)
{
    // A stream is read in large pieces, so that a call brings many small messages; a datagram that is too long must
    // show.
    const std::size_t room = stream() ? std::max<std::size_t>(plan.size, 65536) : plan.size + 1;
    channels_.resize(plan.sockets);
    for (Channel &channel : channels_)
        channel.buffer.resize(stream() || &channel == channels_.data() ? room : 0);
}

Got SocketTransport::send(std::uint32_t number, std::span<const std::byte> message)
{
    Channel &channel = channels_[number];
    while (!message.empty()) {
        const sockaddr *to = channel.peer.length != 0 ? channel.peer.get() : nullptr;
        const ssize_t sent =
            sendto(channel.fd.get(), message.data(), message.size(), MSG_NOSIGNAL, to, channel.peer.length);
        if (sent >= 0) {
            message = message.subspan(static_cast<std::size_t>(sent));
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            return Got::kClosed;
        if (errno ==
            ECONNREFUSED) // a datagram of before found nobody; whether the server lives, its control connection tells
            return Got::kMessage;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return fail(send_fault_, "sending");
        if (stopped())
            return Got::kNothing;
        pollfd wait{channel.fd.get(), POLLOUT, 0};
        if (errno != EINTR)
            poll(&wait, 1, kTickMs);
    }
    return Got::kMessage;
}

Got SocketTransport::receive(Arrival &arrival)
{
    if (stream() && take_whole(current_, arrival))
        return Got::kMessage;
    if (plan_.wait == Wait::kSpin)
        return spin(arrival);
    if (plan_.wait == Wait::kRecvfrom)
        return read(0, arrival);
    const std::uint32_t ready = waiter_.next_ready();
    return ready == Waiter::kNobody ? Got::kNothing : read(ready, arrival);
}

std::vector<int> SocketTransport::sockets() const
{
    std::vector<int> all;
    for (const Channel &channel : channels_)
        all.push_back(channel.fd.get());
    return all;
}

Got SocketTransport::spin(Arrival &arrival)
{
    constexpr unsigned kLook = 256; // reads between two looks at the clock
    const std::uint64_t end = now_ns() + kTickMs * kMillisecond;
    do {
        for (unsigned i = 0; i < kLook; ++i) {
            const std::uint32_t number = spin_next_;
            spin_next_ = spin_next_ + 1 < channels_.size() ? spin_next_ + 1 : 0;
            const Got got = read(number, arrival);
            if (got != Got::kNothing)
                return got;
        }
    } while (!stopped() && now_ns() < end);
    return Got::kNothing;
}

Got SocketTransport::read(std::uint32_t number, Arrival &arrival)
{
    return stream() ? read_stream(number, arrival) : read_datagram(number, arrival);
}

Got SocketTransport::read_datagram(std::uint32_t number, Arrival &arrival)
{
    Channel &channel = channels_[number];
    std::vector<std::byte> &buffer = channels_[0].buffer;
    const bool learn = local_.server; // whom to answer; a client knows its peer
    Address from;
    from.length = sizeof from.storage;
    const ssize_t got = recvfrom(channel.fd.get(), buffer.data(), buffer.size(), 0, learn ? from.get() : nullptr,
                                 learn ? &from.length : nullptr);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED ? Got::kNothing
                                                                          : fail(receive_fault_, "receiving");
    if (learn)
        channel.peer = from;
    arrival = {number, std::span(buffer).first(static_cast<std::size_t>(got))};
    return Got::kMessage;
}

Got SocketTransport::read_stream(std::uint32_t number, Arrival &arrival)
{
    Channel &channel = channels_[number];
    if (channel.ended)
        return ended_ == channels_.size() ? Got::kClosed : Got::kNothing;
    if (channel.begin > 0) { // less than a message is left: it goes to the front
        std::copy(channel.buffer.begin() + static_cast<std::ptrdiff_t>(channel.begin),
                  channel.buffer.begin() + static_cast<std::ptrdiff_t>(channel.end), channel.buffer.begin());
        channel.end -= channel.begin;
        channel.begin = 0;
    }
    const ssize_t got =
        recv(channel.fd.get(), channel.buffer.data() + channel.end, channel.buffer.size() - channel.end, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) {
        channel.ended = true;
        return ++ended_ == channels_.size() ? Got::kClosed : Got::kNothing;
    }
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? Got::kNothing : fail(receive_fault_, "receiving");
    channel.end += static_cast<std::size_t>(got);
    return take_whole(number, arrival) ? Got::kMessage : Got::kNothing;
}

bool SocketTransport::take_whole(std::uint32_t number, Arrival &arrival)
{
    Channel &channel = channels_[number];
    if (channel.end - channel.begin < plan_.size)
        return false;
    arrival = {number, std::span(channel.buffer).subspan(channel.begin, plan_.size)};
    channel.begin += plan_.size;
    current_ = number;
    return true;
}

} // namespace vma::lat
