// SPDX-License-Identifier: BSD-2-Clause
// A run of an engine can be repeated from what it was told: every segment it sends is the same, byte for byte, at the
// same moment. That is what makes a trace from somewhere else worth having.
#include "fabtests/unit.hpp"

#include <vector>

#include "fabtests/seed.hpp"
#include "prov/vma/test/inet/world.hpp"

namespace {

using namespace vma::inet;
using namespace vma::inet::sim;

constexpr unsigned kConnections = 8;
constexpr std::size_t kBytes = 30000; // each way and connection

// The program of side 0, which writes its calls down. It knows nothing but what they return.
class Recorder
{
public:
    Recorder(Network &net, std::vector<Step> &trace) : net_(net), trace_(trace) {}

    ConnectionId connect(std::uint16_t port)
    {
        const ConnectionId id = net_.connect(0, port, kPort);
        trace_.push_back({Step::kConnect, net_.now(), {static_cast<std::uint8_t>(port)}, 0, id, 0});
        return id;
    }
    std::int64_t send(ConnectionId id, std::span<const std::uint8_t> data)
    {
        const std::int64_t n = net_.tcp(0).send(net_.now(), id, data);
        trace_.push_back({Step::kSend, net_.now(), {data.begin(), data.end()}, 0, id, n});
        return n;
    }
    std::int64_t receive(ConnectionId id, std::size_t len)
    {
        std::vector<std::uint8_t> buffer(len);
        const std::int64_t n = net_.tcp(0).receive(net_.now(), id, buffer);
        trace_.push_back({Step::kReceive, net_.now(), buffer, 0, id, n});
        return n;
    }
    void finish(ConnectionId id)
    {
        const std::int64_t n = net_.tcp(0).shutdown(net_.now(), id);
        trace_.push_back({Step::kShutdown, net_.now(), {}, 0, id, n});
    }
    void close(ConnectionId id)
    {
        net_.tcp(0).close(net_.now(), id);
        trace_.push_back({Step::kClose, net_.now(), {}, 0, id, 0});
    }

private:
    Network &net_;
    std::vector<Step> &trace_;
};

// What side 1 does with what has come.
void echo(Network &net, ConnectionId id)
{
    std::uint8_t data[500];
    Tcp &tcp = net.tcp(1);
    for (;;) {
        const std::int64_t n = tcp.receive(net.now(), id, data);
        if (n == 0)
            tcp.shutdown(net.now(), id);
        if (n <= 0)
            return;
        assert_int_equal(tcp.send(net.now(), id, {data, static_cast<std::size_t>(n)}), n);
    }
}

// Side 1 echoes; side 0 sends, reads everything back, and closes.
void run(unsigned seed, const LinkSettings &link, std::vector<Step> &trace, HashKey &secret)
{
    Network net(seed, link);
    secret = net.secret(0);
    net.record(trace);
    Recorder recorder(net, trace);
    const ListenerId listener = net.listen(1, kPort);
    std::map<std::uint32_t, ConnectionId> open;
    std::map<std::uint32_t, std::size_t> sent;
    std::map<std::uint32_t, std::size_t> got;
    for (unsigned i = 0; i < kConnections; ++i) {
        const ConnectionId id = recorder.connect(static_cast<std::uint16_t>(100 + i));
        open[id.index] = id;
    }
    const auto client = [&](ConnectionId id) {
        std::uint8_t data[1000];
        while (sent[id.index] < kBytes) {
            fill(id.index, sent[id.index], data);
            if (recorder.send(id, data) <= 0)
                break;
            sent[id.index] += sizeof data;
            if (sent[id.index] == kBytes)
                recorder.finish(id);
        }
        for (;;) {
            const std::int64_t n = recorder.receive(id, 700);
            if (n <= 0) {
                if (n == 0 && open.erase(id.index) != 0)
                    recorder.close(id);
                return;
            }
            got[id.index] += static_cast<std::size_t>(n);
        }
    };
    assert_true(net.run(
        kLong, [&] { return open.empty(); },
        [&] {
            TcpEvent event;
            while (net.tcp(0).next_event(event))
                if (open.count(event.connection.index) != 0)
                    client(event.connection);
            while (net.tcp(1).next_event(event)) {
                ConnectionId id = event.connection;
                if ((event.what & kAcceptable) == 0)
                    echo(net, id);
                else
                    while (net.tcp(1).accept(listener, id))
                        echo(net, id);
            }
        }));
    for (const auto &[index, n] : got)
        assert_int_equal(n, kBytes);
}

// Tells an engine the same again; what it says is compared. The number of steps that were as before.
std::size_t replay(const std::vector<Step> &trace, const HashKey &secret, std::uint64_t *merged = nullptr)
{
    Tcp tcp({}, secret, kSecond);
    const NextHopIndex next_hop = tcp.next_hops().use(kAddress[1]);
    tcp.next_hops()[next_hop].ready = true;
    std::vector<std::uint8_t> buffer(65536);
    for (std::size_t i = 0; i < trace.size(); ++i) {
        const Step &step = trace[i];
        Step again = step;
        TcpOut meta;
        TcpEvent event;
        Packet packet;
        switch (step.kind) {
        case Step::kAdvance:
            tcp.advance(step.at);
            break;
        case Step::kInput:
            packet.source = kAddress[1];
            packet.target = kAddress[0];
            packet.protocol = Protocol::kTcp;
            packet.traffic_class = step.traffic_class;
            packet.payload = step.bytes;
            tcp.gather(step.at, packet);
            break;
        case Step::kFlush:
            tcp.flush(step.at);
            break;
        case Step::kOutput:
            again.result = tcp.output(step.at, buffer, meta);
            again.bytes.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(meta.length));
            again.traffic_class = meta.traffic_class;
            break;
        case Step::kConnect:
            (void)tcp.connect(step.at, {{kAddress[0], step.bytes[0]}, {kAddress[1], kPort}},
                              tcp.next_hops().use(kAddress[1]), {}, 0, again.connection);
            break;
        case Step::kSend:
            again.result = tcp.send(step.at, step.connection, step.bytes);
            break;
        case Step::kReceive:
            std::fill(again.bytes.begin(), again.bytes.end(), std::uint8_t{0});
            again.result = tcp.receive(step.at, step.connection, again.bytes);
            break;
        case Step::kShutdown:
            again.result = tcp.shutdown(step.at, step.connection);
            break;
        case Step::kClose:
            tcp.close(step.at, step.connection);
            break;
        }
        while (tcp.next_event(event)) {
        }
        if (!(again == step))
            return i;
    }
    if (merged != nullptr)
        *merged = tcp.counters().merged;
    return trace.size();
}

void the_same_again(void **)
{
    std::vector<Step> trace;
    HashKey secret;
    run(vma::test::seed(), bad_link(), trace, secret);
    print_message("# %zu steps\n", trace.size());
    assert_true(trace.size() > 1000);
    assert_int_equal(replay(trace, secret), trace.size());
}

void the_same_again_in_batches(void **)
{
    LinkSettings link = bad_link();
    link.coalesce = 200 * kMicrosecond; // sixteen full segments
    std::vector<Step> trace;
    HashKey secret;
    run(vma::test::seed(), link, trace, secret);
    std::uint64_t merged = 0;
    assert_int_equal(replay(trace, secret, &merged), trace.size());
    print_message("# %zu steps, %llu segments merged\n", trace.size(), static_cast<unsigned long long>(merged));
    assert_true(merged > 10);
}

void another_input_is_another_run(void **)
{
    std::vector<Step> trace;
    HashKey secret;
    run(vma::test::seed(), bad_link(), trace, secret);
    for (std::size_t i = trace.size() / 2; i < trace.size(); ++i)
        if (trace[i].kind == Step::kInput)
            trace[i].bytes.clear(); // as if all had been lost from here on
    assert_true(replay(trace, secret) < trace.size());
    HashKey other = secret;
    other[0] ^= 1;
    assert_true(replay(trace, other) < 20); // other sequence numbers
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_same_again),
        cmocka_unit_test(the_same_again_in_batches),
        cmocka_unit_test(another_input_is_another_run),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
