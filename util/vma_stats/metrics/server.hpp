// SPDX-License-Identifier: BSD-2-Clause
// Serves one page over HTTP: one thread, few connections, a limit for the time and the size of everything, so that no
// client can stop another for longer than some seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace vma_stats {

class Server
{
public:
    // Takes `listener`, a socket that listens and doesn't block, and keeps it open for as long as the object is there.
    Server(int listener, std::function<std::string()> page);
    ~Server();
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    // Serves until `stop` can be read.
    void run(int stop);

private:
    enum class State : std::uint8_t {
        kReads,  // the request
        kWrites, // the answer
        kEnds,   // all is written: waits for the client to close, so that a reset doesn't overtake the answer
    };
    struct Client {
        int fd;
        State state;
        std::string in;
        std::string out;
        std::size_t written;
        std::int64_t until_ms; // CLOCK_MONOTONIC
    };

    int milliseconds_left() const; // until the first time-out; -1: none
    void accept_clients();
    void answer(Client &client, std::string &&text);
    void time_out(const Client &client) const;
    // Of these false: the connection is over.
    bool go_on(Client &client);
    bool read(Client &client);
    bool write(Client &client);
    bool drain(const Client &client) const;

    int listener_;
    std::function<std::string()> page_;
    std::vector<Client> clients_;
};

} // namespace vma_stats
