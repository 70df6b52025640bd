// SPDX-License-Identifier: BSD-2-Clause
// FI_OPT_VMA_TCP: how TCP is done, as programs say it and as the stack has it.
#pragma once

#include <cstddef>

#include "inet/tcp/connection.hpp"

namespace vma::ether {

// fi_setopt: 0, or -FI_EINVAL and `settings` are what they were.
int read_tcp_option(const void *value, std::size_t length, inet::TcpSettings &settings) noexcept;
// fi_getopt: 0 or -FI_ETOOSMALL.
int give_tcp_option(const inet::TcpSettings &settings, void *value, std::size_t *length) noexcept;

} // namespace vma::ether
