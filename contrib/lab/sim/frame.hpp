// SPDX-License-Identifier: BSD-2-Clause
// An Ethernet frame as the simulated NIC's parser sees it: what flow rules speak of, and its checksums. Multi-byte
// fields stay as they are on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vma::sim {

struct Headers {
    enum class Ip { none, v4, v6 };

    const std::uint8_t *target_mac = nullptr;
    const std::uint8_t *source_mac = nullptr;
    std::uint16_t ether_type = 0; // behind the tag, if there is one
    std::uint16_t vlan_tag = 0;
    Ip ip = Ip::none;
    const std::uint8_t *source = nullptr; // 4 or 16 bytes
    const std::uint8_t *target = nullptr;
    std::uint8_t protocol = 0;
    bool ports_known = false; // TCP or UDP, and no fragment
    std::uint16_t source_port = 0;
    std::uint16_t target_port = 0;
    std::size_t ip_at = 0;
    std::size_t transport_at = 0;
    std::size_t end = 0; // of the IP packet; padding may follow
};

// False: shorter than an Ethernet header. What is malformed behind it has no IP, or no ports.
bool parse(std::span<const std::uint8_t> frame, Headers &headers);

// Those of IPv4's header and of TCP or UDP: whether both are right (UDP's may be missing), and made anew. A frame
// without ports has none that a NIC looks at: wrong, and left alone.
bool checksums_right(std::span<const std::uint8_t> frame, const Headers &headers);
void write_checksums(std::span<std::uint8_t> frame, const Headers &headers);

// A TCP segment cut into frames with `size` bytes of data each, as a ConnectX does it: the headers of all are the
// whole's, with their own lengths, ids (IPv4: one up for each), and sequence numbers; CWR stays with the first, PSH and
// FIN with the last. Checksums are left alone. False: `header` is not a TCP segment's.
bool cut(std::span<const std::uint8_t> header, std::span<const std::uint8_t> data, std::size_t size,
         std::vector<std::vector<std::uint8_t>> &frames);

} // namespace vma::sim
