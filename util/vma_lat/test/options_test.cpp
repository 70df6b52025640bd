// SPDX-License-Identifier: BSD-2-Clause
// What the command lines of a sweep and of a mesh come to.
#include "fabtests/unit.hpp"

#include "util/vma_lat/options.hpp"

#include <getopt.h>

#include <string>
#include <vector>

namespace {

using namespace vma::lat;

Failure read(std::vector<std::string> words, Options &options)
{
    words.insert(words.begin(), "vma_lat");
    std::vector<char *> argv;
    for (std::string &word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    optind = 0; // getopt_long starts anew
    options = {};
    return parse(static_cast<int>(words.size()), argv.data(), options);
}

void sweep_has_every_operation_and_power_of_two(void **)
{
    Options options;
    assert_false(read({"sweep", "h"}, options).has_value());
    assert_true(options.role == Role::kSweep);
    assert_int_equal(options.steps.size(), 4 * 24);
    assert_true(options.steps.front().operation == Operation::kSend);
    assert_true(options.steps.back().operation == Operation::kWriteImm);
    for (std::size_t i = 0; i < options.steps.size(); ++i)
        assert_int_equal(options.steps[i].size, 1U << i % 24);
    assert_string_equal(options.steps[0].provider.c_str(), "vma");
    assert_true(options.load.timeout_ns == 10000000000);
    assert_int_equal(options.steps[0].single, 1000);
    assert_int_equal(options.steps[0].warm_up, 100);
    assert_int_equal(options.steps[23].single, 16);
    assert_int_equal(options.steps[23].warm_up, 16);
    assert_int_equal(options.steps[23].streamed, 64);
}

void sweep_options_are_taken(void **)
{
    Options options;
    assert_false(read({"sweep",     "h",          "--operations", "read,send", "--from",
                       "3",         "--to",       "13",           "--count",   "7",
                       "--stream",  "0",          "--window",     "5",         "--connections",
                       "2",         "--cq",       "shared",       "--wait",    "channel",
                       "--verify",  "--provider", "verbs",        "--domain",  "rxe0",
                       "--warm-up", "0",          "--timeout",    "50"},
                      options)
                     .has_value());
    assert_int_equal(options.steps.size(), 2 * 3);
    const Step &step = options.steps[2];
    assert_true(step.operation == Operation::kRead && step.size == 12 && step.single == 7 && step.streamed == 0);
    assert_true(step.window == 5 && step.connections == 2 && step.warm_up == 0 && step.verify);
    assert_true(step.progress.shared && !step.progress.each && step.progress.wait == Model::kChannel);
    assert_true(step.provider == "verbs" && step.domain == "rxe0" && options.load.timeout_ns == 50000000);
    assert_false(read({"sweep", "h", "--size", "5,1"}, options).has_value());
    assert_true(options.steps.size() == 8 && options.steps[0].size == 5 && options.steps[1].size == 1);
    assert_false(read({"sweep", "h", "--from", "16777216"}, options).has_value());
    assert_int_equal(options.steps.size(), 4);
}

void mesh_options_are_taken(void **)
{
    Options options;
    assert_false(read({"mesh", "--processes", "4"}, options).has_value());
    assert_true(options.role == Role::kMesh && options.rank == -1 && options.mesh.processes == 4);
    assert_true(options.mesh.progress.shared && options.mesh.provider == "vma");
    assert_false(read({"mesh", "--rank", "1", "--peers", "a:1,b:2,[::1]:3", "--size", "9", "--count", "8", "--seed",
                       "7", "--cq", "own"},
                      options)
                     .has_value());
    assert_true(options.rank == 1 && options.mesh.processes == 3 && options.peers[2] == "[::1]:3");
    assert_true(options.mesh.size == 9 && options.mesh.count == 8 && options.mesh.seed == 7);
    assert_false(options.mesh.progress.shared);
}

// The names of waits are those of what vma_lat is to be.
void waits_have_their_own_names(void **)
{
    Options options;
    assert_false(read({"client", "h", "--wait", "spin"}, options).has_value());
    assert_true(read({"sweep", "h", "--wait", "spin"}, options).has_value());
    assert_true(read({"client", "h", "--wait", "channel"}, options).has_value());
    assert_false(read({"--wait", "channel", "sweep", "h"}, options).has_value());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(sweep_has_every_operation_and_power_of_two),
        cmocka_unit_test(sweep_options_are_taken),
        cmocka_unit_test(mesh_options_are_taken),
        cmocka_unit_test(waits_have_their_own_names),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
