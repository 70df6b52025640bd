// SPDX-License-Identifier: BSD-2-Clause
// Calls on one socket, and waits for several. See chooser.hpp.
#include "fabtests/sockets/programs/compared/chooser.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>

namespace compared {

namespace {

constexpr std::int64_t kMostUnread = 24'000; // a full buffer is another matter, and differs

struct Option {
    int level;
    int name;
    std::array<int, 3> values;
    bool is_set = true;
};

constexpr std::array kOptions = {
    Option{SOL_SOCKET, SO_ERROR, {}, false},          Option{SOL_SOCKET, SO_ERROR, {}, false},
    Option{SOL_SOCKET, SO_TYPE, {}, false},           Option{SOL_SOCKET, SO_ACCEPTCONN, {}, false},
    Option{SOL_SOCKET, SO_RCVLOWAT, {0, 10, 3000}},   Option{SOL_SOCKET, SO_RCVLOWAT, {1, 1, 1}},
    Option{SOL_SOCKET, SO_PEEK_OFF, {-1, 0, 5}},      Option{SOL_SOCKET, SO_LINGER, {-1, 0, 0}},
    Option{SOL_SOCKET, SO_RCVTIMEO, {0, 4000, 9000}}, Option{SOL_SOCKET, SO_OOBINLINE, {0, 1, 1}},
    Option{SOL_SOCKET, SO_KEEPALIVE, {0, 1, 1}},      Option{SOL_SOCKET, SO_DOMAIN, {}, false},
};

bool is_set_of_events(const File &file)
{
    return file.kind == Kind::kSet;
}

bool is_awaited_at_peer(const Model &model, const File &file)
{
    return file.peer >= 0 && model.is_awaited(model.files[static_cast<std::size_t>(file.peer)]);
}

bool is_socket(const File &file)
{
    return file.kind != Kind::kSet;
}

} // namespace

std::int64_t Chooser::length()
{
    constexpr std::array<int, 8> kUpTo = {2, 10, 100, 1000, 1500, 5000, 9000, 20'000};
    return below(one_of(kUpTo));
}

Step Chooser::send(Model &model, int actor, int slot)
{
    Step step = plain(actor, Op::kSend, slot);
    step.command.length = length();
    step.command.form = below(5);
    const File *const file = model.file_of(step, slot);
    if (file->peer >= 0 &&
        model.files[static_cast<std::size_t>(file->peer)].unread + 2 * step.command.length > kMostUnread)
        step.command.length = 0;
    if (file->kind == Kind::kDatagrams && step.command.length > 2000)
        step.command.length = 2000;
    if (once_in(12)) {
        step.command.op = Op::kMove;
        step.command.form = 1 + below(2);
    } else if (once_in(15) && !is_awaited_at_peer(model, *file)) { // who waits may see one of two messages
        step.command.form = 5;
    }
    if (step.command.op == Op::kSend && once_in(4))
        step.command.flags = MSG_DONTWAIT;
    if (step.command.op == Op::kSend && step.command.form == 0 && choice_.urgent && once_in(150))
        step.command.flags = MSG_OOB;
    return step;
}

Step Chooser::receive(Model &model, int actor, int slot)
{
    constexpr std::array<int, 8> kFlags = {
        0, 0, MSG_PEEK, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_PEEK | MSG_WAITALL, MSG_ERRQUEUE};
    Step step = plain(actor, Op::kReceive, slot);
    const File *const file = model.file_of(step, slot);
    const bool may_wait = !model.is_awaited(*file) && (file->unread > 0 || once_in(12));
    step.command.length = length();
    step.command.form = below(5);
    if (!may_wait && (step.command.form == 1 || step.command.form == 2))
        step.command.form = 0;
    step.command.flags = one_of(kFlags);
    if (!may_wait || once_in(2) || (step.command.flags & MSG_WAITALL) != 0)
        step.command.flags |= !model.is_awaited(*file) && once_in(20) ? 0 : MSG_DONTWAIT;
    if (!model.is_awaited(*file) && once_in(10)) { // splice() waits, whatever its flags say
        step.command.op = Op::kMove;
        step.command.form = 0;
        step.command.flags = 0;
    } else if (once_in(15)) {
        step.command.form = 5;
    } else if (choice_.urgent && once_in(60)) {
        step.command.form = 0;
        step.command.flags = MSG_OOB | MSG_DONTWAIT;
    }
    step.ends = file->times_out;
    return step;
}

Step Chooser::option(Model &model, int actor, int slot)
{
    const Option option = one_of(kOptions);
    Step step = plain(actor, option.is_set && once_in(2) ? Op::kSetOption : Op::kGetOption, slot);
    step.command.flags = option.level;
    step.command.form = option.name;
    step.command.value = step.command.op == Op::kSetOption ? one_of(option.values) : 0;
    if (step.command.op == Op::kSetOption && option.name == SO_RCVTIMEO)
        model.file_of(step, slot)->times_out = step.command.value != 0;
    return step;
}

Step Chooser::on_stream(Model &model, int actor, int slot)
{
    constexpr std::array<int, 3> kMicroseconds = {0, 4000, 8000}; // some of what looks at idle streams
    const int dice = below(100);
    if (dice < 38)
        return send(model, actor, slot);
    if (dice < 80)
        return receive(model, actor, slot);
    if (dice < 88 && choice_.options)
        return option(model, actor, slot);
    Step step = plain(actor, Op::kUnread, slot);
    const bool datagrams = model.file_of(step, slot)->kind == Kind::kDatagrams;
    if (datagrams) // FIONREAD of datagrams that came both ways is not the kernel's yet
        step.command.op = Op::kName;
    if (dice < 92)
        return step;
    switch (below(9)) {
    case 0:
        step.command.op = Op::kMark;
        break;
    case 1:
    case 2:
        if (model.is_awaited(*model.file_of(step, slot)))
            break; // who waits already may be told, where its stream goes back to the kernel
        step.command.op = Op::kNonblocking;
        step.command.form = below(2);
        step.command.value = below(2);
        break;
    case 3:
        step.command.op = Op::kName;
        break;
    case 4:
        step.command.op = Op::kPeerName;
        break;
    case 5:
    case 6:
        if (datagrams)
            break; // which of the two ways a datagram goes changes then, and with it who comes first
        step.command.op = Op::kShutdown;
        step.command.form = below(3);
        break;
    case 7:
        if (!datagrams && once_in(5))
            step.command.op = Op::kDissolve;
        break;
    default:
        step.command.op = Op::kPause;
        step.command.value = one_of(kMicroseconds);
        step.ends = true;
    }
    return step;
}

Step Chooser::wait(const Process &process, const Model &model, int actor)
{
    constexpr std::array<int, 6> kEvents = {
        POLLIN, POLLOUT, POLLIN | POLLOUT, POLLIN | POLLRDHUP, POLLIN | POLLPRI, POLLIN | POLLOUT | POLLRDHUP};
    const bool selects = once_in(4);
    Step step = plain(actor, selects ? Op::kSelect : Op::kPoll);
    step.command.count = 1 + below(4);
    for (int i = 0; i < step.command.count; ++i) {
        const int slot = slot_of(process, model, once_in(8) ? is_set_of_events : is_socket);
        step.command.items[static_cast<std::size_t>(i)] = {
            slot, static_cast<std::uint32_t>(selects ? 1 + below(7) : one_of(kEvents))};
    }
    if (once_in(8))
        step.command.value = 1 + below(8);
    step.ends = true;
    return step;
}

Step Chooser::on_set(const Process &process, const Model &model, int actor)
{
    constexpr std::array<unsigned, 6> kEvents = {EPOLLIN,
                                                 EPOLLIN | EPOLLOUT,
                                                 EPOLLOUT,
                                                 EPOLLIN | EPOLLRDHUP,
                                                 EPOLLIN | EPOLLPRI,
                                                 EPOLLIN | EPOLLOUT | EPOLLRDHUP};
    constexpr std::array<unsigned, 4> kHow = {0, 0, EPOLLET, EPOLLONESHOT};
    const int set = slot_of(process, model, is_set_of_events);
    Step step = plain(actor, Op::kNewSet);
    if (set < 0 || once_in(40)) {
        step.command.other = model.free_slot(process);
        return step.command.other >= 0 ? step : plain(actor, Op::kClose, set);
    }
    step.command.slot = set;
    if (once_in(3)) {
        step.command.op = Op::kControl;
        step.command.other = slot_of(process, model, once_in(20) ? is_set_of_events : is_socket);
        step.command.form = once_in(2) ? EPOLL_CTL_ADD : once_in(3) ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
        step.command.value = one_of(kEvents) | (one_of(kHow) & (choice_.edges ? ~0U : ~EPOLLET));
        step.command.flags = step.command.other * 1000 + below(1000);
        return step;
    }
    step.command.op = Op::kWaitSet;
    step.command.length = kItems;
    step.command.value = once_in(8) ? 1 + below(8) : 0;
    step.ends = true;
    return step;
}

} // namespace compared
