// SPDX-License-Identifier: BSD-2-Clause
// Links with one end in the test's own hands, which says what it likes: to a fabric that listens (Victim), and to one
// that connects (Impostor).
#pragma once

#include "prov/vma/test/fixture.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/fd.hpp"
#include "local/cm/message.hpp"

namespace vma::test {

using local::LinkMessage;
using local::MessageType;
using local::RejectReason;

inline sockaddr_un named(const OwnDirectory &directory, const ofi::Address &address)
{
    struct stat net {
    };
    assert_int_equal(::stat("/proc/thread-self/ns/net", &net), 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::snprintf(name.sun_path, sizeof(name.sun_path), "%s/%lu-%u", directory.path().c_str(),
                  static_cast<unsigned long>(net.st_ino), unsigned{address.port()});
    return name;
}

inline LinkMessage message(MessageType type, std::uint32_t connection = 1)
{
    LinkMessage made{};
    made.magic = local::kMessageMagic;
    made.version = local::kMessageVersion;
    made.type = type;
    made.connection = connection;
    if (local::carries_offer(type)) {
        made.offer.doorbell = 1;
        made.offer.tx_doorbell = 2;
        made.brings = local::kBringsSegment | local::kBringsDoorbell | local::kBringsTxDoorbell;
    }
    return made;
}

inline LinkMessage request(const ofi::Address &to, std::uint32_t connection = 1)
{
    LinkMessage made = message(MessageType::request, connection);
    std::memcpy(&made.source, &to.v6, to.size());
    std::memcpy(&made.destination, &to.v6, to.size());
    return made;
}

// One end of a link in the test's own hands.
struct Raw {
    core::UniqueFd fd;

    explicit Raw(core::UniqueFd made) : fd(std::move(made)) {}
    explicit Raw(const sockaddr_un &name) : fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))
    {
        assert_int_equal(::connect(fd.get(), reinterpret_cast<const sockaddr *>(&name), sizeof(name)), 0);
    }

    ssize_t send_bytes(const void *data, std::size_t length, unsigned descriptors = 0) const
    {
        iovec payload{const_cast<void *>(data), length};
        alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
        msghdr header{};
        header.msg_iov = &payload;
        header.msg_iovlen = 1;
        const core::UniqueFd any(::eventfd(0, EFD_CLOEXEC));
        if (descriptors > 0) {
            header.msg_control = control;
            header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
            cmsghdr *rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
            for (unsigned i = 0; i < descriptors; ++i) {
                const int number = any.get();
                std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &number, sizeof(int));
            }
        }
        return ::sendmsg(fd.get(), &header, MSG_NOSIGNAL);
    }
    void send(const LinkMessage &sent, unsigned descriptors = 0) const
    {
        assert_int_equal(send_bytes(&sent, sizeof(sent), descriptors), sizeof(sent));
    }
    // What arrived by now: a message, or its type 0 where the link has ended.
    LinkMessage receive() const
    {
        LinkMessage got{};
        const ssize_t length = ::recv(fd.get(), &got, sizeof(got), MSG_DONTWAIT);
        if (length < 0 && errno == ECONNRESET) // it ended with something of ours unread
            return {};
        assert_true(length == 0 || length == sizeof(got));
        return got;
    }
    bool is_empty() const
    {
        char byte;
        return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    }
};

inline const LinkMessage kNothing{};

// A listening fabric and what it makes of a sequence of messages.
struct Victim {
    OwnDirectory directory;
    Net net;
    ofi::Address address;
    fid_pep *pep;

    Victim() : pep(net.listen(address)) {}
    ~Victim() { assert_int_equal(fi_close(&pep->fid), 0); }

    Raw connect() { return Raw(named(directory, address)); }
    void expect_end(const Raw &raw)
    {
        assert_int_equal(net.poll().result, -FI_EAGAIN);
        LinkMessage got = raw.receive();
        if (got.type == MessageType::hello)
            got = raw.receive();
        assert_memory_equal(&got, &kNothing, sizeof(got));
    }
    // Still serves those who keep to the rules.
    void expect_alive()
    {
        const Raw raw = connect();
        raw.send(message(MessageType::hello));
        raw.send(request(address), local::kOfferFdCount);
        const Event asked = net.wait();
        assert_int_equal(asked.event, FI_CONNREQ);
        assert_int_equal(fi_reject(pep, asked.info->handle, "x", 1), 0);
        assert_true(raw.receive().type == MessageType::hello);
        const LinkMessage answer = raw.receive();
        assert_true(answer.type == MessageType::reject && answer.reason == RejectReason::program);
    }
};

// The other role: the test listens, the provider connects.
struct Impostor {
    OwnDirectory directory;
    Net net;
    ofi::Address address;
    sockaddr_un name{};
    core::UniqueFd listener{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    fid_ep *ep = nullptr;

    Impostor()
    {
        // The first use of a directory tries all its names: let that be over.
        assert_int_equal(fi_close(&net.listen(address)->fid), 0);
        address = ofi::Address();
        address.v4.sin_family = AF_INET;
        address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.set_port(7777);
        name = named(directory, address);
        assert_int_equal(::bind(listener.get(), reinterpret_cast<const sockaddr *>(&name), sizeof(name)), 0);
        assert_int_equal(::listen(listener.get(), 1), 0);
        ep = net.endpoint();
    }
    ~Impostor() { assert_int_equal(fi_close(&ep->fid), 0); }

    Raw connected()
    {
        assert_int_equal(fi_connect(ep, &address.v6, nullptr, 0), 0);
        Raw raw(core::UniqueFd(::accept(listener.get(), nullptr, nullptr)));
        assert_true(raw.receive().type == MessageType::hello);
        assert_true(raw.receive().type == MessageType::request);
        return raw;
    }
    void expect_error(int err)
    {
        const Event event = net.wait();
        assert_int_equal(event.result, -FI_EAVAIL);
        assert_ptr_equal(event.fid, &ep->fid);
        assert_int_equal(event.err, err);
    }
};

} // namespace vma::test
