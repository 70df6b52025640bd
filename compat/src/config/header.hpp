// SPDX-License-Identifier: BSD-2-Clause
// The start-up header of the VMA manual: version, command line and the parameters.
#pragma once

#include <cstddef>

#include "compat/src/config/table.hpp"

namespace vma::config {

// At info level the parameters that differ from their defaults (without a profile), at details level all.
void print_header(const Params &params);

// The value of one parameter as header and warnings show it.
void describe_value(const Params &params, const Row &row, char *text, std::size_t size);

} // namespace vma::config
