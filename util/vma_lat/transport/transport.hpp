// SPDX-License-Identifier: BSD-2-Clause
// What carries a test's messages: sockets or libfabric endpoints, one channel each. The tests know nothing else of
// them.
//
// Threads: one may send while another receives, nothing more.
#pragma once

#include "util/vma_lat/address.hpp"
#include "util/vma_lat/measure/protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace vma::lat {

// What each side adds of its own to a plan.
struct Local {
    bool server = false;
    Address host;          // the server's address as the control connection has it
    Address self;          // this side's
    std::string domain;    // libfabric's; empty for the plan's
    std::string interface; // for multicast; empty for the one with the address `self`
    int ttl = 1;
    bool loop = true;
};

struct Arrival {
    std::uint32_t channel = 0;
    std::span<std::byte> message; // until the next receive()
};

enum class Got { kMessage, kNothing /* for kTickMs, or a signal came */, kClosed, kFailed };

class Transport
{
public:
    Transport() = default;
    Transport(const Transport &) = delete;
    Transport &operator=(const Transport &) = delete;
    virtual ~Transport() = default;

    // Makes what the other side has to know before it can connect.
    virtual Failure prepare(Places &mine) = 0;

    // Connects all channels; `given_up` is asked now and then whether to go on.
    virtual Failure establish(const Places &theirs, const std::function<bool()> &given_up) = 0;

    // One message. The server answers whoever sent to the channel last. kNothing: the request to stop came first.
    virtual Got send(std::uint32_t channel, std::span<const std::byte> message) = 0;
    virtual Got receive(Arrival &arrival) = 0;

    // Descriptors of the sockets that carry the messages; endpoints have none.
    virtual std::vector<int> sockets() const { return {}; }

    // What kFailed means.
    const std::string &fault() const { return send_fault_.empty() ? receive_fault_ : send_fault_; }

protected:
    std::string send_fault_; // one a thread
    std::string receive_fault_;
};

std::unique_ptr<Transport> make_socket_transport(const Plan &plan, const Local &local);
std::unique_ptr<Transport> make_fabric_transport(const Plan &plan, const Local &local);

} // namespace vma::lat
