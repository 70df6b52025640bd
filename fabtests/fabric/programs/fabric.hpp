// SPDX-License-Identifier: BSD-2-Clause
// One connected FI_EP_MSG endpoint of the vma provider through libfabric.so, as any libfabric program makes it. For
// test programs: every error ends the process with a message, and no wait lasts longer than 20 s.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fabtests/fabric/programs/must.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace fabtest {

enum class Waiting { kSpin, kSread, kFd };

struct Fabric {
    explicit Fabric(const Peer &peer, Waiting waiting = Waiting::kSpin, std::size_t queue = 1024);
    Fabric(const Fabric &) = delete;
    Fabric &operator=(const Fabric &) = delete;
    ~Fabric(); // endpoint first, all else must close without -FI_EBUSY

    // The client connects with `data`, the server accepts with `data`; returns what came from the other side.
    std::string connect(const std::string &data);
    void open_endpoint(fi_info *with);

    std::uint32_t next_event(fi_eq_cm_entry *entry, std::size_t len, ssize_t *got = nullptr); // dies on an error event
    fi_cq_data_entry completion(); // dies on an error completion
    fi_cq_err_entry error_completion();

    // Keeps the provider going, as manual progress wants it, until the other side tells a number. Error completions are
    // passed over: the peer may have brought them about.
    template <typename OnCompletion> std::uint64_t progress_until_told(OnCompletion on_completion)
    {
        std::uint64_t told = 0;
        for (bool last = false;;) {
            fi_cq_data_entry entry{};
            const ssize_t n = fi_cq_read(cq, &entry, 1);
            if (n == 1)
                on_completion(entry);
            else if (n == -FI_EAVAIL)
                error_completion();
            else if (last)
                return told;
            else
                last = peer.heard(&told);
        }
    }

    const Peer &peer;
    Waiting waiting;
    fi_info *info = nullptr;
    fid_fabric *fabric = nullptr;
    fid_eq *eq = nullptr;
    fid_domain *domain = nullptr;
    fid_cq *cq = nullptr;
    fid_pep *pep = nullptr; // server: listening, its port told to the client
    fid_ep *ep = nullptr;
    std::uint16_t port = 0;

private:
    ssize_t read_queue(fi_cq_data_entry &entry);
};

} // namespace fabtest
