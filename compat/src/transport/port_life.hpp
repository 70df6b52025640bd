// SPDX-License-Identifier: BSD-2-Clause
// The end of a stream's time on a port: entries of kPort. How it begins is in port.hpp.
#pragma once

namespace vma::sock {

class Stream;

void leave_port(Stream &s);
void port_went_down(Stream &s, const char *why);

} // namespace vma::sock
