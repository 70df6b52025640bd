// SPDX-License-Identifier: BSD-2-Clause
// The static probes (USDT, provider `vma_fi`) of libvma-fi.so. One that nobody looks at is a nop; none stands where a
// message passes. doc/monitoring.md lists them with their arguments, and a test compares. Without Debian's
// systemtap-sdt-dev at build time there are none.
#pragma once

#include <cstdint>

#ifdef VMA_PROBES
#include <sys/sdt.h>
#endif

namespace vma::probe {

enum class Waker : int { kEventfd, kSocket, kFutex };

// A process that sleeps is woken, which takes system calls. `place`: of the sleeper in its doorbell's page, with
// kFutex, else 0.
[[gnu::always_inline]] inline void wake([[maybe_unused]] Waker how, [[maybe_unused]] std::uint32_t place)
{
#ifdef VMA_PROBES
    STAP_PROBE2(vma_fi, wake, static_cast<int>(how), place);
#endif
}

enum class Cause : int { kQueueFull, kNoMemory, kRingFull };

// A datagram is lost. `port`: the receiver's, 0 with kRingFull, where the sender has no room in the receiver's ring.
[[gnu::always_inline]] inline void drop([[maybe_unused]] std::uint16_t port, [[maybe_unused]] std::uint64_t bytes,
                                        [[maybe_unused]] Cause cause)
{
#ifdef VMA_PROBES
    STAP_PROBE3(vma_fi, drop, port, bytes, static_cast<int>(cause));
#endif
}

// A TCP segment is sent again over an Ethernet port. Ports in host byte order; `tail`: it is a tail loss probe.
[[gnu::always_inline]] inline void retransmit([[maybe_unused]] std::uint16_t local, [[maybe_unused]] std::uint16_t peer,
                                              [[maybe_unused]] std::uint32_t seq, [[maybe_unused]] std::uint32_t bytes,
                                              [[maybe_unused]] bool tail)
{
#ifdef VMA_PROBES
    STAP_PROBE5(vma_fi, retransmit, local, peer, seq, bytes, static_cast<int>(tail));
#endif
}

} // namespace vma::probe
