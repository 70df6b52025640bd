// SPDX-License-Identifier: BSD-2-Clause
#include "request.hpp"

#include <algorithm>
#include <cstring>

namespace vma::guard {

Asked parse_request(std::span<const std::byte> bytes, std::size_t sent, unsigned descriptors, std::uint32_t &id)
{
    broker::Request request;
    if (bytes.size() < sizeof request || sent < sizeof request)
        return Asked::kGarbage;
    std::memcpy(&request, bytes.data(), sizeof request);
    if (request.magic != broker::kMagic || request.length != sent)
        return Asked::kGarbage;
    id = request.id;
    if (request.version != broker::kVersion)
        return Asked::kOtherVersion;
    if (sent != sizeof request)
        return Asked::kGarbage;
    if (request.kind == broker::Kind::kAsk && descriptors == 1)
        return Asked::kAsk;
    return request.kind == broker::Kind::kCancel && descriptors == 0 ? Asked::kCancel : Asked::kGarbage;
}

broker::Answer refusal(std::uint32_t id, broker::Result result)
{
    broker::Answer answer{};
    answer.header = {broker::kMagic, broker::kVersion, broker::kAnswerBase, broker::Kind::kAnswer, id};
    answer.result = result;
    return answer;
}

broker::Answer introduction(std::uint32_t id, broker::Role role, const Person &other, std::uint64_t pair)
{
    broker::Answer answer = refusal(id, broker::Result::kMet);
    answer.role = role;
    answer.user = other.user;
    answer.group = other.group;
    answer.process = other.process;
    answer.pair = pair;
    const std::size_t length = std::min(other.cgroup.size(), broker::kMostCgroup);
    answer.cgroup_length = static_cast<std::uint32_t>(length);
    std::memcpy(answer.cgroup, other.cgroup.data(), length);
    answer.header.length = static_cast<std::uint16_t>(broker::kAnswerBase + length);
    return answer;
}

} // namespace vma::guard
