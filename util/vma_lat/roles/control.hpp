// SPDX-License-Identifier: BSD-2-Clause
// The control connection: messages of protocol.hpp over TCP, with a limit on each wait. Nothing of a test's load passes
// here.
#pragma once

#include "util/vma_lat/address.hpp"
#include "util/vma_lat/measure/protocol.hpp"

namespace vma::lat {

class Control
{
public:
    Control() = default;
    explicit Control(Fd fd);

    Failure send(Type type, const Bytes &body);

    // The next message, which must be of that type. A REFUSED is an error with the other side's words. The request to
    // stop ends the wait, but for what is said at a test's end, which is soon.
    enum class Stop { kEnds, kWaits };
    Failure receive(Type type, Bytes &body, int timeout_ms, Stop stop = Stop::kEnds);

    // The same of any type.
    Failure receive_any(Type &type, Bytes &body, int timeout_ms, Stop stop = Stop::kEnds);

    // Nothing is read: is there something to read, or the end of the connection?
    bool pending() const;

    bool ended() const; // the other side closed it, and everything was read

    int fd() const { return fd_.get(); }

private:
    Failure read(std::byte *place, std::size_t length, std::uint64_t deadline_ns, Stop stop);

    Fd fd_;
};

inline constexpr int kPatienceMs = 20000; // for an answer that takes the other side no time to speak of

Failure connect_control(const Address &address, Control &control);
Failure listen_control(const Address &address, Fd &listener);

} // namespace vma::lat
