// SPDX-License-Identifier: BSD-2-Clause
// Connected endpoints (FI_EP_MSG) with memory to send from, to receive into and for the peer to reach by RMA: what a
// sweep and a mesh work with. One domain; a completion queue for each connection or one for all. What is posted on them
// and when is lane.hpp's.
//
// Threads: each connection, with its queue, may have a thread of its own once all are connected.
#pragma once

#include "util/vma_lat/measure/step.hpp"
#include "util/vma_lat/transport/fabric_objects.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

namespace vma::lat {

// Something that is posted on an endpoint. A completion names it by its context.
struct Posted {
    enum class Kind : std::uint8_t { kData, kControl, kReceive };
    fi_context2 context{}; // first
    std::uint32_t connection = 0;
    std::uint32_t slot = 0;
    Kind kind = Kind::kData;
    bool under_way = false;
};

inline constexpr std::size_t kControlBytes = 16; // a message that is no data
inline constexpr std::uint32_t kControls = 8;    // of them under way

struct Shape {
    std::string provider;
    std::string domain;
    std::uint32_t connections = 1;
    std::uint32_t size = 1;   // bytes an operation
    std::uint32_t window = 1; // operations under way, if memory and queues allow so many
    Operation operation = Operation::kSend;
    Progress progress;
    bool ordered = false;           // a message must not overtake a write
    std::vector<std::string> names; // of the connections, for messages; none: they have numbers
};

class Endpoints
{
public:
    explicit Endpoints(const Shape &shape) : shape_(shape), places_(shape.connections) {}

    // Before establish(): how each connection is to come about. `self`: the address to listen at; a free port is taken.
    Failure listen(std::uint32_t connection, const Address &self, std::uint16_t &port);
    Failure connect(std::uint32_t connection, const Address &peer);

    // Until all are connected; `given_up` is asked every kTickMs.
    Failure establish(const std::function<bool()> &given_up);

    // Once they are connected. The data of an operation has the same slot on both sides.
    const Shape &shape() const { return shape_; }
    std::string name(std::uint32_t connection) const;
    std::uint32_t slots() const { return slots_; }
    Region region(std::uint32_t connection) const;
    fid_ep *endpoint(std::uint32_t connection) const { return places_[connection].endpoint.get(); }
    fid_cq *queue(std::uint32_t connection) const { return queues_[shape_.progress.shared ? 0 : connection].get(); }
    fid_fabric *fabric() const { return fabric_.get(); }
    std::span<std::byte> source(std::uint32_t connection, std::uint32_t slot) const;
    std::span<std::byte> exposed(std::uint32_t connection, std::uint32_t slot) const;
    std::span<std::byte> received(std::uint32_t connection, std::uint32_t slot) const;
    std::span<std::byte> control(std::uint32_t connection, std::uint32_t slot) const;
    void *descriptor() const { return descriptor_; }
    std::vector<Posted> &data(std::uint32_t connection) { return places_[connection].data; }
    std::vector<Posted> &controls(std::uint32_t connection) { return places_[connection].controls; }
    std::uint64_t stride() const { return stride_; }
    bool takes_receives() const { return takes_receives_; } // data with an operation use up a receive (FI_RX_CQ_DATA)
    ssize_t post_receive(Posted &receive) const;

private:
    struct Place {
        std::vector<Posted> receives;
        std::vector<Posted> data;
        std::vector<Posted> controls;
        Fid<fid_pep> listener;
        Fid<fid_ep> endpoint; // closed before what is posted on it goes
        bool connected = false;
    };
    struct Free {
        void operator()(std::byte *memory) const { std::free(memory); }
    };

    Failure find(const Address &address, std::uint64_t flags, Info &info) const;
    Failure open_fabric(const Info &info);
    Failure open_domain(fi_info *info);
    void choose_slots(const fi_info &info);
    Failure register_memory(const fi_info &info);
    Failure open_queues();
    Failure open_endpoint(std::uint32_t connection, fi_info *info);
    Failure on_event(std::uint32_t event, const fi_eq_cm_entry &entry);
    Failure accept(const fi_eq_cm_entry &entry);
    std::byte *at(std::uint32_t connection, std::size_t offset) const;

    Shape shape_;
    std::uint32_t slots_ = 1;
    std::uint32_t receives_ = 1; // posted on each connection
    std::size_t stride_ = 0;     // of a slot
    std::size_t receive_stride_ = 0;
    std::size_t each_ = 0;                     // bytes of a connection's private memory
    std::unique_ptr<std::byte, Free> private_; // sources, receives and control messages
    std::unique_ptr<std::byte, Free> exposed_; // what peers reach
    bool virtual_ = false;                     // by its addresses, not by offsets
    bool takes_receives_ = false;

    // Closed in the reverse order.
    Fid<fid_fabric> fabric_;
    Fid<fid_eq> events_;
    Fid<fid_domain> domain_;
    Fid<fid_mr> private_region_;
    Fid<fid_mr> exposed_region_;
    void *descriptor_ = nullptr;
    std::vector<Fid<fid_cq>> queues_;
    std::vector<Place> places_;
};

} // namespace vma::lat
