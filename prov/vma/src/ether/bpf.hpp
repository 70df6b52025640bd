// SPDX-License-Identifier: BSD-2-Clause
// The calls of libbpf that steering takes: those that are one bpf(2) each, print nothing and pin nothing. libbpf is opened
// when the first port is (core/library.hpp).
#pragma once

#include <bpf/bpf.h>
#include <cerrno>
#include <cstdint>
#include <span>

#include "core/fd.hpp"
#include "core/library.hpp"

namespace vma::ether::bpf {

// name of the member, name of the symbol
#define VMA_BPF_FUNCTIONS(X)                                                                                           \
    X(create_map, bpf_map_create)                                                                                      \
    X(load, bpf_prog_load)                                                                                             \
    X(create_link, bpf_link_create)                                                                                    \
    X(update, bpf_map_update_elem)                                                                                     \
    X(erase, bpf_map_delete_elem)                                                                                      \
    X(look_up, bpf_map_lookup_elem)

// What takes the place of a function where there is no libbpf.
template <typename... Arguments> int unavailable(Arguments...) noexcept
{
    errno = ELIBACC;
    return -ELIBACC;
}

// Each gives 0 or a descriptor, or a negative errno, which is in errno too. -ELIBACC: libbpf isn't installed. Of an element:
// -E2BIG, the map is full; -EEXIST, -ENOENT.
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
// Where the verifier refuses the program, the end of what it says is logged. `flags`: BPF_F_...; EINVAL: the kernel knows none of
// them.
[[nodiscard]] core::UniqueFd load_xdp(const char *name, std::span<const bpf_insn> code, std::uint32_t flags) noexcept;
// Attaches the program to an interface for as long as the descriptor is open anywhere (Linux 5.9): nothing outlives its owner.
// `flags`: XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE. EBUSY: the interface has a program already.
[[nodiscard]] core::UniqueFd attach_xdp(int program, unsigned interface, std::uint32_t flags) noexcept;

} // namespace vma::ether::bpf
