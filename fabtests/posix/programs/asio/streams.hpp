// SPDX-License-Identifier: BSD-2-Clause
// TCP by callbacks: servers and clients of lines, one thread and several, many connections at once, many buffers at
// once, megabytes.
#ifndef FABTESTS_POSIX_PROGRAMS_ASIO_STREAMS_HPP
#define FABTESTS_POSIX_PROGRAMS_ASIO_STREAMS_HPP

#include "fabtests/posix/programs/asio/loop.hpp"

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/strand.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <numeric>

namespace cases {

// A server's side of a connection: sends back what comes until the peer ends.
class Echo : public std::enable_shared_from_this<Echo>
{
public:
    explicit Echo(tcp::socket socket) : socket_(std::move(socket)) { socket_.set_option(tcp::no_delay(true)); }

    void read()
    {
        socket_.async_read_some(asio::buffer(data_), [self = shared_from_this()](error_code code, std::size_t size) {
            if (code == asio::error::eof)
                return;
            expect_success(code, "server reads");
            self->write(size);
        });
    }

private:
    void write(std::size_t size)
    {
        asio::async_write(socket_, asio::buffer(data_, size),
                          [self = shared_from_this()](error_code code, std::size_t) {
                              expect_success(code, "server writes");
                              self->read();
                          });
    }

    tcp::socket socket_;
    std::array<char, 1000> data_{};
};

inline void accept_some(tcp::acceptor &acceptor, int count)
{
    if (count == 0)
        return;
    acceptor.async_accept(asio::make_strand(acceptor.get_executor()),
                          [&acceptor, count](error_code code, tcp::socket socket) {
                              expect_success(code, "accept");
                              accept_some(acceptor, count - 1);
                              std::make_shared<Echo>(std::move(socket))->read();
                          });
}

// A client's side: sends lines, each after the answer to the one before, and counts itself when all have come back.
class Asker : public std::enable_shared_from_this<Asker>
{
public:
    Asker(asio::io_context &context, int lines, std::atomic<int> &ended)
        : socket_(asio::make_strand(context)), lines_(lines), ended_(ended)
    {
    }

    void connect(const tcp::endpoint &to)
    {
        socket_.async_connect(to, [self = shared_from_this()](error_code code) {
            expect_success(code, "connect");
            self->socket_.set_option(tcp::no_delay(true));
            self->ask();
        });
    }

private:
    void ask()
    {
        if (lines_-- == 0) {
            ++ended_;
            socket_.close();
            return;
        }
        line_ =
            "question " + std::to_string(lines_) + std::string(static_cast<std::size_t>(lines_ % 9) * 300, '.') + '\n';
        asio::async_write(socket_, asio::buffer(line_), [self = shared_from_this()](error_code code, std::size_t) {
            expect_success(code, "client writes");
            self->hear();
        });
    }

    void hear()
    {
        asio::async_read_until(socket_, asio::dynamic_buffer(heard_), '\n',
                               [self = shared_from_this()](error_code code, std::size_t size) {
                                   expect_success(code, "client reads");
                                   expect(self->heard_ == self->line_ && size == self->line_.size(), "another line");
                                   self->heard_.clear();
                                   self->ask();
                               });
    }

    tcp::socket socket_;
    int lines_;
    std::atomic<int> &ended_;
    std::string line_;
    std::string heard_;
};

inline void ask(int clients, int lines, int threads, const tcp::endpoint &at = loopback())
{
    asio::io_context context;
    tcp::acceptor acceptor(context, at);
    std::atomic<int> ended{0};
    accept_some(acceptor, clients);
    for (int number = 0; number < clients; ++number)
        std::make_shared<Asker>(context, lines, ended)->connect(acceptor.local_endpoint());
    run(context, threads);
    expect(ended == clients, std::to_string(ended) + " clients have ended");
}

inline void one_thread()
{
    ask(1, kMany, 1);
}

inline void several_threads()
{
    ask(8, 4 * kMany, 4);
}

inline void hundred_at_once()
{
    for (int round = 0; round < 3; ++round)
        ask(100, 1 + 3 * round, 2);
}

inline void hundred_that_stay()
{
    ask(100, kMany, 3);
}

inline void ipv6()
{
    ask(3, kMany, 2, {asio::ip::address_v6::loopback(), 0});
}

inline void both_families()
{
    asio::io_context context;
    tcp::acceptor acceptor(context, tcp::v6());
    acceptor.set_option(asio::ip::v6_only(false));
    acceptor.bind({tcp::v6(), 0});
    acceptor.listen();
    tcp::socket client(context);
    client.connect({asio::ip::address_v4::loopback(), acceptor.local_endpoint().port()});
    tcp::socket server = acceptor.accept();
    expect(server.remote_endpoint().address().to_string() == "::ffff:127.0.0.1", "address of the client");
    expect(server.remote_endpoint().port() == client.local_endpoint().port(), "port of the client");
    exchange(client, server);
}

inline void many_buffers()
{
    constexpr std::size_t kParts = 150; // more than one call of Asio's takes
    asio::io_context context;
    Pair pair = talked(context);
    std::vector<std::string> parts, heard;
    std::vector<asio::const_buffer> out;
    std::vector<asio::mutable_buffer> in;
    std::string all;
    for (std::size_t number = 0; number < kParts; ++number) {
        parts.emplace_back(number * 7 % 500, static_cast<char>('a' + number % 26));
        all += parts.back();
    }
    std::transform(parts.begin(), parts.end(), std::back_inserter(out), [](auto &part) { return asio::buffer(part); });
    for (std::size_t at = 0, size = 1; at < all.size(); at += size, size = size * 2 % 1021)
        heard.emplace_back(std::min(size, all.size() - at), ' ');
    std::transform(heard.begin(), heard.end(), std::back_inserter(in), [](auto &part) { return asio::buffer(part); });
    for (int time = 0; time < 20; ++time) {
        asio::async_write(pair.client, out, [](error_code code, std::size_t) { expect_success(code, "gather"); });
        asio::async_read(pair.server, in, [](error_code code, std::size_t) { expect_success(code, "scatter"); });
        run(context, 2);
        expect(std::accumulate(heard.begin(), heard.end(), std::string()) == all, "other bytes");
    }
}

// Megabytes both ways at once, each end by two chains of callbacks.
inline void megabytes()
{
    asio::io_context context;
    Pair pair = talked(context);
    std::string there(3'000'000, ' '), back(5'000'000, ' '), here(there.size(), 0), home(back.size(), 0);
    for (std::size_t at = 0; at < there.size(); ++at)
        there[at] = static_cast<char>(at * 7 % 251);
    for (std::size_t at = 0; at < back.size(); ++at)
        back[at] = static_cast<char>(at * 11 % 241);
    const auto ended = [](error_code code, std::size_t) { expect_success(code, "megabytes"); };
    asio::async_write(pair.client, asio::buffer(there), ended);
    asio::async_write(pair.server, asio::buffer(back), ended);
    asio::async_read(pair.client, asio::buffer(home), ended);
    asio::async_read(pair.server, asio::buffer(here), ended);
    run(context, 3);
    expect(here == there && home == back, "other bytes");
}

// iostreams over a socket, which wait by poll().
inline void lines_by_iostream()
{
    asio::io_context context;
    tcp::acceptor acceptor(context, loopback());
    std::thread server([&acceptor] {
        tcp::iostream stream;
        acceptor.accept(stream.socket());
        stream.socket().set_option(tcp::no_delay(true));
        for (std::string line; std::getline(stream, line);)
            stream << "answer to " << line << std::endl;
    });
    tcp::iostream stream(acceptor.local_endpoint());
    stream.socket().set_option(tcp::no_delay(true));
    stream.expires_after(kHangs);
    int good = 0;
    for (int number = 0; number < kMany; ++number) {
        stream << "line " << number << std::endl;
        std::string line;
        std::getline(stream, line);
        good += line == "answer to line " + std::to_string(number);
    }
    stream.close();
    server.join();
    expect(good == kMany, std::to_string(good) + " answers are right");
}

} // namespace cases

#endif
