// SPDX-License-Identifier: BSD-2-Clause
// How connections begin not at all, and end: refused, reset, shut down by one side, closed below an operation; the
// error codes of each.
#ifndef FABTESTS_POSIX_PROGRAMS_ASIO_ENDS_HPP
#define FABTESTS_POSIX_PROGRAMS_ASIO_ENDS_HPP

#include "fabtests/posix/programs/asio/loop.hpp"

#include <functional>

namespace cases {

inline void refused()
{
    asio::io_context context;
    tcp::endpoint gone;
    {
        tcp::acceptor acceptor(context, loopback());
        gone = acceptor.local_endpoint();
    }
    tcp::socket socket(context);
    error_code code;
    socket.connect(gone, code);
    expect_code(code, asio::error::connection_refused, "connect");
    socket.close();
    code.clear();
    socket.async_connect(gone, [&code](error_code failed) { code = failed; });
    run(context);
    expect_code(code, asio::error::connection_refused, "async_connect");
}

inline error_code read_later(asio::io_context &context, tcp::socket &socket, const std::function<void()> &meanwhile)
{
    std::array<char, 10> data;
    error_code ended;
    socket.async_read_some(asio::buffer(data), [&ended](error_code code, std::size_t) { ended = code; });
    context.poll();
    meanwhile();
    run(context);
    return ended;
}

inline void reset_peer(tcp::socket &socket)
{
    socket.set_option(asio::socket_base::linger(true, 0));
    socket.close();
}

inline void reset()
{
    for (const bool moved : {false, true}) {
        asio::io_context context;
        Pair pair = moved ? talked(context) : connected(context);
        const error_code ended = read_later(context, pair.server, [&pair] { reset_peer(pair.client); });
        expect_code(ended, asio::error::connection_reset, "read");
        error_code code;
        asio::write(pair.server, asio::buffer("late", 4), code);
        expect_code(code, asio::error::broken_pipe, "write after it");
    }
}

inline void ended()
{
    for (const bool moved : {false, true}) {
        asio::io_context context;
        Pair pair = moved ? talked(context) : connected(context);
        asio::write(pair.client, asio::buffer("last", 4));
        pair.client.close();
        std::array<char, 4> data;
        asio::read(pair.server, asio::buffer(data));
        expect_code(read_later(context, pair.server, [] {}), asio::error::eof, "read");
        error_code code; // not by Asio's reactor: an edge that was told when the end was read does not come again
        pair.server.read_some(asio::buffer(data), code);
        expect_code(code, asio::error::eof, "read again");
    }
}

inline void ended_while_waiting()
{
    for (const bool moved : {false, true}) {
        asio::io_context context;
        Pair pair = moved ? talked(context) : connected(context);
        const error_code code = read_later(context, pair.server, [&pair] { pair.client.close(); });
        expect_code(code, asio::error::eof, "read");
    }
}

inline void half_closed()
{
    for (const bool moved : {false, true}) {
        asio::io_context context;
        Pair pair = moved ? talked(context) : connected(context);
        pair.client.shutdown(tcp::socket::shutdown_send);
        expect(read_rest(pair.server).empty(), "nothing was sent");
        const std::string answer(300'000, 'a');
        std::string heard(answer.size(), ' ');
        error_code code;
        asio::async_write(pair.server, asio::buffer(answer), [&pair](error_code failed, std::size_t) {
            expect_success(failed, "write after the peer's end");
            pair.server.shutdown(tcp::socket::shutdown_send);
        });
        asio::async_read(pair.client, asio::buffer(heard),
                         [](error_code failed, std::size_t) { expect_success(failed, "read"); });
        run(context);
        expect(heard == answer, "other bytes");
        expect(read_rest(pair.client).empty(), "end");
        asio::write(pair.client, asio::buffer("no", 2), code);
        expect_code(code, asio::error::broken_pipe, "write after our end");
    }
}

inline void closed_below()
{
    for (const bool moved : {false, true}) {
        asio::io_context context;
        Pair pair = moved ? talked(context) : connected(context);
        const error_code code = read_later(context, pair.server, [&pair] { pair.server.close(); });
        expect_code(code, asio::error::operation_aborted, "read");
        expect(read_rest(pair.client).empty(), "the peer's end");
    }
}

// The receive side alone: a wait ends, what the peer sends is no error for it.
inline void shut_down_below()
{
    asio::io_context context;
    Pair pair = talked(context);
    const error_code code =
        read_later(context, pair.server, [&pair] { pair.server.shutdown(tcp::socket::shutdown_receive); });
    expect_code(code, asio::error::eof, "read");
    asio::write(pair.server, asio::buffer("still", 5));
    std::array<char, 5> data;
    asio::read(pair.client, asio::buffer(data));
    expect(data[4] == 'l', "other bytes");
}

inline void written_to_who_is_gone()
{
    asio::io_context context;
    Pair pair = talked(context);
    pair.server.close();
    error_code code;
    for (int number = 0; number < 1'000'000 && !code; ++number)
        asio::write(pair.client, asio::buffer("x", 1), code);
    expect(code == asio::error::broken_pipe || code == asio::error::connection_reset, "write: " + code.message());
}

inline void misused()
{
    asio::io_context context;
    tcp::acceptor acceptor(context, loopback());
    tcp::acceptor second(context, tcp::v4());
    error_code code;
    second.bind(acceptor.local_endpoint(), code);
    expect_code(code, asio::error::address_in_use, "bind");
    tcp::socket socket(context);
    socket.shutdown(tcp::socket::shutdown_both, code);
    expect_code(code, asio::error::bad_descriptor, "shutdown of no socket");
    socket.open(tcp::v4());
    socket.shutdown(tcp::socket::shutdown_both, code);
    expect_code(code, asio::error::not_connected, "shutdown");
    socket.open(tcp::v4(), code);
    expect_code(code, asio::error::already_open, "open");
    socket.remote_endpoint(code);
    expect_code(code, asio::error::not_connected, "remote_endpoint");
    socket.connect(acceptor.local_endpoint());
    socket.connect(acceptor.local_endpoint(), code);
    expect_code(code, asio::error::already_connected, "connect");
}

} // namespace cases

#endif
