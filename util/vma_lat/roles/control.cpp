// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/roles/control.hpp"

#include "util/vma_lat/clock.hpp"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vma::lat {

namespace {

Error gone(const char *what)
{
    return error(kExitServer, "the other side ended the control connection (%s); the test ends", what);
}

} // namespace

Control::Control(Fd fd) : fd_(std::move(fd))
{
    const int on = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Failure Control::send(Type type, const Bytes &body)
{
    const auto header = encode_header({type, static_cast<std::uint32_t>(body.size())});
    Bytes all(header.begin(), header.end());
    all.insert(all.end(), body.begin(), body.end());
    std::size_t done = 0;
    while (done < all.size()) {
        const ssize_t sent = ::send(fd_.get(), all.data() + done, all.size() - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return gone(std::strerror(errno));
        done += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    }
    return {};
}

Failure Control::receive_any(Type &type, Bytes &body, int timeout_ms, Stop stop)
{
    const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(timeout_ms) * kMillisecond;
    std::array<std::byte, kControlHeader> bytes{};
    if (auto failure = read(bytes.data(), bytes.size(), deadline, stop))
        return failure;
    Header header;
    if (auto failure = decode_header(bytes, header))
        return failure;
    body.resize(header.length);
    if (auto failure = read(body.data(), body.size(), deadline, stop))
        return failure;
    if (header.type == Type::kRefused) {
        std::string text;
        if (auto failure = decode(body, text))
            return failure;
        return error(kExitServer, "the other side refuses: %s", text.c_str());
    }
    type = header.type;
    return {};
}

Failure Control::receive(Type type, Bytes &body, int timeout_ms, Stop stop)
{
    Type came = type;
    if (auto failure = receive_any(came, body, timeout_ms, stop))
        return failure;
    if (came != type)
        return error(kExitServer, "the other side sent message %u where %u was expected; the test ends",
                     static_cast<unsigned>(came), static_cast<unsigned>(type));
    return {};
}

Failure Control::read(std::byte *place, std::size_t length, std::uint64_t deadline_ns, Stop stop)
{
    while (length > 0) {
        const ssize_t got = recv(fd_.get(), place, length, MSG_DONTWAIT);
        if (got == 0)
            return gone("it is closed");
        if (got > 0) {
            place += got;
            length -= static_cast<std::size_t>(got);
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return gone(std::strerror(errno));
        if (stopped() && stop == Stop::kEnds)
            return error(kExitInterrupted, "interrupted");
        if (now_ns() > deadline_ns)
            return error(kExitServer,
                         "the other side does not answer; the test ends (a server serves one client at a time)");
        pollfd wait{fd_.get(), POLLIN, 0};
        poll(&wait, 1, kTickMs);
    }
    return {};
}

bool Control::pending() const
{
    char byte = 0;
    const ssize_t got = recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got >= 0 || (errno != EAGAIN && errno != EINTR);
}

bool Control::ended() const
{
    char byte = 0;
    return recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

Failure connect_control(const Address &address, Control &control)
{
    Fd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd)
        return system_error("socket");
    if (connect(fd.get(), address.get(), address.length) != 0)
        return error(kExitServer, "no server at %s: %s; start one there with 'vma_lat server'", address.text().c_str(),
                     std::strerror(errno));
    control = Control(std::move(fd));
    return {};
}

Failure listen_control(const Address &address, Fd &listener)
{
    listener = Fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener)
        return system_error("socket");
    const int on = 1;
    const int off = 0;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.family() == AF_INET6)
        setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off); // IPv4 clients too
    if (bind(listener.get(), address.get(), address.length) != 0 || listen(listener.get(), 16) != 0)
        return error(kExitFailed, "can't listen at %s: %s; name another --port or --address", address.text().c_str(),
                     std::strerror(errno));
    return {};
}

} // namespace vma::lat
