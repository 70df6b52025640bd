// SPDX-License-Identifier: BSD-2-Clause
#include "agent_message.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace vma::guard {

namespace {

constexpr std::uint8_t kLastFlowType = 4;

std::size_t size_of(AgentCode code)
{
    switch (code) {
    case AgentCode::kInit:
        return sizeof(AgentInit);
    case AgentCode::kState:
        return sizeof(AgentState);
    case AgentCode::kExit:
        return sizeof(AgentHeader);
    case AgentCode::kFlow:
        return sizeof(AgentFlow);
    }
    return 0;
}

bool is_host(std::uint32_t address) // as on the wire: not 0, no group, not the broadcast address
{
    std::uint8_t first = 0;
    std::memcpy(&first, &address, 1);
    return address != 0 && first < 224;
}

const char *check_state(const AgentState &state)
{
    if (state.type != SOCK_STREAM && state.type != SOCK_DGRAM)
        return "its socket is neither a stream's nor a datagram's";
    if (state.state > kTcpLast)
        return "there is no such state of TCP";
    const bool open = state.type == SOCK_STREAM && state.state == kTcpEstablished;
    if (open && (!is_host(state.local_address) || !is_host(state.remote_address)))
        return "an established connection has addresses of hosts";
    if (open && (state.local_port == 0 || state.remote_port == 0))
        return "an established connection has ports";
    return nullptr;
}

const char *check_flow(const AgentFlow &flow)
{
    if (flow.type > kLastFlowType)
        return "there is no such type of flow";
    return flow.action != 1 && flow.action != 2 ? "a flow is added (1) or deleted (2)" : nullptr;
}

} // namespace

const char *parse_agent(std::span<const std::byte> bytes, std::size_t length, AgentMessage &message)
{
    if (length < sizeof(AgentHeader) || bytes.size() < sizeof(AgentHeader))
        return "it is shorter than a header, 8 bytes";
    std::memset(&message, 0, sizeof message);
    std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
    const auto code = static_cast<AgentCode>(message.header.code);
    const std::size_t size = size_of(code);
    if (size == 0)
        return "there is no such code";
    if (length != size || bytes.size() != size)
        return "its length is not that of its code";
    if (message.header.pid <= 0)
        return "its process has no number";
    if (message.header.version == 0)
        return "there is no version 0";
    if (message.header.status > (code == AgentCode::kFlow ? 1 : 0))
        return "its status means nothing";
    if (code == AgentCode::kState)
        return check_state(message.state);
    return code == AgentCode::kFlow ? check_flow(message.flow) : nullptr;
}

} // namespace vma::guard
