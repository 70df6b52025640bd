// SPDX-License-Identifier: BSD-2-Clause
// Control messages of a receive, one after the other, as the kernel puts them: MSG_CTRUNC once there is no room.
#pragma once

#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace vma {

class ControlWriter
{
public:
    explicit ControlWriter(msghdr *msg)
        : msg_(msg), at_(static_cast<std::uint8_t *>(msg->msg_control)),
          left_(msg->msg_control != nullptr ? msg->msg_controllen : 0)
    {
    }
    ~ControlWriter() { msg_->msg_controllen = msg_->msg_control != nullptr ? msg_->msg_controllen - left_ : 0; }
    ControlWriter(const ControlWriter &) = delete;
    ControlWriter &operator=(const ControlWriter &) = delete;

    template <typename T> void put(int level, int type, const T &value)
    {
        if (left_ < sizeof(cmsghdr)) {
            msg_->msg_flags |= MSG_CTRUNC;
            return;
        }
        std::size_t length = CMSG_LEN(sizeof value);
        if (left_ < length) {
            msg_->msg_flags |= MSG_CTRUNC;
            length = left_;
        }
        cmsghdr header = {};
        header.cmsg_len = length;
        header.cmsg_level = level;
        header.cmsg_type = type;
        memcpy(at_, &header, sizeof header);
        memcpy(at_ + CMSG_LEN(0), &value, length - CMSG_LEN(0));
        const std::size_t space = std::min(CMSG_SPACE(sizeof value), left_);
        at_ += space;
        left_ -= space;
    }

private:
    msghdr *const msg_;
    std::uint8_t *at_;
    std::size_t left_;
};

} // namespace vma
