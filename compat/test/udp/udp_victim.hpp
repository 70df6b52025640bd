// SPDX-License-Identifier: BSD-2-Clause
// A real UDP socket that takes datagrams from a hostile peer, against a model of what it must then give.
#pragma once

#include <sys/socket.h>

#include <deque>
#include <memory>
#include <random>
#include <string>

#include "fabtests/unit.hpp"

#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::test {

using namespace vma::sock::udp;
using sock::Socket;

using Random = std::mt19937_64;

inline constexpr std::size_t kLongest = 65507;

// What the peer writes. Its memory ends where the record does, so that ASan sees a look beyond.
struct Record {
    std::uint64_t data = 0;
    std::size_t length = 0;
    std::unique_ptr<std::uint8_t[]> bytes{};
};

inline std::size_t header_of(std::uint64_t data)
{
    return (data >> 52 & 1) != 0 ? 44 : 20;
}

// What it must become.
struct Expected {
    About about;
    std::string payload;
    std::size_t size() const
    {
        return sizeof(Queued) + (payload.size() + sizeof(Queued) - 1) / sizeof(Queued) * sizeof(Queued);
    }
};

class Victim
{
public:
    explicit Victim(int family, bool offloaded = true, bool connected = false);
    ~Victim();
    Victim(const Victim &) = delete;
    Victim &operator=(const Victim &) = delete;

    State &state() const { return state_of(*socket_); }
    std::uint64_t data() const { return make_to(socket_->index, state().cookie.load()); }

    void take(const Record &record);
    void take_directly(const Record &record, Random &random);
    void receive(Random &random);
    bool has_nothing() const { return model_.empty(); }
    void send_by_kernel(const char *text) const;
    Socket &socket() const { return *socket_; }
    int fd() const { return fd_; }

private:
    void connect_to_itself();
    void ask_for_everything();
    bool is_for_it(const Record &record) const;
    bool wants_it(std::uint64_t data, const About &about) const;
    Expected make_expected(const Record &record) const;
    void check_name(const msghdr &msg, const sockaddr_in6 &name, std::size_t room, const About &about) const;
    void check_control(const msghdr &msg, const About &about) const;

    int fd_ = -1;
    int family_;
    std::size_t limit_ = 0;
    Socket *socket_ = nullptr;
    std::deque<Expected> model_;
    std::size_t held_ = 0;
};

// By the engine: whether the provider is done with it.
int hand_over(const Record &record);

} // namespace vma::test
