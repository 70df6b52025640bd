// SPDX-License-Identifier: BSD-2-Clause
// Descriptors below the sockets: given to another context, copied, waited for, and read by calls of the system.
#ifndef FABTESTS_POSIX_PROGRAMS_ASIO_DESCRIPTORS_HPP
#define FABTESTS_POSIX_PROGRAMS_ASIO_DESCRIPTORS_HPP

#include "fabtests/posix/programs/asio/loop.hpp"

#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace cases {

// Lines from one end to the other by operations that don't block, each end in its own context.
template <typename One, typename Other>
void send_async(asio::io_context &sends, asio::io_context &receives, One &one, Other &other, int times = 20)
{
    for (int number = 0; number < times; ++number) {
        const std::string there = "line " + std::to_string(number);
        std::string here(there.size(), ' ');
        asio::async_read(other, asio::buffer(here), [](error_code code, std::size_t) { expect_success(code, "read"); });
        receives.poll();
        asio::async_write(one, asio::buffer(there),
                          [](error_code code, std::size_t) { expect_success(code, "write"); });
        run(sends);
        if (&sends != &receives)
            run(receives);
        expect(here == there, here);
    }
}

inline void moved_to_another_context()
{
    asio::io_context first, second;
    Pair pair = talked(first);
    send_async(first, first, pair.client, pair.server);
    asio::write(pair.client, asio::buffer("unread", 6));
    tcp::socket moved(second);
    moved.assign(tcp::v4(), pair.server.release());
    expect(!pair.server.is_open(), "is open still");
    std::array<char, 6> data;
    asio::read(moved, asio::buffer(data));
    expect(data[5] == 'd', "what was unread");
    send_async(first, second, pair.client, moved);
    send_async(second, first, moved, pair.client);
}

inline void released_while_reading()
{
    asio::io_context context;
    Pair pair = talked(context);
    std::array<char, 10> data;
    error_code ended;
    pair.server.async_read_some(asio::buffer(data), [&ended](error_code code, std::size_t) { ended = code; });
    context.poll();
    tcp::socket moved(context, tcp::v4(), pair.server.release());
    run(context);
    expect_code(ended, asio::error::operation_aborted, "read");
    send_async(context, context, pair.client, moved);
}

// The epoll set keeps the entry of a descriptor that was closed as long as a copy is open.
inline void copied()
{
    asio::io_context context;
    Pair pair = talked(context);
    tcp::socket copy(context, tcp::v4(), ::dup(pair.server.native_handle()));
    send_async(context, context, pair.client, copy);
    send_async(context, context, pair.client, pair.server);
    pair.server.close();
    send_async(context, context, pair.client, copy);
    send_async(context, context, copy, pair.client);
    Pair later = talked(context);
    send_async(context, context, pair.client, copy);
    send_async(context, context, later.client, later.server);
    asio::posix::stream_descriptor file(context, ::dup(copy.native_handle()));
    copy.close();
    send_async(context, context, file, pair.client);
    send_async(context, context, pair.client, file);
    file.close();
    expect(read_rest(pair.client).empty(), "the last one's end");
}

inline void waited_for()
{
    asio::io_context context;
    Pair pair = talked(context);
    for (int number = 0; number < kMany; ++number) {
        std::array<char, 10> data;
        int waits = 0;
        pair.server.async_wait(tcp::socket::wait_read, [&waits](error_code code) {
            expect_success(code, "async_wait");
            ++waits;
        });
        context.poll();
        expect(waits == 0, "nothing is there");
        context.restart();
        asio::write(pair.client, asio::buffer("bytes", 5));
        run(context);
        expect(waits == 1, "something is there");
        expect(::recv(pair.server.native_handle(), data.data(), data.size(), MSG_DONTWAIT) == 5, "recv");
        expect(::recv(pair.server.native_handle(), data.data(), data.size(), MSG_DONTWAIT) == -1 && errno == EAGAIN,
               "EAGAIN");
        asio::write(pair.client, asio::buffer("more", 4));
        pair.server.wait(tcp::socket::wait_read);
        expect(pair.server.available() == 4, "available");
        expect(pair.server.read_some(asio::buffer(data)) == 4, "read_some");
        pair.server.wait(tcp::socket::wait_write);
    }
}

inline void not_blocking()
{
    asio::io_context context;
    Pair pair = talked(context);
    std::array<char, 10> data;
    error_code code;
    pair.server.native_non_blocking(true);
    expect(::read(pair.server.native_handle(), data.data(), data.size()) == -1 && errno == EAGAIN, "read");
    pair.server.non_blocking(true);
    pair.server.read_some(asio::buffer(data), code);
    expect_code(code, asio::error::would_block, "read_some");
    const std::string much(100'000, 'm');
    std::size_t sent = 0;
    pair.client.non_blocking(true);
    while (!code || code == asio::error::would_block) {
        sent += pair.client.write_some(asio::buffer(much), code);
        if (code)
            break;
    }
    expect_code(code, asio::error::would_block, "write_some until it is full");
    bool writable = false;
    pair.client.async_wait(tcp::socket::wait_write, [&](error_code) {
        writable = true;
        pair.client.shutdown(tcp::socket::shutdown_send);
    });
    std::string heard;
    asio::async_read(pair.server, asio::dynamic_buffer(heard),
                     [](error_code failed, std::size_t) { expect_code(failed, asio::error::eof, "rest"); });
    run(context, 2);
    expect(writable && heard == std::string(sent, 'm'), "other bytes");
}

inline void local_streams()
{
    asio::io_context first, second;
    asio::local::stream_protocol::socket one(first), other(second);
    asio::local::connect_pair(one, other);
    exchange(one, other);
    send_async(first, second, one, other, kMany);
    one.close();
    expect(read_rest(other).empty(), "end");

    const std::string name("\0asio cases", 11);
    asio::local::stream_protocol::acceptor acceptor(first, name);
    one.connect(name);
    asio::local::stream_protocol::socket third = acceptor.accept();
    exchange(one, third);
}

} // namespace cases

#endif
