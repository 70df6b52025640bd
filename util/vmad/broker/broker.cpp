// SPDX-License-Identifier: BSD-2-Clause
#include "broker.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "util/vmad/log.hpp"

namespace vma::guard {

namespace {

constexpr char kDefaultRules[] = "/etc/vmad.conf";
constexpr std::size_t kMostClients = 2048;
constexpr std::size_t kMostOfUser = 1024;
constexpr std::size_t kMostHeld = 1024; // descriptors that a user's processes haven't taken
constexpr unsigned kRequestsATurn = 32; // of a client
constexpr mode_t kForAll = 0666;
constexpr std::uint64_t kDiscards = ~std::uint64_t{0}; // in the set
constexpr Nanos kPause = 100 * inet::kMillisecond;     // of the listener, when there is no descriptor left

#ifndef SO_NETNS_COOKIE
constexpr int SO_NETNS_COOKIE = 71;
#endif

int option(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

std::uint64_t cookie(int fd, int name)
{
    std::uint64_t value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : 0;
}

} // namespace

// Who still waits to be accepted may have sent descriptors, as the others may.
Broker::~Broker()
{
    if (!set_)
        return;
    shutdown(listener_.fd(), SHUT_RDWR);
    accept_all(listener_, [this](core::UniqueFd socket) { discards_.hang_up(std::move(socket), 0); });
}

std::string Broker::open()
{
    if (options_.socket.empty())
        return "";
    std::string error = prepare();
    if (!error.empty()) {
        set_.reset();
        table_ = {};
    }
    return error;
}

// Without a file there are none, and the default holds.
std::string Broker::load_rules()
{
    Policy read;
    std::string error;
    if (!options_.rules.empty() || access(kDefaultRules, F_OK) == 0)
        error = read.read(options_.rules.empty() ? kDefaultRules : options_.rules);
    if (error.empty())
        policy_ = std::move(read);
    return error;
}

void Broker::read_rules()
{
    if (!set_)
        return;
    if (const std::string error = load_rules(); !error.empty())
        say(Level::kError, "the rules stay as they were: %s", error.c_str());
    else
        say(Level::kInformation, "the rules were read again: %zu", policy_.size());
}

std::string Broker::prepare()
{
    if (std::string error = load_rules(); !error.empty())
        return error;
    if (std::string error = table_.open(options_.cgroup, options_.connections); !error.empty())
        return error;
    if (std::string error = listener_.open(options_.socket.c_str(), kForAll); !error.empty())
        return error;
    CloseWatch::prepare();
    set_ = core::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    if (!set_ || !watch(EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, 0))
        return std::string("epoll: ") + std::strerror(errno);
    discards_.open(set_.get(), kDiscards);
    return "";
}

bool Broker::watch(int operation, int fd, std::uint32_t events, std::uint64_t number)
{
    epoll_event interest{};
    interest.events = events;
    interest.data.u64 = number;
    return epoll_ctl(set_.get(), operation, fd, &interest) == 0;
}

void Broker::on_readable(Nanos now)
{
    const CloseWatch no_close_waits;
    epoll_event events[64];
    const int count = epoll_wait(set_.get(), events, std::size(events), 0);
    for (int i = 0; i < count; ++i) {
        const std::uint64_t number = events[i].data.u64;
        if (number == 0)
            accept_waiting(now);
        else if (number == kDiscards)
            discards_.work();
        else if (BrokerClient *const client = find(number))
            on_event(*client, number, events[i].events, now);
    }
    remove_closed();
}

void Broker::remove_closed()
{
    for (const std::uint64_t number : over_) {
        const auto client = clients_.find(number);
        const uid_t user = client->second->person().user;
        clients_.erase(client);
        if (accounts_[user].connections == 0)
            accounts_.erase(user);
    }
    over_.clear();
}

Nanos Broker::due() const
{
    return std::min({paused_until_, waiting_.due(), discards_.due()});
}

void Broker::on_time(Nanos now)
{
    if (paused_until_ <= now)
        paused_until_ = watch(EPOLL_CTL_ADD, listener_.fd(), EPOLLIN, 0) ? inet::kNever : now + kPause;
    if (discards_.due() <= now)
        discards_.work();
    if (waiting_.due() > now)
        return;
    const CloseWatch no_close_waits;
    for (Question question; waiting_.expire(now, question);) {
        if (question.end.other == PairedEnd::Other::kNotHere)
            ask_again(question, now);
        else
            refuse(question, broker::Result::kAbsent);
    }
    remove_closed();
}

// ---- who comes -----------------------------------------------------------------------------------------------------

void Broker::accept_waiting(Nanos now)
{
    if (discards_.is_swamped())
        return pause(now, EBUSY);
    const int shortage = accept_all(listener_, [this](core::UniqueFd socket) { admit(std::move(socket)); });
    if (shortage != 0)
        pause(now, shortage);
}

void Broker::pause(Nanos now, int error)
{
    say(Level::kError, "the broker can't accept: %s", std::strerror(error));
    epoll_ctl(set_.get(), EPOLL_CTL_DEL, listener_.fd(), nullptr);
    paused_until_ = now + kPause;
}

void Broker::admit(core::UniqueFd socket)
{
    Person person;
    if (!identify(socket.get(), person))
        return discards_.hang_up(std::move(socket), 0);
    const auto known = accounts_.find(person.user);
    const std::size_t his = known == accounts_.end() ? 0 : known->second.connections;
    if (clients_.size() >= kMostClients || his >= kMostOfUser || discards_.is_full(person.user)) {
        say(Level::kDebug, "process %d is one too many for the broker", person.process);
        return discards_.hang_up(std::move(socket), person.user);
    }
    const int fd = socket.get();
    const std::uint64_t number = ++last_client_;
    say(Level::kDebug, "process %d of user %u asks the broker", person.process, person.user);
    Account &account = accounts_[person.user];
    clients_.emplace(number, std::make_unique<BrokerClient>(std::move(socket), std::move(person), account, discards_));
    if (!watch(EPOLL_CTL_ADD, fd, EPOLLIN, number))
        cut(number, "it can't be watched");
}

BrokerClient *Broker::find(std::uint64_t number)
{
    const auto found = clients_.find(number);
    return found != clients_.end() && found->second->fd() >= 0 ? found->second.get() : nullptr;
}

void Broker::cut(std::uint64_t number, const char *why)
{
    BrokerClient *const client = find(number);
    if (client == nullptr)
        return;
    say(Level::kDebug, "the broker is done with process %d: %s", client->person().process, why);
    Question question;
    for (const auto &[id, numbers] : client->waiting)
        waiting_.remove(numbers, question);
    client->waiting.clear();
    client->close();
    over_.push_back(number);
}

// ---- what they say -------------------------------------------------------------------------------------------------

void Broker::on_event(BrokerClient &client, std::uint64_t number, std::uint32_t events, Nanos now)
{
    if (client.is_behind()) {
        if ((events & (EPOLLHUP | EPOLLERR)) != 0 || !client.send_more())
            return cut(number, "it has left");
        if (!client.is_behind())
            client.watched_for_room = !watch(EPOLL_CTL_MOD, client.fd(), EPOLLIN, number);
        return;
    }
    for (unsigned i = 0; i < kRequestsATurn && client.fd() >= 0 && !client.is_behind(); ++i) {
        BrokerClient::Packet packet;
        const BrokerClient::Received received = client.receive(packet);
        if (received == BrokerClient::Received::kNothing)
            return;
        const bool sound = received == BrokerClient::Received::kRequest && take(client, number, packet, now);
        const bool closed = discard(packet, client.person().user);
        if (received == BrokerClient::Received::kOver)
            return cut(number, "it has left");
        if (!sound)
            return cut(number, "a request is malformed");
        if (!closed)
            return cut(number, "what it gives can't be closed");
    }
}

// False: the user has given too much that others close.
bool Broker::discard(BrokerClient::Packet &packet, uid_t user)
{
    bool any = false;
    for (core::UniqueFd &given : packet.descriptors) {
        any = any || given;
        discards_.close(std::move(given), user);
    }
    return !any || !discards_.is_full(user);
}

bool Broker::take(BrokerClient &client, std::uint64_t number, BrokerClient::Packet &packet, Nanos now)
{
    Question question;
    question.client = number;
    question.user = client.person().user;
    const std::span bytes(packet.bytes.data(), std::min(packet.size, packet.bytes.size()));
    switch (parse_request(bytes, packet.size, packet.count, question.id)) {
    case Asked::kAsk:
        if (client.waiting.contains(question.id))
            return false;
        ask(question, packet.descriptors[0], now);
        return true;
    case Asked::kCancel:
        cancel(client, question.id);
        return true;
    case Asked::kOtherVersion:
        refuse(question, broker::Result::kOtherVersion);
        return true;
    case Asked::kGarbage:
        break;
    }
    return false;
}

// Nothing that it asks the kernel waits for the socket's lock, which whoever has the socket too may hold for ever, as
// what tells the state of TCP would.
broker::Result Broker::examine(int socket, Question &question) const
{
    const int family = option(socket, SO_DOMAIN);
    if (option(socket, SO_PROTOCOL) != IPPROTO_TCP || option(socket, SO_TYPE) != SOCK_STREAM ||
        (family != AF_INET && family != AF_INET6))
        return broker::Result::kNotTcp;
    question.socket = cookie(socket, SO_COOKIE);
    question.network = cookie(socket, SO_NETNS_COOKIE);
    return !has_come(socket, POLLRDHUP) && table_.find(question.socket, question.end) ? broker::Result::kMet
                                                                                      : broker::Result::kRemote;
}

void Broker::ask(Question &question, core::UniqueFd &given, Nanos now)
{
    const broker::Result result = examine(given.get(), question);
    core::UniqueFd socket; // what is one of TCP's is closed at the end, and needs no more questions
    if (result != broker::Result::kNotTcp)
        socket = std::move(given);
    if (result != broker::Result::kMet)
        return refuse(question, result);
    Question before;
    if (waiting_.remove(question.end.numbers, before))
        refuse(before, broker::Result::kAgain);
    settle(question, now);
}

// The other end was not here in a moment when it could not be.
void Broker::ask_again(Question &question, Nanos now)
{
    const PairNumbers numbers = question.end.numbers;
    if (!table_.find(question.socket, question.end) || question.end.numbers != numbers ||
        question.end.other == PairedEnd::Other::kNotHere)
        return refuse(question, broker::Result::kRemote);
    settle(question, now);
}

void Broker::settle(const Question &question, Nanos now)
{
    BrokerClient *const client = find(question.client);
    if (client == nullptr)
        return;
    Question other;
    switch (waiting_.take(question, now, other)) {
    case Waiting::Taken::kWaits:
        client->waiting[question.id] = question.end.numbers;
        return;
    case Waiting::Taken::kFull:
        return refuse(question, broker::Result::kBusy);
    case Waiting::Taken::kMeets:
        return introduce(question, other, now);
    }
}

void Broker::cancel(BrokerClient &client, std::uint32_t id)
{
    const auto found = client.waiting.find(id);
    if (found == client.waiting.end())
        return; // its answer is under way
    Question question;
    waiting_.remove(found->second, question);
    client.waiting.erase(found);
}

// ---- what they hear ------------------------------------------------------------------------------------------------

bool Broker::is_there(const Question &question)
{
    const BrokerClient *const client = find(question.client);
    if (client == nullptr || !has_come(client->fd(), 0))
        return client != nullptr;
    cut(question.client, "it has left");
    return false;
}

// Another process may have the socket of one that has left.
void Broker::introduce(const Question &late, const Question &early, Nanos now)
{
    if (!is_there(early))
        return settle(late, now);
    if (!is_there(late))
        return settle(early, now);
    BrokerClient &a = *find(late.client);
    BrokerClient &b = *find(early.client);
    const auto refuse_both = [&](broker::Result result) {
        refuse(early, result);
        refuse(late, result);
    };
    PairedEnd end;
    if (!table_.find(early.socket, end) || end.numbers != early.end.numbers || late.end.role == early.end.role)
        return refuse_both(broker::Result::kRemote); // it is over by now
    const bool late_accepts = late.end.role == PairRole::kAcceptor;
    const std::uint16_t port = (late_accepts ? late : early).end.port;
    if (!policy_.allows(a.person(), b.person(), port))
        return refuse_both(broker::Result::kRefused);
    int ends[2];
    if (a.account().held >= kMostHeld || b.account().held >= kMostHeld ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return refuse_both(broker::Result::kBusy);
    core::UniqueFd first(ends[0]);
    core::UniqueFd second(ends[1]);
    say(Level::kTrace, "processes %d and %d are introduced", b.person().process, a.person().process);
    const auto role = [](PairRole own) { return static_cast<broker::Role>(own); };
    ++last_pair_;
    broker::Answer to_early = introduction(early.id, role(early.end.role), a.person(), last_pair_);
    broker::Answer to_late = introduction(late.id, role(late.end.role), b.person(), last_pair_);
    to_early.network = to_late.own_network = late.network;
    to_early.own_network = to_late.network = early.network;
    if (answer(early, to_early, std::move(first)))
        answer(late, to_late, std::move(second));
    else
        settle(late, now);
}

void Broker::refuse(const Question &question, broker::Result result)
{
    answer(question, refusal(question.id, result), {});
}

// False: who has asked is gone.
bool Broker::answer(const Question &question, const broker::Answer &answer, core::UniqueFd passed)
{
    BrokerClient *const client = find(question.client);
    if (client == nullptr)
        return false;
    client->waiting.erase(question.id);
    if (!client->send(answer, std::move(passed))) {
        cut(question.client, "it doesn't read, or has left");
        return false;
    }
    if (client->is_behind() && !std::exchange(client->watched_for_room, true) &&
        !watch(EPOLL_CTL_MOD, client->fd(), EPOLLOUT, question.client)) {
        cut(question.client, "it can't be watched");
        return false;
    }
    return true;
}

} // namespace vma::guard
