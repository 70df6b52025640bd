// SPDX-License-Identifier: BSD-2-Clause
// Behaviour of the connection manager: addresses, the handshake with private data, refusals, the end of a connection.
#include "contrib/lab/sim/behaviour.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <string_view>

namespace vma::sim::behaviour {
namespace {

// There are no such QPs: the CM passes numbers on. They have to differ, or it takes one for a leftover of the other.
constexpr std::uint32_t kActiveQp = 0x123;
constexpr std::uint32_t kPassiveQp = 0x124;

// An active and a passive id.
struct Talk {
    Manager manager;
    rdma_cm_id *listener = nullptr;
    rdma_cm_id *active = nullptr;
    rdma_cm_id *passive = nullptr;

    explicit Talk(Lab &lab) : manager(lab) {}
};

bool listens(Lab &lab, Talk &talk)
{
    sockaddr_storage here = address_of(lab.address);
    talk.listener = talk.manager.create();
    return talk.listener != nullptr &&
           lab.expect(lab.verbs.bind_addr(talk.listener, reinterpret_cast<sockaddr *>(&here)) == 0, __FILE__, __LINE__,
                      "bind_addr") &&
           lab.expect(lab.verbs.listen(talk.listener, 4) == 0, __FILE__, __LINE__, "listen");
}

bool resolves(Lab &lab, Talk &talk, std::uint16_t port)
{
    sockaddr_storage from = address_of(lab.address);
    sockaddr_storage to = address_of(lab.address, port);
    talk.active = talk.manager.create();
    return talk.active != nullptr &&
           lab.expect(lab.verbs.resolve_addr(talk.active, reinterpret_cast<sockaddr *>(&from),
                                             reinterpret_cast<sockaddr *>(&to), 2000) == 0,
                      __FILE__, __LINE__, "resolve_addr") &&
           talk.manager.wait(RDMA_CM_EVENT_ADDR_RESOLVED) != nullptr &&
           lab.expect(lab.verbs.resolve_route(talk.active, 2000) == 0, __FILE__, __LINE__, "resolve_route") &&
           talk.manager.wait(RDMA_CM_EVENT_ROUTE_RESOLVED) != nullptr;
}

// `data` has to stay as long as the result is used.
rdma_conn_param values(std::string_view data, std::uint32_t qp_num = kActiveQp)
{
    rdma_conn_param made{};
    made.private_data = data.data();
    made.private_data_len = static_cast<std::uint8_t>(data.size());
    made.responder_resources = 1;
    made.initiator_depth = 1;
    made.retry_count = 6;
    made.rnr_retry_count = 5;
    made.qp_num = qp_num;
    return made;
}

bool asks(Lab &lab, Talk &talk, const std::string &data)
{
    rdma_conn_param param = values(data);
    return listens(lab, talk) && resolves(lab, talk, port_of(talk.listener)) &&
           lab.expect(lab.verbs.connect(talk.active, &param) == 0, __FILE__, __LINE__, "connect");
}

// Data comes filled up with zeros to what a message has room for.
bool has_data(const rdma_cm_event &event, const std::string &data, std::size_t room)
{
    const auto *bytes = static_cast<const char *>(event.param.conn.private_data);
    return event.param.conn.private_data_len == room && std::memcmp(bytes, data.data(), data.size()) == 0 &&
           std::all_of(bytes + data.size(), bytes + room, [](char byte) { return byte == 0; });
}

bool becomes_connected(Lab &lab, Talk &talk)
{
    if (!asks(lab, talk, "hello"))
        return false;
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_CONNECT_REQUEST);
    if (event == nullptr)
        return false;
    talk.passive = event->id;
    talk.manager.adopt(talk.passive);
    rdma_conn_param param = values("welcome", kPassiveQp);
    return lab.expect(lab.verbs.accept(talk.passive, &param) == 0, __FILE__, __LINE__, "accept") &&
           talk.manager.wait(RDMA_CM_EVENT_CONNECT_RESPONSE) != nullptr &&
           lab.expect(lab.verbs.establish(talk.active) == 0, __FILE__, __LINE__, "establish") &&
           talk.manager.wait(RDMA_CM_EVENT_ESTABLISHED) != nullptr;
}

void a_handshake_with_private_data(Lab &lab)
{
    Talk talk(lab);
    const std::string question(56, 'q');
    EXPECT(asks(lab, talk, question));
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT(event != nullptr);
    EXPECT(event->listen_id == talk.listener);
    EXPECT(event->id != talk.listener && event->id != talk.active);
    EXPECT(event->id->verbs != nullptr);
    EXPECT(event->id->channel == talk.manager.channel());
    EXPECT(event->id->context == talk.listener->context);
    EXPECT_EQ(port_of(event->id), port_of(talk.listener));
    EXPECT(has_data(*event, question, 56));
    EXPECT_EQ(event->param.conn.qp_num, kActiveQp);
    EXPECT_EQ(event->param.conn.retry_count, 6);
    EXPECT_EQ(event->param.conn.rnr_retry_count, 5);
    talk.passive = event->id;
    talk.manager.adopt(talk.passive);
    const std::string answer = "a";
    rdma_conn_param param = values(answer, kPassiveQp);
    EXPECT_EQ(lab.verbs.accept(talk.passive, &param), 0);
    event = talk.manager.wait(RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT(event != nullptr);
    EXPECT(event->id == talk.active);
    EXPECT(has_data(*event, answer, 196));
    EXPECT_EQ(lab.verbs.establish(talk.active), 0);
    event = talk.manager.wait(RDMA_CM_EVENT_ESTABLISHED);
    EXPECT(event != nullptr);
    EXPECT(event->id == talk.passive);
}

void too_much_private_data(Lab &lab)
{
    Talk talk(lab);
    EXPECT(listens(lab, talk));
    EXPECT(resolves(lab, talk, port_of(talk.listener)));
    const std::string data(57, 'x');
    rdma_conn_param param = values(data);
    EXPECT_EQ(lab.verbs.connect(talk.active, &param), -1);
    EXPECT_EQ(errno, EINVAL);
}

void a_reject_with_data(Lab &lab)
{
    Talk talk(lab);
    EXPECT(asks(lab, talk, ""));
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT(event != nullptr);
    talk.passive = event->id;
    talk.manager.adopt(talk.passive);
    const std::string data = "no room";
    EXPECT_EQ(lab.verbs.reject(talk.passive, data.data(), static_cast<std::uint8_t>(data.size())), 0);
    event = talk.manager.wait(RDMA_CM_EVENT_REJECTED);
    EXPECT(event != nullptr);
    EXPECT(event->id == talk.active);
    EXPECT_EQ(event->status, 28);
    EXPECT(has_data(*event, data, 148));
}

void nobody_listens(Lab &lab)
{
    Talk talk(lab);
    EXPECT(listens(lab, talk));
    const std::uint16_t port = port_of(talk.listener);
    talk.manager.destroy(talk.listener);
    EXPECT(resolves(lab, talk, port));
    rdma_conn_param param = values("");
    EXPECT_EQ(lab.verbs.connect(talk.active, &param), 0);
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_REJECTED);
    EXPECT(event != nullptr);
    EXPECT_EQ(event->status, 8);
}

void a_request_that_is_dropped(Lab &lab)
{
    Talk talk(lab);
    EXPECT(asks(lab, talk, ""));
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT(event != nullptr);
    talk.manager.adopt(event->id);
    talk.manager.destroy(event->id);
    event = talk.manager.wait(RDMA_CM_EVENT_REJECTED);
    EXPECT(event != nullptr);
    EXPECT_EQ(event->status, 28);
}

void disconnecting_tells_both(Lab &lab)
{
    Talk talk(lab);
    EXPECT(becomes_connected(lab, talk));
    EXPECT_EQ(lab.verbs.disconnect(talk.active), 0);
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT(event != nullptr);
    EXPECT(event->id == talk.passive);
    EXPECT_EQ(lab.verbs.disconnect(talk.passive), 0);
    event = talk.manager.wait(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT(event != nullptr);
    EXPECT(event->id == talk.active);
}

void destroying_disconnects(Lab &lab)
{
    Talk talk(lab);
    EXPECT(becomes_connected(lab, talk));
    talk.manager.destroy(talk.active);
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT(event != nullptr);
    EXPECT(event->id == talk.passive);
}

void ports_are_given_and_kept(Lab &lab)
{
    Talk talk(lab);
    EXPECT(listens(lab, talk));
    const std::uint16_t port = port_of(talk.listener);
    EXPECT(port != 0);
    rdma_cm_id *other = talk.manager.create();
    EXPECT(other != nullptr);
    sockaddr_storage same = address_of(lab.address, port);
    EXPECT_EQ(lab.verbs.bind_addr(other, reinterpret_cast<sockaddr *>(&same)), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    sockaddr_storage any = address_of(lab.address.find(':') == std::string::npos ? "0.0.0.0" : "::", port);
    EXPECT_EQ(lab.verbs.bind_addr(other, reinterpret_cast<sockaddr *>(&any)), -1);
    EXPECT_EQ(errno, EADDRNOTAVAIL); // of a port that one address has
    any = address_of(lab.address.find(':') == std::string::npos ? "0.0.0.0" : "::");
    EXPECT_EQ(lab.verbs.bind_addr(other, reinterpret_cast<sockaddr *>(&any)), 0);
    EXPECT(port_of(other) != 0);
    EXPECT(other->verbs == nullptr); // no device yet
}

void an_address_of_nobody_here(Lab &lab)
{
    Talk talk(lab);
    rdma_cm_id *id = talk.manager.create();
    EXPECT(id != nullptr);
    sockaddr_storage foreign = address_of("198.51.100.77"); // kept for documentation: nobody has it
    EXPECT_EQ(lab.verbs.bind_addr(id, reinterpret_cast<sockaddr *>(&foreign)), -1);
    EXPECT_EQ(errno, EADDRNOTAVAIL);
}

void steps_out_of_turn(Lab &lab)
{
    Talk talk(lab);
    EXPECT(listens(lab, talk));
    rdma_conn_param param = values("");
    // Of an id that has a device: librdmacm crashes of one that has none.
    EXPECT_EQ(lab.verbs.resolve_route(talk.listener, 100), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(lab.verbs.connect(talk.listener, &param), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(lab.verbs.accept(talk.listener, &param), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(lab.verbs.disconnect(talk.listener), 0); // does nothing
    EXPECT(resolves(lab, talk, port_of(talk.listener)));
    EXPECT_EQ(lab.verbs.establish(talk.active), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(lab.verbs.disconnect(talk.active), -1);
    EXPECT_EQ(errno, EINVAL);
}

void a_nonblocking_event_channel(Lab &lab)
{
    Talk talk(lab);
    const int fd = talk.manager.channel()->fd;
    EXPECT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
    rdma_cm_event *event = nullptr;
    EXPECT_EQ(lab.verbs.get_cm_event(talk.manager.channel(), &event), -1);
    EXPECT_EQ(errno, EAGAIN);
}

void ids_move_with_their_events(Lab &lab)
{
    Manager other(lab); // it goes last: the listener stays on its channel
    Talk talk(lab);
    EXPECT(listens(lab, talk));
    EXPECT(resolves(lab, talk, port_of(talk.listener)));
    EXPECT_EQ(lab.verbs.migrate_id(talk.listener, other.channel()), 0);
    rdma_conn_param param = values("");
    EXPECT_EQ(lab.verbs.connect(talk.active, &param), 0);
    rdma_cm_event *event = other.wait(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT(event != nullptr);
    rdma_cm_id *passive = event->id;
    other.adopt(passive);
    const bool moved = passive->channel == other.channel();
    other.destroy(passive); // the event is acknowledged with it, as the listener waits for that
    EXPECT(moved);
    // The active id stayed where it was.
    EXPECT(talk.manager.wait(RDMA_CM_EVENT_REJECTED) != nullptr);
}

void qp_attributes_of_a_request(Lab &lab)
{
    Talk talk(lab);
    EXPECT(asks(lab, talk, ""));
    rdma_cm_event *event = talk.manager.wait(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT(event != nullptr);
    talk.manager.adopt(event->id);
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(lab.verbs.init_qp_attr(event->id, &attr, &mask), 0);
    EXPECT((mask & IBV_QP_DEST_QPN) != 0 && (mask & IBV_QP_AV) != 0 && (mask & IBV_QP_MIN_RNR_TIMER) != 0);
    EXPECT_EQ(attr.dest_qp_num, kActiveQp);
    EXPECT_EQ(attr.max_dest_rd_atomic, 1);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(lab.verbs.init_qp_attr(event->id, &attr, &mask), 0);
    EXPECT_EQ(attr.retry_cnt, 6);
    EXPECT_EQ(attr.rnr_retry, 5);
    EXPECT_EQ(attr.max_rd_atomic, 1);
    // The other side knows nothing of this one yet.
    attr.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(lab.verbs.init_qp_attr(talk.active, &attr, &mask), -1);
    EXPECT_EQ(errno, EINVAL);
}

constexpr Case kCases[] = {
    {"a_handshake_with_private_data", a_handshake_with_private_data},
    {"too_much_private_data", too_much_private_data},
    {"a_reject_with_data", a_reject_with_data},
    {"nobody_listens", nobody_listens},
    {"a_request_that_is_dropped", a_request_that_is_dropped},
    {"disconnecting_tells_both", disconnecting_tells_both},
    {"destroying_disconnects", destroying_disconnects},
    {"ports_are_given_and_kept", ports_are_given_and_kept},
    {"an_address_of_nobody_here", an_address_of_nobody_here},
    {"steps_out_of_turn", steps_out_of_turn},
    {"a_nonblocking_event_channel", a_nonblocking_event_channel},
    {"ids_move_with_their_events", ids_move_with_their_events},
    {"qp_attributes_of_a_request", qp_attributes_of_a_request},
};

} // namespace

std::span<const Case> manager_cases()
{
    return kCases;
}

} // namespace vma::sim::behaviour
