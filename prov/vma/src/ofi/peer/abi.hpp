// SPDX-License-Identifier: BSD-2-Clause
// What a provider and its owner share (fi_peer(3)), as libfabric lays it out in memory. Parts of it have changed from
// version to version, the headers that we are made with know one of them, and one build of ours serves all: so
// everything is declared here. rdm/srx_owner.* tells versions apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/types.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

namespace vma::ofi::peer {

// ---- completion queues: the same since 1.17 -------------------------------------------------------------------------

// As fi_cq_err_entry of 1.20, which has the source at its end. An owner of that age copies all of it, an older one what
// it knows.
struct CqError {
    void *context;
    std::uint64_t flags;
    std::size_t length;
    void *buffer;
    std::uint64_t data;
    std::uint64_t tag;
    std::size_t excess;
    int error;
    int provider_error;
    void *error_data;
    std::size_t error_data_size;
    fi_addr_t source;
};

struct Cq;
struct CqOwnerOps {
    std::size_t size;
    ssize_t (*write)(Cq *cq, void *context, std::uint64_t flags, std::size_t length, void *buffer, std::uint64_t data,
                     std::uint64_t tag, fi_addr_t source);
    ssize_t (*writeerr)(Cq *cq, const CqError *error);
};
struct Cq {
    fid id;
    CqOwnerOps *owner_ops;
};
struct CqContext { // of fi_cq_open()
    std::size_t size;
    Cq *cq;
};

// ---- counters: since 1.19 -------------------------------------------------------------------------------------------

struct Cntr;
struct CntrOwnerOps {
    std::size_t size;
    void (*inc)(Cntr *cntr);
    void (*incerr)(Cntr *cntr);
};
struct Cntr {
    fid id;
    CntrOwnerOps *owner_ops;
};
struct CntrContext { // of fi_cntr_open()
    std::size_t size;
    Cntr *cntr;
};

// ---- shared receive contexts ----------------------------------------------------------------------------------------

struct RxEntry; // an owner's receive, or message: see EntryHead and EntryTail
struct Srx;

// An entry is: two pointers of the owner's (to 2.2), its head, 64 bits of remote data (since 1.19), its tail.
struct EntryHead {
    Srx *srx;
    fi_addr_t addr;
    std::size_t size; // of the message, or of the receive
    std::uint64_t tag;
};
struct EntryTail {
    std::uint64_t flags;
    void *context;
    std::size_t count;
    void **desc;
    void *peer_context; // ours
    void *owner_context;
    iovec *iov;
};

// By what a message is matched: one argument since 2.0.
struct MatchAttr {
    fi_addr_t addr;
    std::size_t msg_size;
    std::uint64_t tag;
};

struct SrxOwnerOps17 { // 1.17 and 1.18
    std::size_t size;
    int (*get_msg)(Srx *srx, fi_addr_t addr, std::size_t length, RxEntry **entry);
    int (*get_tag)(Srx *srx, fi_addr_t addr, std::uint64_t tag, RxEntry **entry);
    int (*queue_msg)(RxEntry *entry);
    int (*queue_tag)(RxEntry *entry);
    void (*free_entry)(RxEntry *entry);
};
struct SrxOwnerOps19 { // 1.19 to 1.22
    std::size_t size;
    int (*get_msg)(Srx *srx, fi_addr_t addr, std::size_t length, RxEntry **entry);
    int (*get_tag)(Srx *srx, fi_addr_t addr, std::uint64_t tag, RxEntry **entry);
    int (*queue_msg)(RxEntry *entry);
    int (*queue_tag)(RxEntry *entry);
    void (*foreach_unspec_addr)(Srx *srx, fi_addr_t (*get_addr)(RxEntry *entry));
    void (*free_entry)(RxEntry *entry);
};
struct SrxOwnerOps20 { // 2.0 on
    std::size_t size;
    int (*get_msg)(Srx *srx, MatchAttr *attr, RxEntry **entry);
    int (*get_tag)(Srx *srx, MatchAttr *attr, RxEntry **entry);
    int (*queue_msg)(RxEntry *entry);
    int (*queue_tag)(RxEntry *entry);
    void (*foreach_unspec_addr)(Srx *srx, fi_addr_t (*get_addr)(RxEntry *entry));
    void (*free_entry)(RxEntry *entry);
};

struct SrxPeerOps {
    std::size_t size;
    int (*start_msg)(RxEntry *entry);
    int (*start_tag)(RxEntry *entry);
    int (*discard_msg)(RxEntry *entry);
    int (*discard_tag)(RxEntry *entry);
};
struct Srx {
    fid_ep ep_fid;
    const void *owner_ops; // of one of the three kinds
    SrxPeerOps *peer_ops;  // ours to set
};
struct SrxContext { // of fi_srx_context()
    std::size_t size;
    Srx *srx;
};

} // namespace vma::ofi::peer
