// SPDX-License-Identifier: BSD-2-Clause
// The operation tables of libfabric that most of our objects have: one names the calls that it offers, and the rest
// answers -FI_ENOSYS.
//
//     constinit fi_ops g_fid_ops = ofi::FidOps{.close = close, .bind = bind};
//
// libfabric reads a table's `size` before it reads a call that was added later: it is that of the headers we are
// built with. A field that such headers add stays null until it is named here; libfabric takes null for -FI_ENOSYS.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include "ofi/noop.hpp"

namespace vma::ofi {

struct FidOps {
    decltype(fi_ops::close) close;
    decltype(fi_ops::bind) bind = no_op;
    decltype(fi_ops::control) control = no_op;
    decltype(fi_ops::ops_open) ops_open = no_op;
    decltype(fi_ops::tostr) tostr = no_op;
    decltype(fi_ops::ops_set) ops_set = no_op;

    constexpr operator fi_ops() const noexcept
    {
        return {sizeof(fi_ops), close, bind, control, ops_open, tostr, ops_set};
    }
};

struct EpOps {
    decltype(fi_ops_ep::cancel) cancel = no_op;
    decltype(fi_ops_ep::getopt) getopt = no_op;
    decltype(fi_ops_ep::setopt) setopt = no_op;
    decltype(fi_ops_ep::tx_ctx) tx_ctx = no_op;
    decltype(fi_ops_ep::rx_ctx) rx_ctx = no_op;
    decltype(fi_ops_ep::rx_size_left) rx_size_left = no_op;
    decltype(fi_ops_ep::tx_size_left) tx_size_left = no_op;

    constexpr operator fi_ops_ep() const noexcept
    {
        return {sizeof(fi_ops_ep), cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left};
    }
};

struct CmOps {
    decltype(fi_ops_cm::setname) setname = no_op;
    decltype(fi_ops_cm::getname) getname = no_op;
    decltype(fi_ops_cm::getpeer) getpeer = no_op;
    decltype(fi_ops_cm::connect) connect = no_op;
    decltype(fi_ops_cm::listen) listen = no_op;
    decltype(fi_ops_cm::accept) accept = no_op;
    decltype(fi_ops_cm::reject) reject = no_op;
    decltype(fi_ops_cm::shutdown) shutdown = no_op;
    decltype(fi_ops_cm::join) join = no_op;

    constexpr operator fi_ops_cm() const noexcept
    {
        return {sizeof(fi_ops_cm), setname, getname, getpeer, connect, listen, accept, reject, shutdown, join};
    }
};

// fi_ops_msg and fi_ops_tagged have the same calls, with a tag or without one.
template <typename Table> struct DataOps {
    decltype(Table::recv) recv = no_op;
    decltype(Table::recvv) recvv = no_op;
    decltype(Table::recvmsg) recvmsg = no_op;
    decltype(Table::send) send = no_op;
    decltype(Table::sendv) sendv = no_op;
    decltype(Table::sendmsg) sendmsg = no_op;
    decltype(Table::inject) inject = no_op;
    decltype(Table::senddata) senddata = no_op;
    decltype(Table::injectdata) injectdata = no_op;

    constexpr operator Table() const noexcept
    {
        return {sizeof(Table), recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata};
    }
};

using MsgOps = DataOps<fi_ops_msg>;
using TaggedOps = DataOps<fi_ops_tagged>;

struct CntrOps {
    decltype(fi_ops_cntr::read) read;
    decltype(fi_ops_cntr::readerr) readerr;
    decltype(fi_ops_cntr::add) add = no_op;
    decltype(fi_ops_cntr::set) set = no_op;
    decltype(fi_ops_cntr::wait) wait = no_op;
    decltype(fi_ops_cntr::adderr) adderr = no_op;
    decltype(fi_ops_cntr::seterr) seterr = no_op;

    constexpr operator fi_ops_cntr() const noexcept
    {
        return {sizeof(fi_ops_cntr), read, readerr, add, set, wait, adderr, seterr};
    }
};

} // namespace vma::ofi
