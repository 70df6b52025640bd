// SPDX-License-Identifier: BSD-2-Clause
// What the cases are made of: connections, expectations, and an io_context that is run to its end by several threads. A
// case that fails throws, in whatever thread. All of it is one translation unit with asio.cpp, as Boost's templates
// take long to compile.
#ifndef FABTESTS_POSIX_PROGRAMS_ASIO_LOOP_HPP
#define FABTESTS_POSIX_PROGRAMS_ASIO_LOOP_HPP

#include <utility> // Boost 1.74 uses it, and does not include it

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fabtests/patience.hpp"

namespace cases {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kMany = 150; // exchanges: more than those after which a connection is moved
inline const std::chrono::seconds kHangs{patience::seconds()}; // somebody waits for ever

inline void expect(bool right, const std::string &what)
{
    if (!right)
        throw std::runtime_error(what);
}

inline void expect_code(const error_code &code, const error_code &expected, const std::string &what)
{
    expect(code == expected, what + ": " + code.message() + " instead of " + expected.message());
}

inline void expect_success(const error_code &code, const std::string &what)
{
    expect(!code, what + ": " + code.message());
}

// Threads that run a context until no work is left. The first exception stops it, and comes out of run().
class Crew
{
public:
    explicit Crew(asio::io_context &context) : context_(context) {}

    void run(int threads)
    {
        std::vector<std::thread> others;
        for (int number = 1; number < threads; ++number)
            others.emplace_back([this] { work(); });
        work();
        for (std::thread &other : others)
            other.join();
        if (failure_)
            std::rethrow_exception(failure_);
        expect(context_.stopped(), "an operation did not come to its end");
        context_.restart();
    }

private:
    void work()
    {
        try {
            context_.run_for(kHangs);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!failure_)
                failure_ = std::current_exception();
            context_.stop();
        }
    }

    asio::io_context &context_;
    std::mutex mutex_;
    std::exception_ptr failure_;
};

inline void run(asio::io_context &context, int threads = 1)
{
    Crew(context).run(threads);
}

inline tcp::endpoint loopback()
{
    return {asio::ip::address_v4::loopback(), 0};
}

struct Pair {
    tcp::socket client;
    tcp::socket server;
};

inline Pair connected(asio::io_context &context, const tcp::endpoint &at = loopback())
{
    tcp::acceptor acceptor(context, at);
    tcp::socket client(context);
    client.connect(acceptor.local_endpoint());
    return {std::move(client), acceptor.accept()};
}

// Lines there and back, each of another length, by calls that block.
template <typename One, typename Other> void exchange(One &one, Other &other, int times = kMany)
{
    for (int number = 0; number < times; ++number) {
        const std::string there = std::to_string(number) + std::string(static_cast<std::size_t>(number % 40), 'x');
        std::string here(there.size(), ' ');
        asio::write(one, asio::buffer(there));
        asio::read(other, asio::buffer(here));
        expect(here == there, "there: " + here);
        asio::write(other, asio::buffer(there));
        asio::read(one, asio::buffer(here));
        expect(here == there, "back: " + here);
    }
}

// Two ends over which as much has gone as a connection needs to be moved.
inline Pair talked(asio::io_context &context, const tcp::endpoint &at = loopback())
{
    Pair pair = connected(context, at);
    exchange(pair.client, pair.server);
    return pair;
}

// All until the end of the stream, which must be its proper end.
template <typename Stream> std::string read_rest(Stream &stream)
{
    std::string rest;
    error_code code;
    asio::read(stream, asio::dynamic_buffer(rest), code);
    expect_code(code, asio::error::eof, "after the rest");
    return rest;
}

} // namespace cases

#endif
