// SPDX-License-Identifier: BSD-2-Clause
// The libfabric objects of this process and what guards them. Everybody else sees
// engine.hpp.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_ext_vma.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/engine/arrivals.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"

namespace vma::sock {

class Socket;
class Stream;

struct Objects : Device {
    fi_info *info = nullptr; // template of every endpoint that connects
    fi_ops_vma_process *process = nullptr;
    fid_pep *pep = nullptr;
    std::uint16_t port = 0; // of pep, host byte order
};

// Starts the engine of this process once; offload lock held. False: it can't be (said once in the log); or the provider
// is not loaded yet, and whoever has taken the offload lock calls load_what_is_wanted() when he has given it back.
bool engine_start();
bool engine_has_failed();   // likewise
bool engine_is_unstarted(); // any thread
// No socket has an endpoint, and none will: the helper thread ends, and what is open is closed as far as other devices
// leave it. No lock held.
void engine_end();
// The half of that which threads in a call don't feel: none is opened any more, and the helper thread has ended. False:
// they were not open. No lock is held.
bool engine_stop();
const Objects &engine_objects();
Device &engine_device(); // the local one
void engine_wake_helper();
void engine_update_active(); // after either list of sockets has changed; offload lock held

// What datagrams need besides. Once opened they stay.
struct DatagramObjects {
    fid_av *av = nullptr;
    fid_ep *ep = nullptr;   // sends for all sockets, and takes what comes for those on the main ring
    std::uint16_t port = 0; // host byte order
};
bool engine_start_datagrams(); // and the engine; offload lock held. False: it can't be (said once in the log)
const DatagramObjects &engine_datagrams();
// One more endpoint, for what comes for sockets on the ring of `cq`; engine_start_datagrams() has been true. Offload
// lock held. 0 or a negative fi_errno, and then there may be an `ep` to close.
int engine_open_datagrams(fid_cq &cq, udp::Arrivals &arrivals, fid_ep *&ep, std::uint16_t &port);
void engine_exclude_polling(bool exclude, RingMask rings = kMainRing); // takes and gives back the poll locks
// Somebody of those sleeps on the descriptor, and it is not readable.
bool will_be_woken(const std::atomic<std::uint32_t> &asleep, int fd);
void engine_after_fork_in_child();
void *help_engine(void *); // helper_work.cpp: the helper thread, until it is to end

struct Offload {
    Mutex lock; // "the offload lock": guards offloading, and what says so
    // Offload lock.
    Stream *live = nullptr;   // those with a connected endpoint
    Socket *listed = nullptr; // UDP sockets that the helper thread looks after (udp/life.cpp)
};
extern constinit Offload g_offload;

} // namespace vma::sock
