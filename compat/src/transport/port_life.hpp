// SPDX-License-Identifier: BSD-2-Clause
// The end of a stream's time on a port: entries of kPort. How it begins is in port.hpp.
#pragma once

namespace vma::sock {

class Socket;

void leave_port(Socket &s);
void port_went_down(Socket &s, const char *why);

} // namespace vma::sock
