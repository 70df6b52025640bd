// SPDX-License-Identifier: BSD-2-Clause
// Parameters: what each spelling of a variable means, and what a wrong one leaves.
#include "fabtests/unit.hpp"

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "compat/src/config/header.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/table.hpp"

using namespace vma::config;

namespace {

// Values of the environment for one case; all variables of the table are unset before and after.
class Environment
{
public:
    Environment() { clear(); }
    ~Environment()
    {
        clear();
        for (const Row &row : parameters())
            std::free(const_cast<char *>(text_of(params, row)));
    }
    Environment(const Environment &) = delete;
    Environment &operator=(const Environment &) = delete;
    unsigned read(const char *name, const char *value)
    {
        ::setenv(name, value, 1);
        return read_again();
    }
    unsigned read_again()
    {
        for (const Row &row : parameters()) {
            std::free(const_cast<char *>(text_of(params, row)));
            set_text(params, row.field, nullptr);
        }
        return read_environment(params);
    }

    Params params = {};

private:
    static void clear()
    {
        for (const Row &row : parameters())
            ::unsetenv(row.name);
        for (const char *const older : {"VMA_UC_OFFLOAD", "VMA_RX_SOCKET_MAX", "VMA_SELECT_POLL_OS_FORCE"})
            ::unsetenv(older);
    }
};

const Row &row_of(const char *name)
{
    for (const Row &row : parameters())
        if (std::strcmp(row.name, name) == 0)
            return row;
    UNIT_FAIL(name);
    std::abort();
}

void defaults_are_the_manuals(void **)
{
    Environment env;
    assert_int_equal(env.read_again(), 0);
    assert_int_equal(env.params.trace_level, static_cast<int>(Level::kInfo));
    assert_int_equal(env.params.log_details, 0);
    assert_true(env.params.log_colors);
    assert_null(env.params.log_file);
    assert_int_equal(env.params.rx_poll, 100000);
    assert_int_equal(env.params.select_poll, 100000);
    assert_int_equal(env.params.select_poll_os_ratio, 10);
    assert_true(env.params.offloaded_sockets);
    assert_int_equal(env.params.thread_mode, 1);
    assert_false(env.params.spec_latency);
    assert_int_equal(env.params.lift_after, 32);
    assert_int_equal(env.params.stream_ring, 262144);
    assert_null(env.params.shm_dir);
    for (const Row &row : parameters()) { // before load_params() these hold already
        char ours[256];
        char first[256];
        describe_value(env.params, row, ours, sizeof ours);
        describe_value(g_params, row, first, sizeof first);
        assert_string_equal(ours, first);
    }
}

void trace_levels(void **)
{
    const struct {
        const char *word;
        Level level;
    } cases[] = {
        {"none", Level::kNone},     {"PANIC", Level::kPanic}, {"0", Level::kPanic},         {"Error", Level::kError},
        {"1", Level::kError},       {"warn", Level::kWarn},   {"WARNING", Level::kWarn},    {"2", Level::kWarn},
        {"info", Level::kInfo},     {"3", Level::kInfo},      {"details", Level::kDetails}, {"debug", Level::kDebug},
        {"4", Level::kDebug},       {"fine", Level::kFunc},   {"func", Level::kFunc},       {"5", Level::kFunc},
        {"finer", Level::kFuncAll}, {"6", Level::kFuncAll},   {" debug ", Level::kDebug},
    };
    Environment env;
    for (const auto &each : cases) {
        assert_int_equal(env.read("VMA_TRACELEVEL", each.word), 0);
        assert_int_equal(env.params.trace_level, static_cast<int>(each.level));
    }
    for (const char *const wrong : {"7", "-1", "loud", "debugging", "4 5"}) {
        assert_int_equal(env.read("VMA_TRACELEVEL", wrong), 1);
        assert_int_equal(env.params.trace_level, static_cast<int>(Level::kInfo));
    }
}

void details_follow_the_level(void **)
{
    Environment env;
    env.read("VMA_TRACELEVEL", "debug");
    assert_int_equal(env.params.log_details, 2);
    env.read("VMA_LOG_DETAILS", "0");
    assert_int_equal(env.params.log_details, 0);
    env.read("VMA_LOG_DETAILS", "3");
    assert_int_equal(env.params.log_details, 3);
}

void numbers_have_ranges(void **)
{
    Environment env;
    const char *const good[] = {"-1", "0", "100000000", " 42 "};
    const long values[] = {-1, 0, 100000000, 42};
    for (std::size_t i = 0; i < 4; ++i) {
        assert_int_equal(env.read("VMA_RX_POLL", good[i]), 0);
        assert_int_equal(env.params.rx_poll, values[i]);
    }
    for (const char *const wrong : {"-2", "100000001", "99999999999999999999", "12abc", "abc", "1.5", "0x10", "-"}) {
        assert_int_equal(env.read("VMA_RX_POLL", wrong), 1);
        assert_int_equal(env.params.rx_poll, 100000);
    }
}

void rings_are_powers_of_two(void **)
{
    Environment env;
    for (const char *const good : {"65536", "1048576", "16777216"})
        assert_int_equal(env.read("VMA_STREAM_RING", good), 0);
    assert_int_equal(env.params.stream_ring, 16777216);
    for (const char *const wrong : {"65535", "65537", "98304", "32768", "33554432", "0", "-65536"}) {
        assert_int_equal(env.read("VMA_STREAM_RING", wrong), 1);
        assert_int_equal(env.params.stream_ring, 262144);
    }
}

void booleans_are_numbers(void **)
{
    Environment env;
    assert_int_equal(env.read("VMA_OFFLOADED_SOCKETS", "0"), 0);
    assert_false(env.params.offloaded_sockets);
    assert_int_equal(env.read("VMA_OFFLOADED_SOCKETS", "7"), 0); // as libvma does
    assert_true(env.params.offloaded_sockets);
    assert_int_equal(env.read("VMA_OFFLOADED_SOCKETS", "off"), 1);
    assert_true(env.params.offloaded_sockets);
}

void empty_is_unset(void **)
{
    Environment env;
    assert_int_equal(env.read("VMA_RX_POLL", ""), 0);
    assert_int_equal(env.params.rx_poll, 100000);
    assert_int_equal(env.read("VMA_LOG_FILE", ""), 0);
    assert_null(env.params.log_file);
}

void latency_profile(void **)
{
    Environment env;
    for (const char *const word : {"latency", "LATENCY", "15"}) {
        assert_int_equal(env.read("VMA_SPEC", word), 0);
        assert_true(env.params.spec_latency);
        assert_int_equal(env.params.rx_poll, -1);
        assert_int_equal(env.params.select_poll, -1);
        assert_int_equal(env.params.select_poll_os_ratio, 1);
        assert_int_equal(env.params.thread_mode, 0);
        assert_int_equal(env.params.lift_after, 1);
    }
    assert_int_equal(env.read("VMA_RX_POLL", "500"), 0); // a variable of its own wins
    assert_int_equal(env.params.rx_poll, 500);
    assert_int_equal(env.read("VMA_RX_POLL", "-7"), 1); // a wrong one leaves the profile's value
    assert_int_equal(env.params.rx_poll, -1);
}

// Who asks for an endless spin by its own variable has it whoever waits for the processor.
void endless_polls_of_a_profile_give_way(void **)
{
    Environment env;
    env.read_again();
    assert_false(env.params.rx_poll_gives_way);
    assert_false(env.params.select_poll_gives_way);
    env.read("VMA_SPEC", "latency");
    assert_true(env.params.rx_poll_gives_way);
    assert_true(env.params.select_poll_gives_way);
    env.read("VMA_RX_POLL", "-1");
    assert_false(env.params.rx_poll_gives_way);
    assert_true(env.params.select_poll_gives_way);
    env.read("VMA_SELECT_POLL", "-1");
    assert_false(env.params.select_poll_gives_way);
}

void unknown_profile_is_none(void **)
{
    Environment env;
    assert_int_equal(env.read("VMA_SPEC", "turbo"), 1);
    assert_false(env.params.spec_latency);
    assert_int_equal(env.params.rx_poll, 100000);
}

void texts_are_copied(void **)
{
    Environment env;
    env.read("VMA_SHM_DIR", "/somewhere");
    ::setenv("VMA_SHM_DIR", "/else", 1);
    assert_string_equal(env.params.shm_dir, "/somewhere");
}

void values_are_described(void **)
{
    Environment env;
    char text[64];
    env.read("VMA_SPEC", "latency");
    describe_value(env.params, row_of("VMA_SPEC"), text, sizeof text);
    assert_string_equal(text, "Latency");
    describe_value(env.params, row_of("VMA_THREAD_MODE"), text, sizeof text);
    assert_string_equal(text, "Single");
    describe_value(env.params, row_of("VMA_RX_POLL"), text, sizeof text);
    assert_string_equal(text, "-1");
    describe_value(env.params, row_of("VMA_OFFLOADED_SOCKETS"), text, sizeof text);
    assert_string_equal(text, "Enabled");
    describe_value(env.params, row_of("VMA_LOG_FILE"), text, sizeof text);
    assert_string_equal(text, "");
}

void rows_are_sound(void **)
{
    std::set<std::string> names;
    for (const Row &row : parameters()) {
        assert_true(names.insert(row.name.c_str()).second);
        assert_int_equal(std::strncmp(row.name, "VMA_", 4), 0);
        assert_non_null(row.text.c_str());
        assert_true(std::strlen(row.label) <= 48);
        if (!is_text(row) && !is_bool(row) && row.choices.empty()) {
            const auto fits = [&row](std::int64_t value) {
                return (row.or_zero && value == 0) || (row.min <= value && value <= row.max);
            };
            assert_true(fits(row.fallback));
            for (const auto &profile : row.overrides)
                assert_true(profile.spec == Spec::kNone || fits(profile.value));
        }
        for (const auto &choice : row.choices)
            assert_non_null(choice.shown.c_str());
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_manuals),
        cmocka_unit_test(trace_levels),
        cmocka_unit_test(details_follow_the_level),
        cmocka_unit_test(numbers_have_ranges),
        cmocka_unit_test(rings_are_powers_of_two),
        cmocka_unit_test(booleans_are_numbers),
        cmocka_unit_test(empty_is_unset),
        cmocka_unit_test(latency_profile),
        cmocka_unit_test(endless_polls_of_a_profile_give_way),
        cmocka_unit_test(unknown_profile_is_none),
        cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(values_are_described),
        cmocka_unit_test(rows_are_sound),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
