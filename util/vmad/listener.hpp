// SPDX-License-Identifier: BSD-2-Clause
// The socket that processes find the guardian by. One guardian a path.
#pragma once

#include <string>
#include <sys/types.h>
#include <utility>

#include "core/fd.hpp"

namespace vma::guard {

class Listener
{
public:
    Listener() = default;
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;
    ~Listener(); // the path is gone

    // An empty text, or what went wrong. The last folder of the path is made if it is missing. `mode`: who may connect;
    // at first this user and root.
    std::string open(const char *path, mode_t mode = 0600);
    int fd() const { return socket_.get(); }
    // The next connection, which never blocks and which no program that is executed inherits. 0, or why there is none:
    // an errno, EAGAIN where nobody waits.
    int accept(core::UniqueFd &connection) const;

private:
    std::string take_place(const std::string &path);

    core::UniqueFd lock_; // as long as it is held, a socket at the path is ours, or a dead guardian's
    core::UniqueFd socket_;
    std::string path_; // that is ours
};

// An error of accept() after which who waits is still there, but this process or host has no room for the connection.
bool is_shortage(int error);

// admit(connection) for all that wait. 0, or an errno for which is_shortage() holds.
template <typename Admit> int accept_all(const Listener &listener, Admit admit)
{
    core::UniqueFd connection;
    int error = 0;
    while ((error = listener.accept(connection)) == 0)
        admit(std::move(connection));
    return is_shortage(error) ? error : 0;
}

} // namespace vma::guard
