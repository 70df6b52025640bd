// SPDX-License-Identifier: BSD-2-Clause
// UDP and local datagrams: who sent, parts of a datagram, several buffers, a receive that is cancelled, a port where
// nobody is.
#ifndef FABTESTS_POSIX_PROGRAMS_ASIO_DATAGRAMS_HPP
#define FABTESTS_POSIX_PROGRAMS_ASIO_DATAGRAMS_HPP

#include "fabtests/posix/programs/asio/loop.hpp"

#include <boost/asio/ip/udp.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/datagram_protocol.hpp>

#include <memory>

namespace cases {

using asio::ip::udp;

inline void answer(udp::socket &socket, std::array<char, 200> &data, udp::endpoint &from, int count)
{
    if (count == 0)
        return;
    socket.async_receive_from(asio::buffer(data), from, [&, count](error_code code, std::size_t size) {
        expect_success(code, "receive a question");
        socket.async_send_to(asio::buffer(data, size), from, [&, count](error_code failed, std::size_t) {
            expect_success(failed, "answer");
            answer(socket, data, from, count - 1);
        });
    });
}

inline void inquire(udp::socket &socket, const udp::endpoint &to, int count)
{
    if (count == 0)
        return;
    const auto question = std::make_shared<std::string>("question " + std::to_string(count));
    const auto data = std::make_shared<std::array<char, 200>>();
    const auto from = std::make_shared<udp::endpoint>();
    socket.async_send_to(
        asio::buffer(*question), to, [&socket, to, count, question, data, from](error_code, std::size_t) {
            socket.async_receive_from(asio::buffer(*data), *from, [=, &socket](error_code code, std::size_t size) {
                expect_success(code, "receive an answer");
                expect(std::string(data->data(), size) == *question, "another answer");
                expect(*from == to, "another sender");
                inquire(socket, to, count - 1);
            });
        });
}

inline void ask_by_datagram(const udp::endpoint &at)
{
    asio::io_context context;
    udp::socket one(context, at), other(context, at);
    std::array<char, 200> data;
    udp::endpoint from;
    answer(other, data, from, 2 * kMany);
    inquire(one, other.local_endpoint(), 2 * kMany);
    run(context, 2);
}

inline void datagrams()
{
    ask_by_datagram({asio::ip::address_v4::loopback(), 0});
}

inline void datagrams_ipv6()
{
    ask_by_datagram({asio::ip::address_v6::loopback(), 0});
}

inline void parts_of_datagrams()
{
    asio::io_context context;
    const udp::endpoint any(asio::ip::address_v4::loopback(), 0);
    udp::socket one(context, any), other(context, any);
    one.connect(other.local_endpoint());
    other.connect(one.local_endpoint());
    for (int number = 0; number < kMany; ++number) {
        std::array<char, 4> begin;
        std::array<char, 100> rest;
        const std::array<asio::mutable_buffer, 2> both = {asio::buffer(begin), asio::buffer(rest)};
        const std::string text = "number " + std::to_string(number);
        const std::array<asio::const_buffer, 3> pieces = {asio::buffer("<", 1), asio::buffer(text),
                                                          asio::buffer(">", 1)};
        one.send(pieces);
        expect(other.receive(both) == text.size() + 2, "size");
        expect(std::string(begin.data(), 4) == "<num" && rest[text.size() - 3] == '>', "scattered");
        one.send(asio::buffer("a long one", 10));
        one.send(asio::buffer(text, 0));
        expect(other.receive(asio::buffer(begin)) == 4, "a part of one");
        expect(other.receive(asio::buffer(rest)) == 0, "an empty one");
    }
}

inline void cancelled_receive()
{
    asio::io_context context;
    const udp::endpoint any(asio::ip::address_v4::loopback(), 0);
    udp::socket one(context, any), other(context, any);
    std::array<char, 100> data;
    udp::endpoint from;
    for (int number = 0; number < kMany; ++number) {
        error_code ended;
        other.async_receive_from(asio::buffer(data), from, [&ended](error_code code, std::size_t) { ended = code; });
        context.poll();
        other.cancel();
        run(context);
        expect_code(ended, asio::error::operation_aborted, "cancelled");
        one.send_to(asio::buffer("after", 5), other.local_endpoint());
        other.async_receive_from(asio::buffer(data), from, [&ended](error_code code, std::size_t) { ended = code; });
        run(context);
        expect_success(ended, "after that");
    }
}

inline void refused_datagrams()
{
    asio::io_context context;
    const udp::endpoint any(asio::ip::address_v4::loopback(), 0);
    udp::socket one(context, any), other(context, any);
    const udp::endpoint gone = other.local_endpoint();
    other.close();
    one.connect(gone);
    one.send(asio::buffer("nobody", 6));
    std::array<char, 10> data;
    error_code ended;
    one.async_receive(asio::buffer(data), [&ended](error_code code, std::size_t) { ended = code; });
    run(context);
    expect_code(ended, asio::error::connection_refused, "receive");
}

inline void local_datagrams()
{
    asio::io_context context;
    asio::local::datagram_protocol::socket one(context), other(context);
    asio::local::connect_pair(one, other);
    std::array<char, 100> data;
    for (int number = 0; number < kMany; ++number) {
        one.send(asio::buffer("first", 5));
        one.send(asio::buffer("second one", 10));
        expect(other.receive(asio::buffer(data)) == 5, "first");
        std::size_t heard = 0;
        other.async_receive(asio::buffer(data), [&heard](error_code, std::size_t size) { heard = size; });
        run(context);
        expect(heard == 10, "second");
    }
}

} // namespace cases

#endif
