// SPDX-License-Identifier: BSD-2-Clause
// The other face of the tool: what it is where it is called by the name udp_lat, which VMA's manual of 2008 measures
// with. See man/vma_lat.1.
#pragma once

namespace vma::lat {

bool is_udp_lat(const char *path); // argv[0]
int be_udp_lat(int argc, char **argv);

} // namespace vma::lat
