// SPDX-License-Identifier: BSD-2-Clause
// The changes of a connection's state that RFC 9293 has, and a watch on those that an engine makes.
#pragma once

#include <string>

#include "prov/vma/src/inet/tcp/tcp.hpp"

namespace vma::inet {

struct Transition {
    TcpState from;
    TcpState to;
};

// Figure 5 (3.3.2). Listeners are a table of their own, so what begins or ends in LISTEN there does so in CLOSED here;
// and an acknowledgement of our FIN that comes with the peer's passes by FIN-WAIT-2.
inline constexpr Transition kTransitions[] = {
    {TcpState::kClosed, TcpState::kSynSent},          {TcpState::kClosed, TcpState::kSynReceived},
    {TcpState::kSynSent, TcpState::kSynReceived},     {TcpState::kSynSent, TcpState::kEstablished},
    {TcpState::kSynReceived, TcpState::kEstablished}, {TcpState::kSynReceived, TcpState::kFinWait1},
    {TcpState::kSynReceived, TcpState::kClosed},      {TcpState::kEstablished, TcpState::kFinWait1},
    {TcpState::kEstablished, TcpState::kCloseWait},   {TcpState::kFinWait1, TcpState::kFinWait2},
    {TcpState::kFinWait1, TcpState::kClosing},        {TcpState::kFinWait2, TcpState::kTimeWait},
    {TcpState::kClosing, TcpState::kTimeWait},        {TcpState::kCloseWait, TcpState::kLastAck},
    {TcpState::kLastAck, TcpState::kClosed},          {TcpState::kTimeWait, TcpState::kClosed},
};

inline constexpr unsigned kTcpStates = static_cast<unsigned>(TcpState::kTimeWait) + 1;

class Transitions
{
public:
    void watch(Tcp &tcp)
    {
        tcp.set_state_hook(
            [](void *self, const Connection &c, TcpState next) { static_cast<Transitions *>(self)->change(c, next); },
            this);
    }

    void change(const Connection &c, TcpState next)
    {
        seen[static_cast<unsigned>(c.state)][static_cast<unsigned>(next)] = true;
        if (wrong_.empty() && !legal(c, next))
            wrong_ = "a connection goes from " + name(c.state) + " to " + name(next);
    }

    const std::string &wrong() const { return wrong_; } // the first that is none of RFC 9293's

    static inline bool seen[kTcpStates][kTcpStates] = {}; // by any watch

    static bool seen_once(const Transition &t)
    {
        return seen[static_cast<unsigned>(t.from)][static_cast<unsigned>(t.to)];
    }

    static std::string name(TcpState state)
    {
        constexpr const char *kNames[kTcpStates] = {"CLOSED",     "SYN-SENT",   "SYN-RECEIVED", "ESTABLISHED",
                                                    "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT",   "CLOSING",
                                                    "LAST-ACK",   "TIME-WAIT"};
        return kNames[static_cast<unsigned>(state)];
    }

private:
    static bool legal(const Connection &c, TcpState next)
    {
        for (const Transition &t : kTransitions)
            if (t.from == c.state && t.to == next)
                return true;
        if (next == TcpState::kClosed) // RST, ABORT and time-outs end it in any state (3.10.5, 3.10.7.4, 3.10.8)
            return c.error != 0 || c.orphan;
        return c.adopted && c.state == TcpState::kClosed && next == TcpState::kEstablished; // another TCP has opened it
    }

    std::string wrong_;
};

} // namespace vma::inet
