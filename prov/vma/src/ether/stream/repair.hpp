// SPDX-License-Identifier: BSD-2-Clause
// A connection of the kernel's, taken out of its socket and put back (TCP_REPAIR, tcp(7)). In between the socket is a
// shell: established, empty, deaf, and silent when it is closed.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include <sys/socket.h>

#include "ether/stream/kernel_return.hpp"
#include "inet/tcp/handover.hpp"

namespace vma::ether {

// Bytes of a queue. As long as there is memory: what a peer sends decides how many they are.
class QueueCopy
{
public:
    [[nodiscard]] bool resize(std::size_t size) noexcept // and all of them are to be written
    {
        bytes_.reset(size != 0 ? new (std::nothrow) std::uint8_t[size] : nullptr);
        size_ = bytes_ != nullptr ? size : 0;
        return size_ == size;
    }
    void clear() noexcept { static_cast<void>(resize(0)); }
    std::span<std::uint8_t> all() noexcept { return {bytes_.get(), size_}; }
    std::span<const std::uint8_t> all() const noexcept { return {bytes_.get(), size_}; }
    std::size_t size() const noexcept { return size_; }

private:
    std::unique_ptr<std::uint8_t[]> bytes_;
    std::size_t size_ = 0;
};

struct QueueSizes { // bytes
    std::size_t queued;
    std::size_t unread;
};

// What ends a connection that is put back: the kernel hears it as if the peer had sent it.
enum class Ending : std::uint8_t { kNone, kFin, kRst };

// Not thread-safe; nobody else may be in a call on the socket. Needs CAP_NET_ADMIN.
class KernelConnection
{
public:
    inet::TcpHandover handover;
    QueueCopy queued; // from handover.una on
    QueueCopy unread; // up to handover.rcv

    // Reads whose connection it is: handover.flow. Nothing changes. 0 or a negative errno: -ENOTCONN unless it is
    // established, -EBUSY with a socket filter of the program's, -EAGAIN with more bytes in a queue than `most`.
    [[nodiscard]] int look(int fd, const QueueSizes &most) noexcept;
    // From here on the kernel drops what comes for it; state and bytes are read. On failure all is as before, but what
    // came meanwhile.
    [[nodiscard]] int take_out() noexcept;
    // The socket becomes empty. To be called once everything is somewhere else; on failure undo(). handover.nxt is what
    // it is at last: until now the kernel may send. -EAGAIN: it has also taken a segment that was in its hands when it
    // became deaf.
    [[nodiscard]] int empty() noexcept;
    void undo() noexcept; // of take_out()

    // The number that the socket has now.
    void use(int fd) noexcept { fd_ = fd; }
    // The connection is the socket's again, as `handover` and the queues say, but the kernel still drops what comes for
    // it. Until then nothing of it may come to the kernel, which for a moment has no such socket, and would reset it.
    [[nodiscard]] int put_back() noexcept;
    // The kernel carries it on, with the end that the peer has put to it: what comes from now on is its. Where either
    // fails, the connection is lost: give_up().
    [[nodiscard]] int resume(Ending ending, KernelReturn &back) noexcept;
    // What the program has sent and the port has not.
    [[nodiscard]] int finish() noexcept;
    // The socket has no connection any more.
    void give_up() noexcept;

private:
    struct Address {
        sockaddr_storage name;
        socklen_t length;
    };
    struct Buffers {
        int send;
        int receive;
        int locks;
        bool wider;
        bool has_locks;
    };

    int read_state() noexcept;
    int count_queues(QueueSizes &sizes) const noexcept;
    int read_queues() noexcept;
    int bind_again() noexcept;
    int connect_again() noexcept;
    int restore_options() noexcept;
    int restore_queues() noexcept;
    int restore_window() noexcept;
    int connect_with_segments() noexcept;
    void widen_buffers() noexcept;
    void narrow_buffers() noexcept;
    int tell_ending(Ending ending, KernelReturn &back) const noexcept;

    int fd_ = -1;
    QueueSizes most_{};
    int reuse_ = 0;     // SO_REUSEADDR, which leaving repair mode switches off
    Buffers buffers_{}; // as they were
    Address local_{};
    Address peer_{};
};

} // namespace vma::ether
