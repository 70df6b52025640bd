// SPDX-License-Identifier: BSD-2-Clause
// A record as a line of text, much as tcpdump writes one.
#pragma once

#include <sys/types.h>

#include <string>

#include "compat/src/stats/capture_layout.hpp"

namespace vma_dump {

void add_line(std::string &out, const vma::stats::CaptureRecord &head, const std::string &device,
              const std::string &program, pid_t pid);

} // namespace vma_dump
