// SPDX-License-Identifier: BSD-2-Clause
// Options of a stream that is on an Ethernet port: the kernel's socket keeps them, and the port's TCP is told. Private to
// compat/src/socket.
#pragma once

namespace vma::sock {

class Socket;

// Lift, tx and rx lock held, the endpoint is open. All that the kernel's socket has been told holds for the endpoint; the kernel itself
// sends no keep-alives from here on. 0 or a negative errno.
int begin_port_options(Socket &s, int fd);
void end_port_options(Socket &s, int fd); // the kernel does it itself again

} // namespace vma::sock
