// SPDX-License-Identifier: BSD-2-Clause
// A simulated device's real wire: a network interface. What comes from it and no rule takes goes to another interface,
// whose other end is the host's own; what comes from there goes out: so a NIC stands between a kernel and its network.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>

namespace vma::sim {

class RealWire
{
public:
    // Called for each frame from the wire, with the lock held; true: it is taken.
    using Take = std::function<bool(std::span<const std::uint8_t>)>;

    // Packet sockets, non-blocking, which stay the caller's; `host`: -1, there is none.
    RealWire(std::mutex &mutex, int wire, int host, Take take);
    ~RealWire(); // without the lock
    RealWire(const RealWire &) = delete;
    RealWire &operator=(const RealWire &) = delete;

    void send(std::span<const std::uint8_t> frame) const; // what finds no room is lost

private:
    void loop();
    void read(int from);

    std::mutex &mutex_;
    const int wire_;
    const int host_;
    const Take take_;
    const int stop_; // eventfd
    std::thread thread_;
};

} // namespace vma::sim
