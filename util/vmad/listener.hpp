// SPDX-License-Identifier: BSD-2-Clause
// The socket that processes find the guardian by. One guardian a path.
#pragma once

#include <string>

#include "core/fd.hpp"

namespace vma::guard {

class Listener
{
public:
    Listener() = default;
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;
    ~Listener(); // the path is gone

    // An empty text, or what went wrong. The last folder of the path is made if it is missing.
    std::string open(const char *path);
    int fd() const { return socket_.get(); }

private:
    std::string take_place(const std::string &path);

    core::UniqueFd lock_; // as long as it is held, a socket at the path is ours, or a dead guardian's
    core::UniqueFd socket_;
    std::string path_; // that is ours
};

} // namespace vma::guard
