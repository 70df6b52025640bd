// SPDX-License-Identifier: BSD-2-Clause
// Messages with more bytes than the kernel moves in one call, where it cuts them: many a program keeps the number of
// bytes in an int.
#include <limits.h>
#include <string.h>

#include "compat/src/base/arguments.hpp"
#include "compat/src/base/spare_room.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/tcp/calls.hpp"

namespace vma::sock::tcp {

namespace {

// What is refused is refused whole, and the kernel cuts what it moves itself.
bool is_to_be_cut(const Stream &s, const msghdr &msg)
{
    return msg.msg_iovlen <= IOV_MAX && total_length(msg) > kMostBytes && offloaded(s) && refused_message(msg) == 0;
}

// Of the message, as many bytes as the kernel moves; fewer only where other threads have all room for the parts.
class Cut
{
public:
    explicit Cut(const msghdr &whole) : message_(whole)
    {
        static_assert(sizeof(iovec) * IOV_MAX <= SharedRoom::kSize);
        const Most most = most_of(whole);
        last_ = most.rest;
        room_.take();
        if (most.count != 0 && room_.bytes() != nullptr) {
            memcpy(room_.bytes(), whole.msg_iov, most.count * sizeof(iovec));
            memcpy(room_.bytes() + most.count * sizeof(iovec), &last_, sizeof last_);
            message_.msg_iov = reinterpret_cast<iovec *>(room_.bytes());
            message_.msg_iovlen = most.count + 1;
        } else if (most.bytes != 0) {
            message_.msg_iovlen = most.count;
        } else {
            message_.msg_iov = &last_;
            message_.msg_iovlen = 1;
        }
    }
    Cut(const Cut &) = delete;
    Cut &operator=(const Cut &) = delete;

    msghdr &message() { return message_; }

private:
    msghdr message_;
    iovec last_;
    SharedRoom room_;
    const libc::WhenLeft<SharedRoom, &SharedRoom::give_back> left_{room_};
};

[[gnu::noinline]] ssize_t send_most(Stream &s, int fd, const msghdr &msg, int flags)
{
    Cut cut(msg);
    return tcp::send_msg(s, fd, &cut.message(), flags);
}

[[gnu::noinline]] ssize_t receive_most(Stream &s, int fd, msghdr &msg, int flags)
{
    Cut cut(msg);
    const msghdr &message = cut.message();
    const ssize_t n = tcp::receive_msg(s, fd, &cut.message(), flags);
    msg.msg_namelen = message.msg_namelen;
    msg.msg_controllen = message.msg_controllen;
    msg.msg_flags = message.msg_flags;
    return n;
}

} // namespace

ssize_t send_message(Socket &socket, int fd, const msghdr *msg, int flags)
{
    Stream &s = as_stream(socket);
    return is_to_be_cut(s, *msg) ? send_most(s, fd, *msg, flags) : tcp::send_msg(s, fd, msg, flags);
}

ssize_t receive_message(Socket &socket, int fd, msghdr *msg, int flags)
{
    Stream &s = as_stream(socket);
    return is_to_be_cut(s, *msg) ? receive_most(s, fd, *msg, flags) : tcp::receive_msg(s, fd, msg, flags);
}

} // namespace vma::sock::tcp
