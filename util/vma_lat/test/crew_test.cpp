// SPDX-License-Identifier: BSD-2-Clause
// Both sides of many connections in one process, over the local device through libfabric: every progress model, and
// what a peer may say that is wrong.
#include "fabtests/unit.hpp"

#include "fabtests/patience.hpp"
#include "util/vma_lat/measure/pattern.hpp"
#include "util/vma_lat/roles/crew.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

namespace {

using namespace vma::lat;

// For one completion: none is lost.
const std::uint64_t kLimit = static_cast<std::uint64_t>(patience::nanoseconds());

struct Sides {
    Endpoints server;
    Endpoints client;

    explicit Sides(const Shape &shape) : server(shape), client(shape)
    {
        Address self;
        assert_false(resolve("127.0.0.1", 0, AF_INET, self).has_value());
        std::vector<std::uint16_t> ports(shape.connections);
        for (std::uint32_t i = 0; i < shape.connections; ++i) {
            const auto failure = server.listen(i, self, ports[i]);
            if (failure)
                UNIT_FAIL(failure->text.c_str());
        }
        Failure accepting;
        std::thread other([&] { accepting = server.establish([] { return false; }); });
        for (std::uint32_t i = 0; i < shape.connections; ++i) {
            self.set_port(ports[i]);
            assert_false(client.connect(i, self).has_value());
        }
        const auto connecting = client.establish([] { return false; });
        other.join();
        assert_false(connecting.has_value() || accepting.has_value());
    }
};

LaneWork a_work(bool client, std::uint32_t single, std::uint64_t streamed)
{
    LaneWork work;
    work.initiates = client;
    work.answers = !client;
    work.verify = true;
    work.single = single;
    work.streamed = streamed;
    work.out_seed = client ? 1 : 2;
    work.in_seed = client ? 2 : 1;
    return work;
}

std::vector<LaneWork> works(const LaneWork &like, const Endpoints &theirs)
{
    std::vector<LaneWork> all(theirs.shape().connections, like);
    for (std::uint32_t i = 0; i < all.size(); ++i) {
        all[i].out_tag = all[i].in_tag = static_cast<std::uint8_t>(i);
        all[i].theirs = theirs.region(i);
    }
    return all;
}

Shape a_shape(Operation operation, std::uint32_t size, std::uint32_t connections, const Progress &progress)
{
    Shape shape;
    shape.provider = "vma";
    shape.connections = connections;
    shape.size = size;
    shape.window = 8;
    shape.operation = operation;
    shape.progress = progress;
    shape.ordered = operation == Operation::kWrite;
    return shape;
}

void await(const Crew &crew)
{
    while (!crew.done() && !crew.failed()) {
        pollfd wait{crew.event_fd(), POLLIN, 0};
        poll(&wait, 1, -1);
    }
}

void run(const Shape &shape, std::uint32_t single, std::uint64_t streamed)
{
    Sides sides(shape);
    Crew server(sides.server, kLimit);
    Crew client(sides.client, kLimit);
    assert_false(server.start(works(a_work(false, single, streamed), sides.client)).has_value());
    assert_false(client.start(works(a_work(true, single, streamed), sides.server)).has_value());
    await(client);
    const auto failure = client.stop();
    if (failure)
        UNIT_FAIL(failure->text.c_str());
    assert_false(server.stop().has_value());
    const std::uint64_t all = (single + streamed) * shape.connections;
    assert_int_equal(tally_of(server).arrived, shape.operation == Operation::kRead ? 0 : all);
    assert_int_equal(tally_of(server).damaged, 0);
    assert_int_equal(tally_of(client).damaged, 0);
    for (const Lane &lane : client.lanes())
        assert_int_equal(lane.samples().size(), single);
}

// One message under way on each connection, each side asleep until it comes: a wake-up that is lost ends the test.
void no_wake_up_is_lost(void **)
{
    for (const Model wait : {Model::kEpoll, Model::kChannel, Model::kPoll}) {
        for (const Progress &progress : {Progress{wait, false, false}, {wait, true, false}, {wait, false, true}}) {
            const std::uint32_t connections = fault_of(progress, 4) ? 1 : 4;
            run(a_shape(Operation::kSend, 64, connections, progress), wait == Model::kPoll ? 200 : 2000, 0);
            run(a_shape(Operation::kWriteImm, 200, connections, progress), wait == Model::kPoll ? 200 : 1000, 0);
        }
    }
}

void every_operation_in_every_model(void **)
{
    for (const Operation operation : {Operation::kSend, Operation::kWrite, Operation::kRead, Operation::kWriteImm}) {
        for (const Model wait : {Model::kEpoll, Model::kChannel, Model::kPoll}) {
            for (const Progress &progress : {Progress{wait, false, false}, {wait, true, false}, {wait, false, true}}) {
                const std::uint32_t connections = fault_of(progress, 3) ? 1 : 3;
                run(a_shape(operation, 30000, connections, progress), 20, 50);
            }
        }
    }
}

void damage_is_found(void **)
{
    for (const Operation operation : {Operation::kSend, Operation::kWrite, Operation::kRead, Operation::kWriteImm}) {
        Sides sides(a_shape(operation, 100, 1, {}));
        Crew server(sides.server, 0);
        Crew client(sides.client, kLimit);
        LaneWork theirs = a_work(false, 3, 0);
        theirs.in_seed = 99;
        theirs.out_seed = 99;
        assert_false(server.start(works(theirs, sides.client)).has_value());
        assert_false(client.start(works(a_work(true, 3, 0), sides.server)).has_value());
        await(client);
        assert_false(client.stop().has_value());
        assert_false(server.stop().has_value());
        const Tally &tally = tally_of(operation == Operation::kRead ? client : server);
        assert_int_equal(tally.damaged, 3);
        assert_non_null(std::strstr(tally.first.c_str(), "on connection 0: byte "));
    }
}

// The client does more than was agreed: the server ends the test.
void more_than_was_announced(void **)
{
    for (const Operation operation : {Operation::kSend, Operation::kWrite, Operation::kWriteImm}) {
        Sides sides(a_shape(operation, 100, 1, {}));
        Crew server(sides.server, 0);
        Crew client(sides.client, 0);
        assert_false(server.start(works(a_work(false, 0, 10), sides.client)).has_value());
        assert_false(client.start(works(a_work(true, 0, 20), sides.server)).has_value());
        await(server);
        const auto failure = server.stop();
        client.stop();
        if (!failure) // all that it knows of has come before the rest did
            assert_int_equal(tally_of(server).arrived, 10);
        else
            assert_int_equal(failure->status, kExitServer);
    }
}

// With a queue each, data that name another's connection are refused, not handed to another thread's lane.
void data_for_another_connection(void **)
{
    Sides sides(a_shape(Operation::kWriteImm, 100, 2, {Model::kEpoll, false, true}));
    Crew server(sides.server, 0);
    Crew client(sides.client, 0);
    assert_false(server.start(works(a_work(false, 1, 0), sides.client)).has_value());
    auto wrong = works(a_work(true, 1, 0), sides.server);
    wrong[0].out_tag = 1;
    assert_false(client.start(wrong).has_value());
    await(server);
    client.stop();
    const auto failure = server.stop();
    assert_true(failure.has_value());
    assert_non_null(std::strstr(failure->text.c_str(), "do not name their connection"));
}

void silence_ends_the_test(void **)
{
    Sides sides(a_shape(Operation::kSend, 100, 2, {Model::kEpoll, true, false}));
    Crew client(sides.client, 20 * kMillisecond);
    assert_false(client.start(works(a_work(true, 1, 0), sides.server)).has_value());
    await(client);
    const auto failure = client.stop();
    assert_true(failure.has_value());
    assert_int_equal(failure->status, kExitServer);
    assert_non_null(std::strstr(failure->text.c_str(), "send of 100 bytes, connection 0: nothing came for 20 ms"));
}

std::filesystem::path g_directory;

int prepare(void **)
{
    std::string name = (std::filesystem::temp_directory_path() / "crew_test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
        return -1;
    g_directory = name;
    setenv("FI_VMA_DIR", name.c_str(), 1);
    setenv("FI_PROVIDER_PATH", std::filesystem::absolute(".libs").c_str(), 1);
    if (auto failure = load_libfabric()) {
        print_message("# %s\n", failure->text.c_str());
        return -1;
    }
    return 0;
}

int clean_up(void **)
{
    std::error_code ignored;
    std::filesystem::remove_all(g_directory, ignored);
    return 0;
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_up_is_lost),    cmocka_unit_test(every_operation_in_every_model),
        cmocka_unit_test(damage_is_found),       cmocka_unit_test(more_than_was_announced),
        cmocka_unit_test(silence_ends_the_test), cmocka_unit_test(data_for_another_connection),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
