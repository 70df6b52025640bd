// SPDX-License-Identifier: BSD-2-Clause
// C++20 coroutines: servers and clients, waits that a timer ends, and what is left of the stream then.
#ifndef FABTESTS_POSIX_PROGRAMS_ASIO_COROUTINES_HPP
#define FABTESTS_POSIX_PROGRAMS_ASIO_COROUTINES_HPP

#include "fabtests/posix/programs/asio/loop.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <cstring>

#ifdef BOOST_ASIO_HAS_CO_AWAIT

namespace cases {

using asio::awaitable;
using asio::use_awaitable;

// As the last argument of co_spawn: what the coroutine throws comes out of run().
inline void rethrow(std::exception_ptr failure)
{
    if (failure)
        std::rethrow_exception(failure);
}

inline awaitable<void> serve(tcp::socket socket)
{
    std::array<char, 512> data;
    error_code code;
    while (true) {
        const std::size_t size =
            co_await socket.async_read_some(asio::buffer(data), asio::redirect_error(use_awaitable, code));
        if (code == asio::error::eof)
            co_return;
        expect_success(code, "server reads");
        co_await asio::async_write(socket, asio::buffer(data, size), use_awaitable);
    }
}

inline awaitable<void> listen(tcp::acceptor &acceptor, int connections)
{
    while (connections-- > 0) {
        tcp::socket socket = co_await acceptor.async_accept(use_awaitable);
        asio::co_spawn(acceptor.get_executor(), serve(std::move(socket)), rethrow);
    }
}

inline awaitable<void> talk(asio::io_context &context, tcp::endpoint to)
{
    tcp::socket socket(context);
    co_await socket.async_connect(to, use_awaitable);
    for (int number = 0; number < 2 * kMany; ++number) {
        const std::string there = "number " + std::to_string(number);
        std::string back(there.size(), ' ');
        co_await asio::async_write(socket, asio::buffer(there), use_awaitable);
        co_await asio::async_read(socket, asio::buffer(back), use_awaitable);
        expect(back == there, back);
    }
}

inline void coroutines()
{
    asio::io_context context;
    tcp::acceptor acceptor(context, loopback());
    asio::co_spawn(context, listen(acceptor, 6), rethrow);
    for (int number = 0; number < 6; ++number)
        asio::co_spawn(context, talk(context, acceptor.local_endpoint()), rethrow);
    run(context, 3);
}

// One read that ends after `limit` at the latest.
inline awaitable<std::size_t> read_limited(tcp::socket &socket, asio::mutable_buffer buffer,
                                           std::chrono::microseconds limit, error_code &code)
{
    asio::steady_timer timer(socket.get_executor(), limit);
    timer.async_wait([&socket](error_code ended) {
        if (!ended)
            socket.cancel();
    });
    co_return co_await socket.async_read_some(buffer, asio::redirect_error(use_awaitable, code));
}

inline awaitable<void> time_out(Pair &pair)
{
    std::array<char, 100> data;
    for (int number = 0; number < 20; ++number) {
        error_code code;
        co_await read_limited(pair.server, asio::buffer(data), std::chrono::milliseconds(2), code);
        expect_code(code, asio::error::operation_aborted, "nothing was sent");
        co_await asio::async_write(pair.client, asio::buffer("there", 5), use_awaitable);
        const std::size_t size = co_await read_limited(pair.server, asio::buffer(data), kHangs, code);
        expect_success(code, "something was sent");
        expect(std::string(data.data(), size) == "there", "what was sent");
    }
}

inline void limited_read()
{
    for (const bool moved : {false, true}) {
        asio::io_context context;
        Pair pair = moved ? talked(context) : connected(context);
        asio::co_spawn(context, time_out(pair), rethrow);
        run(context);
        exchange(pair.client, pair.server, 10);
    }
}

inline awaitable<void> count_up(tcp::socket &socket, std::uint32_t numbers)
{
    for (std::uint32_t number = 0; number < numbers; ++number) {
        co_await asio::async_write(socket, asio::buffer(&number, sizeof number), use_awaitable);
        asio::steady_timer timer(socket.get_executor(), std::chrono::microseconds(number * 37 % 300));
        co_await timer.async_wait(use_awaitable);
    }
    socket.shutdown(tcp::socket::shutdown_send);
}

inline awaitable<void> hear_numbers(tcp::socket &socket, std::string &heard)
{
    std::array<char, 64> data;
    for (unsigned round = 0;; ++round) {
        error_code code;
        const std::chrono::microseconds limit(round * 53 % 400);
        const std::size_t size = co_await read_limited(socket, asio::buffer(data), limit, code);
        if (code == asio::error::eof)
            co_return;
        if (code != asio::error::operation_aborted)
            expect_success(code, "read");
        heard.append(data.data(), size);
    }
}

// Cancelled and not, as it happens: no byte is lost, none comes twice.
inline void cancelled_beside_bytes()
{
    constexpr std::uint32_t kNumbers = 600;
    asio::io_context context;
    Pair pair = talked(context);
    std::string heard;
    asio::co_spawn(context, count_up(pair.client, kNumbers), rethrow);
    asio::co_spawn(asio::make_strand(context), hear_numbers(pair.server, heard), rethrow);
    run(context);
    expect(heard.size() == kNumbers * sizeof(std::uint32_t), std::to_string(heard.size()) + " bytes");
    for (std::uint32_t number = 0, at = 0; number < kNumbers; ++number, at += sizeof number)
        expect(std::memcmp(heard.data() + at, &number, sizeof number) == 0, "number " + std::to_string(number));
}

inline awaitable<void> accept_late(tcp::acceptor &acceptor)
{
    asio::steady_timer timer(acceptor.get_executor(), std::chrono::milliseconds(5));
    timer.async_wait([&acceptor](error_code) { acceptor.cancel(); });
    error_code code;
    co_await acceptor.async_accept(asio::redirect_error(use_awaitable, code));
    expect_code(code, asio::error::operation_aborted, "nobody connects");
    tcp::socket client(acceptor.get_executor());
    client.connect(acceptor.local_endpoint());
    tcp::socket server = co_await acceptor.async_accept(use_awaitable);
    exchange(client, server);
}

inline void limited_accept()
{
    asio::io_context context;
    tcp::acceptor acceptor(context, loopback());
    asio::co_spawn(context, accept_late(acceptor), rethrow);
    run(context);
}

} // namespace cases

#endif
#endif
