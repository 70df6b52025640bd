// SPDX-License-Identifier: BSD-2-Clause
// The calls of libbpf that steering takes: those that are one bpf(2) or rtnetlink request each, print nothing and pin
// nothing. libbpf is opened when the first NIC is (core/library.hpp).
#pragma once

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <cerrno>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/fd.hpp"
#include "core/library.hpp"

namespace vma::ether::bpf {

// name of the member, name of the symbol
#define VMA_BPF_FUNCTIONS(X)                                                                                           \
    X(create_map, bpf_map_create)                                                                                      \
    X(load, bpf_prog_load)                                                                                             \
    X(create_link, bpf_link_create)                                                                                    \
    X(query_xdp, bpf_xdp_query_id)                                                                                     \
    X(update, bpf_map_update_elem)                                                                                     \
    X(erase, bpf_map_delete_elem)                                                                                      \
    X(look_up, bpf_map_lookup_elem)                                                                                    \
    X(next_key, bpf_map_get_next_key)                                                                                  \
    X(load_btf, btf__load_vmlinux_btf)                                                                                 \
    X(find_btf, btf__find_by_name_kind)                                                                                \
    X(free_btf, btf__free)

// What takes the place of a function where there is no libbpf.
template <typename Result, typename... Arguments> Result unavailable(Arguments...) noexcept
{
    errno = ELIBACC;
    if constexpr (std::is_integral_v<Result>)
        return -ELIBACC;
    else
        return Result();
}

// Each gives 0 or a descriptor, or a negative errno, which is in errno too. -ELIBACC: libbpf isn't installed. Of an
// element: -E2BIG, the map is full; -EEXIST, -ENOENT.
struct Table {
#define VMA_BPF_MEMBER(member, symbol) decltype(&::symbol) member = unavailable;
    VMA_BPF_FUNCTIONS(VMA_BPF_MEMBER)
#undef VMA_BPF_MEMBER
};

// Opens libbpf the first time; it stays open. Thread-safe.
const Table &table() noexcept;

// These give an empty descriptor, with errno, where they fail. Names are what bpftool shows: 15 characters, cut off.
[[nodiscard]] core::UniqueFd create_map(const char *name, bpf_map_type type, std::uint32_t key_size,
                                        std::uint32_t value_size, std::uint32_t entries) noexcept;
struct XdpLoad {
    std::uint32_t flags = 0;       // BPF_F_...; EINVAL: the kernel knows none of them
    unsigned interface = 0;        // for BPF_F_XDP_DEV_BOUND_ONLY
    bool calls_the_kernel = false; // its own functions, not its helpers
};
// Where the verifier refuses the program, the end of what it says is logged.
[[nodiscard]] core::UniqueFd load_xdp(const char *name, std::span<const bpf_insn> code, const XdpLoad &how) noexcept;
// The BTF id of a function of the kernel itself; -ENOENT: it has none of that name, or doesn't tell
// (CONFIG_DEBUG_INFO_BTF). Reads some MiB: not for each frame.
[[nodiscard]] int kernel_function(const char *name) noexcept;
// Attaches the program to an interface for as long as the descriptor is open anywhere (Linux 5.9): nothing outlives its
// owner. `flags`: XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE. EBUSY: the interface has a program already.
[[nodiscard]] core::UniqueFd attach_xdp(int program, unsigned interface, std::uint32_t flags) noexcept;
// Whether anybody's program is attached to it, in any mode. False where the kernel doesn't tell.
[[nodiscard]] bool has_xdp(unsigned interface) noexcept;

} // namespace vma::ether::bpf
