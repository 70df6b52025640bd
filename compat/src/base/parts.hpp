// SPDX-License-Identifier: BSD-2-Clause
// Walks the parts of a message.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace vma::sock {

// Those with bytes in them, from the byte `skip` of the message on: while next() is true there is one.
class Parts
{
public:
    Parts(const msghdr &msg, std::size_t skip) : at_(msg.msg_iov), end_(at_ + msg.msg_iovlen), skip_(skip) {}

    bool next()
    {
        for (; at_ != end_; ++at_) {
            if (skip_ < at_->iov_len) {
                bytes_ = static_cast<std::uint8_t *>(at_->iov_base) + skip_;
                length_ = at_->iov_len - skip_;
                skip_ = 0;
                ++at_;
                return true;
            }
            skip_ -= at_->iov_len;
        }
        return false;
    }

    std::uint8_t *bytes() const { return bytes_; }
    std::size_t length() const { return length_; } // not 0
    bool is_last() const { return at_ == end_; }   // the message has no other behind it, with bytes or without

private:
    const iovec *at_; // behind the part
    const iovec *end_;
    std::size_t skip_;
    std::uint8_t *bytes_ = nullptr;
    std::size_t length_ = 0;
};

} // namespace vma::sock
