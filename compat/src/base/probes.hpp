// SPDX-License-Identifier: BSD-2-Clause
// The static probes (USDT, provider `vma`) of libvma.so: places where tracers such as bpftrace, perf and gdb can look
// at a running process. One that nobody looks at is a nop; none stands where a message passes. doc/monitoring.md lists
// them with their arguments, and a test compares. Without Debian's systemtap-sdt-dev at build time there are none.
#pragma once

#include <cstdint>

#ifdef VMA_PROBES
#include <sys/sdt.h>
#endif

namespace vma::probe {

enum class Made : int { kConnected, kAccepted, kConnecting };

// A TCP connection was made, or connect() goes on behind the program's back (kConnecting).
[[gnu::always_inline]] inline void connection([[maybe_unused]] int fd, [[maybe_unused]] Made how)
{
#ifdef VMA_PROBES
    STAP_PROBE2(vma, connection, fd, static_cast<int>(how));
#endif
}

// A socket is carried by a device from now on. `way`: vma::stats::Way. `device`: its name.
[[gnu::always_inline]] inline void offload([[maybe_unused]] int fd, [[maybe_unused]] int way,
                                           [[maybe_unused]] const char *device)
{
#ifdef VMA_PROBES
    STAP_PROBE3(vma, offload, fd, way, device);
#endif
}

// It was settled that a socket goes back to the kernel (`accelerated` 1), or stays there (0), and why.
[[gnu::always_inline]] inline void fallback([[maybe_unused]] int fd, [[maybe_unused]] const char *reason,
                                            [[maybe_unused]] bool accelerated)
{
#ifdef VMA_PROBES
    STAP_PROBE3(vma, fallback, fd, reason, static_cast<int>(accelerated));
#endif
}

// Datagrams of a socket are lost, as there was no room. `bytes`: 0 if it isn't known.
[[gnu::always_inline]] inline void drop([[maybe_unused]] int fd, [[maybe_unused]] std::uint64_t bytes,
                                        [[maybe_unused]] std::uint32_t packets)
{
#ifdef VMA_PROBES
    STAP_PROBE3(vma, drop, fd, bytes, packets);
#endif
}

} // namespace vma::probe
