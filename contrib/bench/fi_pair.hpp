// SPDX-License-Identifier: BSD-2-Clause
// One side of a pair of libfabric endpoints, for fi_bench: finds the provider, connects (FI_EP_MSG) or exchanges
// addresses (FI_EP_RDM, FI_EP_DGRAM), and sends, receives and writes. Any error ends the process with a line that names
// it.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

namespace vma::bench {

void pin(int cpu); // -1: leave it where it is

template <typename T> struct Closer {
    void operator()(T *object) const { fi_close(&object->fid); }
};
template <typename T> using Fid = std::unique_ptr<T, Closer<T>>;

struct InfoFree {
    void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoFree>;

class Pair
{
public:
    static constexpr std::size_t kBuffer = 1 << 20; // the longest message or write

    enum class Kind { messages, datagrams };

    // Messages can be had of every provider that is named at all.
    static bool has(const std::string &provider, Kind kind);

    // `channel` leads to the other process, which makes the other side. Returns when both can use their endpoints.
    Pair(const std::string &provider, Kind kind, bool client, int channel);
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;

    void barrier();                           // both sides have come so far
    void send(std::size_t size);              // until the buffer is free again
    void receive();                           // one message; a receive for another is posted
    void deepen(int receives);                // so many more are posted at a time
    void write(std::size_t size, int window); // to the other side; waits while `window` writes are under way
    void finish_writes();

private:
    void open_fabric();
    void open_domain();
    void open_endpoint(fi_info *info);
    void register_memory();
    void accept_client();
    void connect_to_server(const std::string &provider);
    void connectionless();
    void exchange_keys();
    void wait_connected();
    void post_receive();
    void progress(); // counts what the completion queues have
    void *next_context() { return &contexts_[next_context_++ % std::size(contexts_)]; }
    void tell(const void *data, std::size_t size) const;
    void hear(void *data, std::size_t size);

    int channel_;
    std::unique_ptr<std::byte[]> memory_; // to send from; to receive into; that the other side writes into
    Info info_;
    Fid<fid_fabric> fabric_;
    Fid<fid_domain> domain_;
    Fid<fid_eq> events_;
    Fid<fid_av> addresses_;
    Fid<fid_cq> sent_;
    Fid<fid_cq> received_;
    Fid<fid_mr> region_;
    Fid<fid_ep> endpoint_; // closed first
    void *descriptor_ = nullptr;
    fi_addr_t peer_ = FI_ADDR_UNSPEC;
    std::uint64_t remote_key_ = 0;
    std::uint64_t remote_address_ = 0;
    int under_way_ = 0; // sends and writes
    int arrived_ = 0;   // messages not yet asked for
    std::size_t next_context_ = 0;
    fi_context2 contexts_[256] = {}; // for providers that want one an operation: more than are ever under way
};

} // namespace vma::bench
