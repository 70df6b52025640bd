// SPDX-License-Identifier: BSD-2-Clause
// How a datagram is cut: every fragment but the last holds a multiple of 8 bytes, as much as the MTU lets it.
#include "prov/vma/src/inet/wire/fragment.hpp"

#include <algorithm>

namespace vma::inet {
namespace {

void write_fragment_header(std::uint8_t *out, Protocol protocol, std::size_t offset, bool more, std::uint32_t id)
{
    out[0] = static_cast<std::uint8_t>(protocol);
    out[1] = 0;
    store16(out + 2, static_cast<std::uint16_t>(offset | more));
    store32(out + 4, id);
}

} // namespace

Fragmenter::Fragmenter(const L2 &l2, const IpOut &ip, std::span<const Bytes> parts, std::uint32_t mtu, std::uint32_t id)
    : l2_(l2), ip_(ip), parts_(parts), id_(id)
{
    for (const Bytes part : parts)
        total_ += part.size();
    single_ = mtu - ip_header_size(ip.target);
    largest_ = ip.target.is_v4() ? single_ : single_ - kIpv6FragmentHeader;
}

std::size_t Fragmenter::next(std::uint8_t *out)
{
    if (done_)
        return 0;
    const std::size_t left = total_ - sent_;
    const bool whole = total_ <= single_;
    const bool more = !whole && left > largest_;
    const std::size_t length = more ? largest_ & ~std::size_t{7} : left;
    const bool ipv4 = ip_.target.is_v4();
    std::size_t at = write_ethernet(out, l2_.target, l2_.source, l2_.vlan, ethertype_of(ip_.target));
    if (whole) {
        at += write_ip_header(out + at, ip_, length);
    } else if (ipv4) {
        IpOut ip = ip_;
        ip.id = static_cast<std::uint16_t>(id_);
        ip.dont_fragment = false;
        at +=
            write_ip_header(out + at, ip, length, static_cast<std::uint16_t>(sent_ / 8 | (more ? kMoreFragments : 0)));
    } else {
        IpOut ip = ip_;
        ip.protocol = Protocol{kFragmentHeader};
        at += write_ip_header(out + at, ip, kIpv6FragmentHeader + length);
        write_fragment_header(out + at, ip_.protocol, sent_, more, id_);
        at += kIpv6FragmentHeader;
    }
    copy_next(out + at, length);
    sent_ += length;
    done_ = !more;
    return at + length;
}

void Fragmenter::copy_next(std::uint8_t *out, std::size_t length)
{
    while (length) {
        const Bytes part = parts_[part_].subspan(part_at_);
        const std::size_t count = std::min(length, part.size());
        if (count) // an empty part may point nowhere, which memcpy may not be given
            memcpy(out, part.data(), count);
        out += count;
        length -= count;
        part_at_ += count;
        if (part_at_ == parts_[part_].size()) {
            ++part_;
            part_at_ = 0;
        }
    }
}

} // namespace vma::inet
