// SPDX-License-Identifier: BSD-2-Clause
// A descriptor that must never be let go of, and how it is sent. Who reads from a pipe sees its end once the last
// writing end is gone, in whatever message or queue it was.
#pragma once

#include "fabtests/unit.hpp"

#include <fcntl.h>
#include <poll.h>
#include <span>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

#include "core/fd.hpp"
#include "vma/passed.hpp"
#include "vma/strangers.hpp"

namespace vma::test {

inline bool send_fds(int socket, std::size_t length, const std::vector<int> &fds, int flags = 0)
{
    char bytes[64] = {};
    iovec part{bytes, length};
    PassedRoom<32> room;
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    pass(message, room, std::span(fds));
    return sendmsg(socket, &message, flags | MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

// Once it is sent nobody here has the writing end.
class Trap
{
public:
    Trap()
    {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        in_ = core::UniqueFd(ends[0]);
        out_ = core::UniqueFd(ends[1]);
    }
    int fd() const { return out_.get(); }
    void is_sent() { out_.reset(); }
    bool is_held() const
    {
        pollfd wait{in_.get(), POLLIN, 0};
        return poll(&wait, 1, 0) == 0;
    }

private:
    core::UniqueFd in_;
    core::UniqueFd out_;
};

inline void forget_what_was_left_open()
{
    g_sockets_left_open = 0;
}

} // namespace vma::test
