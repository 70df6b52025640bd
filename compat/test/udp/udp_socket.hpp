// SPDX-License-Identifier: BSD-2-Clause
// What the tests of UDP sockets over the real provider share: sockets that are made, tracked and closed as the
// interception layer does it, datagrams that tell who sent them and whether they are whole, and how a pair of sockets
// is accelerated.
#pragma once

#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/names.hpp"
#include "compat/src/udp/state.hpp"
#include "fabtests/patience.hpp"

namespace vma::test {

inline constexpr std::uint32_t kEnd = ~0U; // number of a datagram that ends whoever receives it
inline constexpr std::size_t kHead = 8;
inline constexpr std::size_t kLongest = 1200;

// Its length and bytes follow from who sent it and the how-manieth it is.
struct Datagram {
    std::uint32_t sender;
    std::uint32_t number;
    std::uint8_t body[kLongest];

    void fill(std::uint32_t by, std::uint32_t n)
    {
        sender = by;
        number = n;
        for (std::size_t i = 0; i < length() - kHead; ++i)
            body[i] = byte_at(i);
    }
    std::size_t length() const { return kHead + mix() % (kLongest + 1); }
    bool is_whole(ssize_t received) const
    {
        if (received < static_cast<ssize_t>(kHead) || static_cast<std::size_t>(received) != length())
            return false;
        for (std::size_t i = 0; i < length() - kHead; ++i)
            if (body[i] != byte_at(i))
                return false;
        return true;
    }

private:
    std::uint32_t mix() const { return ((sender * 0x9e3779b9U) ^ (number * 0x85ebca6bU)) >> 7; }
    std::uint8_t byte_at(std::size_t i) const { return static_cast<std::uint8_t>(mix() + i * 31); }
};
static_assert(sizeof(Datagram) == kHead + kLongest);

inline sockaddr_in loopback_address(std::uint16_t port = 0)
{
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = port;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

class UdpSocket
{
public:
    UdpSocket() : UdpSocket(loopback_address()) {}
    explicit UdpSocket(const sockaddr_in &bound) : fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), address(bound)
    {
        socklen_t length = sizeof address;
        sock::track_datagram(fd, AF_INET, false);
        s = sock::lookup(fd);
        const int on = 1;
        if (address.sin_port != 0)
            set(SOL_SOCKET, SO_REUSEADDR, on);
        if (::bind(fd, reinterpret_cast<const sockaddr *>(&address), length) != 0)
            UNIT_FAIL("bind");
        ::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length);
        set(SOL_SOCKET, SO_RCVTIMEO,
            timeval{patience::seconds(), 0}); // a datagram that is lost fails the test instead of stopping it
    }
    ~UdpSocket()
    {
        sock::forget(fd); // nothing, where close() was called
        ::close(fd);
    }
    UdpSocket(const UdpSocket &) = delete;
    UdpSocket &operator=(const UdpSocket &) = delete;

    // For calls of other threads are under way: the number is given to nobody else before they are out.
    // ThreadSanitizer, for which the kernel's close would be a race with them, sees none.
    void close() const
    {
        sock::forget(fd);
        const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        ::syscall(SYS_dup3, nothing, fd, O_CLOEXEC);
        ::close(nothing);
    }
    template <typename T> int set(int level, int name, const T &value)
    {
        return sock::set_option(*s, fd, level, name, &value, sizeof value);
    }
    ssize_t send(const Datagram &datagram, const sockaddr_in &to, int flags = 0) const
    {
        return sock::send_to(*s, fd, &datagram, datagram.length(), flags, reinterpret_cast<const sockaddr *>(&to),
                             sizeof to);
    }
    ssize_t receive(Datagram &datagram, int flags = 0) const
    {
        return sock::receive(*s, fd, &datagram, sizeof datagram, flags);
    }
    bool send_number(std::uint32_t sender, std::uint32_t number, const sockaddr_in &to) const
    {
        Datagram datagram;
        datagram.fill(sender, number);
        return send(datagram, to) == static_cast<ssize_t>(datagram.length());
    }
    // How many it has sent by the kernel; what an unchanged count does not show went by an endpoint.
    std::uint32_t kernel_sends() const { return sock::udp::state_of(*s).kernel_sends.load(); }
    bool takes_by_endpoint() const { return sock::is_offloaded(*s) && sock::udp::state_of(*s).cookie.load() != 0; }

    int fd;
    sock::Socket *s;
    sockaddr_in address;
};

// Datagrams until one goes by the endpoint; all are read.
inline bool accelerate(const UdpSocket &from, const UdpSocket &to)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    Datagram received;
    while (sock::now_ns() < until) {
        const std::uint32_t before = from.kernel_sends();
        if (!from.send_number(0, 0, to.address) || !received.is_whole(to.receive(received)))
            return false;
        if (from.kernel_sends() == before)
            return to.takes_by_endpoint();
    }
    return false;
}

struct Direction {
    const UdpSocket &from;
    const UdpSocket &to;
};

// The same of several, so that nothing is left to be looked up: what accelerates one changes names, and names send the
// others' next datagram to a look that the helper thread's own work may forbid. In the last round all find the names as
// those before have left them.
inline bool accelerate_all(const std::vector<Direction> &directions)
{
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
    const auto kernel_sends = [&directions] {
        std::uint32_t sum = 0;
        for (const Direction &one : directions)
            sum += one.from.kernel_sends();
        return sum;
    };
    for (bool changed = true; changed;) {
        const std::uint32_t names = sock::udp::generation();
        const std::uint32_t before = kernel_sends();
        for (const Direction &one : directions)
            if (sock::now_ns() >= until || !accelerate(one.from, one.to))
                return false;
        changed = names != sock::udp::generation() || before != kernel_sends();
    }
    return true;
}

// So many datagrams may be out at a time that no queue is too short for them.
class Window
{
public:
    explicit Window(int size) : room_(size) {}
    bool enter() // false: what is out does not come back
    {
        std::unique_lock lock(mutex_);
        const bool entered =
            changed_.wait_for(lock, std::chrono::nanoseconds(patience::nanoseconds()), [this] { return room_ > 0; });
        room_ -= entered ? 1 : 0;
        return entered;
    }
    void leave()
    {
        const std::lock_guard lock(mutex_);
        ++room_;
        changed_.notify_one();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int room_;
};

// A directory of names for this test alone, and the parameters, as they are when the library is loaded.
class Library
{
public:
    Library()
    {
        if (::mkdtemp(directory_) == nullptr)
            UNIT_FAIL("mkdtemp");
        ::setenv("VMA_SHM_DIR", directory_, 1);
        ::setenv("VMA_LIFT_AFTER", "1", 1);
        ::setenv("VMA_RX_POLL", "50", 0);                  // waits sleep too; and two processors are all there may be
        ::setenv("VMA_PROVIDER", ".libs/libvma-fi.so", 0); // make check runs at the top of the build
        ::setenv("VMA_TRACELEVEL", "warn", 0);
        libc::resolve_real();
        config::load_params();
    }
    ~Library()
    {
        const std::string command = std::string("rm -rf ") + directory_;
        if (::system(command.c_str()) != 0)
            print_error("%s failed\n", command.c_str());
    }
    Library(const Library &) = delete;
    Library &operator=(const Library &) = delete;

private:
    char directory_[32] = "/tmp/vma-udp-XXXXXX";
};

} // namespace vma::test
