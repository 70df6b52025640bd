// SPDX-License-Identifier: BSD-2-Clause
// The blocks of a pcapng file (the IETF's draft-ietf-opsawg-pcapng), as bytes behind a buffer. Host byte order, as the
// format has it; times are nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "util/vma_dump/frame.hpp"

namespace vma_dump {

// A file begins with one. `program` is the one that writes it, `system` what it runs on.
void add_section(std::string &out, std::string_view program, std::string_view system);

// Interfaces are numbered from 0, in the order in which they are added. `snap`: readers want one of all of them.
void add_interface(std::string &out, std::string_view name, std::string_view description, std::uint32_t snap);

struct PacketNotes {
    bool is_out;
    std::uint64_t dropped = 0;     // since the last packet of the interface
    std::string_view comment = {}; // none
};
void add_packet(std::string &out, std::uint32_t interface, std::uint64_t time_ns, const Frame &frame,
                const PacketNotes &notes);

// Of an interface, at the end. `received`: with those that a filter has left out.
void add_statistics(std::string &out, std::uint32_t interface, std::uint64_t time_ns, std::uint64_t received,
                    std::uint64_t dropped);

} // namespace vma_dump
