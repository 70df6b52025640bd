// SPDX-License-Identifier: BSD-2-Clause
// A peer of a reliable-datagram endpoint each of whose steps is the test's: its name, the ring that it writes, the one
// that it reads, and the ends of them.
#pragma once

#include "prov/vma/test/rdm/pair.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "local/cm/fdmsg.hpp"
#include "local/cm/manager.hpp"
#include "local/ring/reader.hpp"

namespace vma::test {

using rdm::Packet;
using rdm::PacketOp;

inline local::ConnectionManager &manager_of(const Rdm &one)
{
    return local::manager_of(*reinterpret_cast<ofi::Fabric *>(one.fabric));
}

// All that has happened so far is seen to. What has completed by that: no more is seen to before an error was read.
inline std::vector<Entry> completed(const Rdm &a)
{
    std::vector<Entry> all;
    for (int quiet = 0; quiet < 4; ++quiet) {
        manager_of(a).progress(true);
        for (Entry entry; read_entry(a.cq, entry); quiet = 0)
            all.push_back(entry);
    }
    return all;
}

inline void settle(const Rdm &a)
{
    REQUIRE(completed(a).empty());
}

inline Entry only_one(const std::vector<Entry> &completed)
{
    REQUIRE(completed.size() == 1);
    return completed.front();
}

class Puppet
{
public:
    // `home`: whose connection management it uses, which is not that of the endpoint under test.
    Puppet(const Rdm &home, const Rdm &a, std::uint16_t port = 0) : manager_(manager_of(home))
    {
        REQUIRE(names().reserve(port, name_, local::NameKind::reliable) == 0);
        port_ = name_.port();
        introduce(a.name, name_.incarnation());
    }
    // One that has no name, and says that it is who has that port, and that incarnation of it.
    Puppet(const Rdm &home, const sockaddr_in &to, std::uint16_t port, std::uint32_t incarnation)
        : manager_(manager_of(home)), port_(port)
    {
        introduce(to, incarnation);
    }
    Puppet(const Puppet &) = delete;
    Puppet &operator=(const Puppet &) = delete;
    ~Puppet() { end_writing(); }

    std::uint16_t port() const { return port_; }
    std::uint32_t incarnation() const { return name_.incarnation(); }
    sockaddr_in address(const Rdm &a) const
    {
        sockaddr_in other = a.name;
        other.sin_port = htons(port_);
        return other;
    }

    void say(const Packet &packet, const void *body = nullptr, std::size_t length = 0)
    {
        REQUIRE(outlet_->open() == 0);
        std::byte *const place = outlet_->claim_kept(sizeof packet + length);
        REQUIRE(place != nullptr);
        std::memcpy(place, &packet, sizeof packet);
        if (length != 0)
            std::memcpy(place + sizeof packet, body, length);
        local::Bell bell;
        outlet_->publish(sizeof packet + length, false, 0, bell);
    }
    void greet()
    {
        const rdm::Hello hello{rdm::kHelloMagic, rdm::kHelloVersion, reinterpret_cast<std::uintptr_t>(&nonce_), nonce_};
        say({PacketOp::hello, 0, 0, 0, 0, sizeof hello}, &hello, sizeof hello);
    }
    // What the other offers is read by single copy from now on, or, with an error, not.
    void say_greeted(int error = 0) { say({PacketOp::greeted, 0, static_cast<std::uint16_t>(error), 0, 0, 0}); }
    void say_message(const char (&text)[8], std::uint32_t id)
    {
        say({PacketOp::message, rdm::kTagged | rdm::kAck, 0, id, id, sizeof text}, text, sizeof text);
    }
    void say_offer(const void *memory, std::size_t length, std::uint32_t id)
    {
        const std::uint64_t count = 1;
        const iovec part{const_cast<void *>(memory), length};
        std::array<std::byte, sizeof count + sizeof part> list{};
        std::memcpy(list.data(), &count, sizeof count);
        std::memcpy(list.data() + sizeof count, &part, sizeof part);
        say({PacketOp::offer, rdm::kTagged | rdm::kAck, 0, id, id, length}, list.data(), list.size());
    }

    // The rings that were handed over to it, of which it answers the last one, once.
    void take_ring(bool answers)
    {
        bool taken = false;
        for (;;) {
            core::UniqueFd socket = core::make_fd(
                [this] { return ::accept4(name_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
            if (!socket)
                break;
            local::RingGreeting greeting{};
            core::UniqueFd fd;
            if (local::receive_packet(socket.get(), &greeting, sizeof greeting, {&fd, 1}) != local::Packet::whole)
                continue; // it has only asked whether it is there
            socket_ = std::move(socket);
            REQUIRE(local::map_shared(fd.get(), sizeof(local::RingMemory), memory_) == 0);
            reader_ = std::make_unique<local::RingReader>();
            reader_->attach(reinterpret_cast<local::RingMemory *>(memory_.data()));
            taken = true;
        }
        REQUIRE(reader_ != nullptr);
        const local::RingAnswer answer{local::kGreetingMagic, 0, 0};
        const std::array fds{doorbell_.memory_fd(), doorbell_.wake_fd()};
        REQUIRE(!answers || !taken || local::send_packet(socket_.get(), &answer, sizeof answer, fds));
    }
    // All packets that are there.
    std::vector<Packet> hear()
    {
        std::vector<Packet> heard;
        local::Arrived arrived;
        while (reader_->peek(arrived) == local::RingReader::Peek::datagram) {
            Packet packet{};
            REQUIRE(arrived.length >= sizeof packet);
            std::memcpy(&packet, arrived.payload, sizeof packet);
            heard.push_back(packet);
            reader_->consume(arrived);
        }
        reader_->publish();
        return heard;
    }

    void end_name() { name_.reset(); }
    void end_writing()
    {
        const std::lock_guard guard(manager_.mutex());
        outlet_->disconnect();
    }
    void end_reading() { socket_.reset(); }
    void close_ring() { reader_->set_state(local::RingState::closed); }

private:
    local::Directory &names()
    {
        int error = 0;
        names_ = manager_.directory(&error);
        REQUIRE(names_);
        return *names_;
    }
    void introduce(const sockaddr_in &to, std::uint32_t incarnation)
    {
        ofi::Address source;
        ofi::Address target;
        REQUIRE(source.assign(&to, sizeof to) && target.assign(&to, sizeof to));
        source.set_port(port_);
        outlet_ = std::make_unique<local::Outlet>(manager_, names(), source, target,
                                                  names_->name_of(target.port(), local::NameKind::reliable), false,
                                                  met_, nullptr);
        outlet_->introduce_as(incarnation);
        REQUIRE(doorbell_.open() == 0);
    }

    local::ConnectionManager &manager_;
    std::shared_ptr<local::Directory> names_;
    local::PortName name_;
    std::uint16_t port_ = 0;
    bool met_ = false;
    std::unique_ptr<local::Outlet> outlet_;
    local::Doorbell doorbell_;
    core::UniqueFd socket_;
    local::Mapping memory_;
    std::unique_ptr<local::RingReader> reader_;
    std::uint64_t nonce_ = 4711;
};

inline const Packet *find(const std::vector<Packet> &heard, PacketOp op)
{
    const auto found = std::find_if(heard.begin(), heard.end(), [op](const Packet &one) { return one.op == op; });
    return found != heard.end() ? &*found : nullptr;
}

} // namespace vma::test
