// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/way.hpp"

#include <algorithm>

namespace vma::lat {

namespace {

bool alike(const Way &a, const Way &b)
{
    return a.carrier == b.carrier && a.other_user == b.other_user && a.introduced == b.introduced && a.user == b.user &&
           a.guessed == b.guessed && a.device == b.device && a.reason == b.reason;
}

void add(Way &to, const Way &way)
{
    to.sockets += way.sockets;
    to.bytes += way.bytes;
    to.kernel_bytes += way.kernel_bytes;
}

bool accelerated(const Way &way)
{
    return way.carrier == Carrier::kLocal || way.carrier == Carrier::kRdma || way.carrier == Carrier::kPort;
}

std::string carrier_text(const Way &way)
{
    switch (way.carrier) {
    case Carrier::kLocal:
        return std::string("shared memory") +
               (way.other_user    ? format(" with user %u", way.user)
                : !way.introduced ? std::string(" (same user)")
                                  : std::string()) +
               (way.introduced ? " across network namespaces, introduced by vmad" : "");
    case Carrier::kRdma:
        return "RDMA device " + way.device;
    case Carrier::kPort:
        return "Ethernet port " + way.device;
    default:
        return name_of(way.carrier) + (": " + way.reason);
    }
}

} // namespace

const char *name_of(Carrier carrier)
{
    static constexpr const char *kNames[] = {"unknown", "kernel", "local", "rdma", "port"};
    return kNames[static_cast<std::size_t>(carrier)];
}

std::vector<Way> merged(const std::vector<Way> &ways)
{
    std::vector<Way> out;
    for (const Way &way : ways) {
        const auto same = std::find_if(out.begin(), out.end(), [&way](const Way &one) { return alike(one, way); });
        if (same == out.end())
            out.push_back(way);
        else
            add(*same, way);
    }
    std::stable_sort(out.begin(), out.end(), [](const Way &a, const Way &b) { return a.sockets > b.sockets; });
    if (out.size() <= kMostWays)
        return out;
    Way rest;
    rest.sockets = 0;
    rest.reason = "more ways than are listed";
    for (std::size_t i = kMostWays - 1; i < out.size(); ++i)
        add(rest, out[i]);
    out.resize(kMostWays - 1);
    out.push_back(rest);
    return out;
}

void explain(Side &mine, const Side &theirs, Kind kind)
{
    for (Way &way : mine.ways) {
        if (way.carrier != Carrier::kKernel || !way.guessed)
            continue;
        const char *known = nullptr;
        if (!theirs.library)
            known = "the other side has no library";
        else if (kind == Kind::kUdp && theirs.network != mine.network)
            known = "datagrams to another network namespace go by the kernel";
        else if (kind == Kind::kUdp && theirs.user != mine.user)
            known = "datagrams to another user go by the kernel";
        way.reason = known != nullptr ? known : way.reason;
        way.guessed = known == nullptr;
    }
    mine.ways = merged(mine.ways);
}

std::string text_of(const Way &way)
{
    std::string text = carrier_text(way);
    if (way.kernel_bytes != 0 && (accelerated(way) || way.kernel_bytes < way.bytes))
        text += format(", %llu of %llu bytes by the kernel", static_cast<unsigned long long>(way.kernel_bytes),
                       static_cast<unsigned long long>(way.bytes));
    return text;
}

} // namespace vma::lat
