// SPDX-License-Identifier: BSD-2-Clause
// How processes that share a NIC find each other: a listening socket of the UNIX domain that all who share it hold, by
// a name of the network namespace's, and descriptors that go over it. Who asks shows that it may open such sockets.
#pragma once

#include <cstdint>
#include <span>
#include <sys/types.h>
#include <vector>

#include "core/fd.hpp"

namespace vma::ether {

// A socket that listens for processes of this user which want the interface too. Empty, with errno: EADDRINUSE, some
// process has it already; another user's, too.
[[nodiscard]] core::UniqueFd listen_for_members(unsigned interface) noexcept;

// A connection to who listens, which has been asked. Empty, with errno: EACCES, it is another user's, `holder`; EPERM,
// this process may not open AF_XDP sockets; ECONNREFUSED, nobody listens, whoever has the name; EAGAIN, as many wait
// for an answer as may.
[[nodiscard]] core::UniqueFd ask_member(unsigned interface, uid_t &holder) noexcept;

enum class Asked { kNothingYet, kRight, kWrong };
// Of a connection that was accepted: whether who is there may have what the interface's sockets are made of.
[[nodiscard]] Asked read_question(int connection) noexcept;

// The answer: `status` 0 and all the descriptors, or a negative errno and none. False: it is gone.
[[nodiscard]] bool send_answer(int connection, int status, std::span<const int> descriptors) noexcept;
// The answer's status; -ETIMEDOUT: nobody has answered in that time; -ECONNRESET: who listened has ended; -EMFILE: this
// process may not have as many descriptors.
[[nodiscard]] int receive_answer(int connection, int milliseconds, std::vector<core::UniqueFd> &descriptors) noexcept;

} // namespace vma::ether
