// SPDX-License-Identifier: BSD-2-Clause
// Where the metrics are served: --listen's word, and the socket that it stands for.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace vma_stats {

struct ListenAddress {
    sockaddr_storage bytes = {};
    socklen_t length = 0;
    std::string path; // of a Unix socket
};

// PORT (of 127.0.0.1), ADDRESS:PORT, [ADDRESS]:PORT, unix:PATH. No name is looked up but localhost. False: it is none
// of these.
bool read_listen_address(const std::string &word, ListenAddress &out);

// A listening socket that doesn't block, or -1: errno. A Unix socket that nobody listens on any more is replaced.
int open_listener(const ListenAddress &address);

// "http://127.0.0.1:9477/metrics", with the port that the kernel has chosen for 0; "unix:PATH".
std::string describe_listener(int fd, const ListenAddress &address);

} // namespace vma_stats
