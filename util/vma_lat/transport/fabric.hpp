// SPDX-License-Identifier: BSD-2-Clause
// Messages over libfabric endpoints of any provider: FI_EP_MSG, connected, or FI_EP_DGRAM, with address vectors. One
// endpoint a channel; one completion queue for all sends, one for all receives, so that one thread may do each.
#pragma once

#include "util/vma_lat/transport/fabric_objects.hpp"
#include "util/vma_lat/transport/transport.hpp"
#include "util/vma_lat/transport/waiter.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <vector>

namespace vma::lat {

class FabricTransport final : public Transport
{
public:
    FabricTransport(const Plan &plan, const Local &local) : plan_(plan), local_(local) {}

    Failure prepare(Places &mine) override;
    Failure establish(const Places &theirs, const std::function<bool()> &given_up) override;
    Got send(std::uint32_t channel, std::span<const std::byte> message) override;
    Got receive(Arrival &arrival) override;

private:
    struct Buffer {
        fi_context2 context{}; // first: a completion names it
        std::uint32_t channel = 0;
        std::byte *place = nullptr;
    };
    struct Channel {
        Fid<fid_pep> listener;
        Fid<fid_ep> endpoint;
        fi_addr_t peer = FI_ADDR_UNSPEC;
    };

    bool connected() const { return plan_.kind == Kind::kFabricMsg; }

    Failure find(const Address &address, std::uint64_t flags, Info &info) const;
    Failure open_fabric();
    Failure open_domain();
    Failure open_queue(std::uint64_t size, bool receives, Fid<fid_cq> &queue);
    Failure register_memory();
    Failure open_endpoint(Channel &channel, fi_info *info);
    Failure post_receives(std::uint32_t number);
    Failure listen(Places &mine);
    Failure open_datagram(Places &mine);
    Failure accept(Channel &channel, std::uint32_t number, const std::function<bool()> &given_up);
    Failure connect(Channel &channel, std::uint32_t number, std::uint16_t port, const std::function<bool()> &given_up);
    Failure await_event(std::uint32_t wanted, fi_eq_cm_entry &entry, const std::function<bool()> &given_up);
    ssize_t post(Buffer &buffer);
    ssize_t wait_received(fi_cq_msg_entry &entry);
    ssize_t spin(fi_cq_msg_entry &entry);
    bool peer_closed();
    static std::string queue_error(fid_cq *queue, bool &canceled);

    Plan plan_;
    Local local_;
    Info info_;
    std::unique_ptr<std::byte[]> memory_; // to send from, then the buffers of all channels
    std::size_t stride_ = 0;
    std::uint32_t depth_ = 0; // receives a channel
    std::vector<Buffer> buffers_;
    Buffer *given_ = nullptr; // handed out: posted again by the next receive()
    fi_context2 send_context_{};
    Waiter waiter_;

    // Closed in the reverse order.
    Fid<fid_fabric> fabric_;
    Fid<fid_eq> events_;
    Fid<fid_domain> domain_;
    Fid<fid_mr> region_;
    void *descriptor_ = nullptr;
    Fid<fid_av> addresses_;
    Fid<fid_cq> sent_;
    Fid<fid_cq> received_;
    std::vector<Channel> channels_;
};

} // namespace vma::lat
