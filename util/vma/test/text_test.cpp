// SPDX-License-Identifier: BSD-2-Clause
// Texts that `vma` reads and writes: of /proc, of LD_PRELOAD and the loader's cache, of a drop-in, and reasons.
#include "fabtests/unit.hpp"

#include <cstring>
#include <string>

#include "util/vma/files.hpp"
#include "util/vma/place.hpp"
#include "util/vma/preload.hpp"
#include "util/vma/reasons.hpp"
#include "util/vma/settings.hpp"
#include "util/vma/systemd/drop_in.hpp"
#include "util/vma/systemd/unit.hpp"

namespace {

using namespace vma::command;

void equal(const std::string &got, const char *wanted)
{
    assert_string_equal(got.c_str(), wanted);
}

void preload(void **)
{
    equal(preload_value("/a/libvma.so", ""), "/a/libvma.so");
    equal(preload_value("/a/libvma.so", "x.so:/y.so  z.so"), "/a/libvma.so x.so /y.so z.so");
    equal(preload_value("/a/libvma.so", "x.so /old/libvma.so libvma.so.9"), "/a/libvma.so x.so");
    equal(preload_value("/a/libvma.so", "/a/libvma.so"), "/a/libvma.so");
    equal(preload_value("/a/libvma.so", "libvmalloc.so"), "/a/libvma.so libvmalloc.so");
    assert_true(names_library("a.so:/x/libvma.so") && !names_library("libvma-fi.so") && !names_library(""));
    assert_false(can_be_preloaded("/my folder/libvma.so"));
    assert_true(can_be_preloaded("/my/libvma.so"));
}

void cache(void **)
{
    constexpr char kBytes[] = "head\0libvma.so\0/usr/lib/libvma.so\0/usr/lib/libvma.so.1\0x/libvma.so\0end";
    const std::vector<std::string> paths = paths_in_cache({kBytes, sizeof kBytes - 1}, "libvma.so");
    assert_int_equal(paths.size(), 1);
    equal(paths[0], "/usr/lib/libvma.so");
    assert_int_equal(paths_in_cache("", "libvma.so").size(), 0);
}

void place(void **)
{
    Place p;
    parse_status("Name:\tx\nUid:\t1\t2\t3\t4\nSeccomp:\t2\nCapEff:\t00000000000000ff\nCpus_allowed_list:\t0-3,8\n", p);
    assert_int_equal(p.user, 2);
    assert_int_equal(p.seccomp, 2);
    assert_int_equal(p.capabilities, 0xff);
    assert_int_equal(p.processors, 5);
    parse_limits("Max open files            1024                 524288               files     \n"
                 "Max locked memory         unlimited            unlimited            bytes     \n",
                 p.limits);
    assert_int_equal(p.limits.descriptors, 1024);
    assert_true(p.limits.locked_memory == kUnlimited);
    parse_maps("1-2 r-xp 0 0:0 0 /usr/bin/x\n1-2 r-xp 0 0:0 0 /opt/my lib/libvma.so (deleted)\n", p);
    assert_int_equal(p.mappings, 2);
    equal(p.library, "/opt/my lib/libvma.so");
    assert_true(p.library_is_gone);
    const Variables v = parse_environment(std::string_view("A=1\0B==\0A=2\0C\0", 14));
    assert_int_equal(v.size(), 2);
    equal(v.at("A"), "1");
    equal(v.at("B"), "=");
    Place nothing;
    parse_status("", nothing);
    parse_status("Uid:\nSeccomp:\nnonsense\n:\n", nothing);
    parse_maps("", nothing);
    assert_true(nothing.library.empty());
    assert_int_equal(count_processors(""), 1);
    assert_int_equal(count_processors("7-3"), 1);
}

void settings(void **)
{
    Settings s;
    std::string error;
    assert_true(take_setting('l', nullptr, s, error));
    assert_true(take_setting('p', "mcd", s, error)); // in place of it
    assert_int_equal(s.variables.size(), 1);
    equal(s.variables[0].value, "mcd");
    assert_true(take_setting('e', "eth1,eth2", s, error));
    assert_true(take_setting('s', "VMA_LIFT_AFTER=7", s, error));
    assert_int_equal(s.variables.size(), 3);
    assert_false(take_setting('p', "fast", s, error));
    assert_non_null(strstr(error.c_str(), "latency"));
    assert_false(take_setting('s', "VMA_LIFT_AFTR=7", s, error));
    assert_non_null(strstr(error.c_str(), "VMA_LIFT_AFTER"));
    for (const char *const wrong : {"VMA_LIFT_AFTER", "=7", "PATH=/", "VMA_ETHERNET=a\nb"})
        assert_false(take_setting('s', wrong, s, error));
    assert_int_equal(s.variables.size(), 3);
}

void drop_in(void **)
{
    const std::string text =
        drop_in_text("/a b/libvma.so x.so", {{"VMA_SPEC", "latency"}, {"VMA_SHM_DIR", "%t\""}}, {"Nice=3"}, true);
    assert_true(author_of(text) == Author::kUs && made_folder(text));
    assert_true(author_of(text + "#\n") == Author::kEdited);
    assert_true(author_of("[Service]\n") == Author::kOther && author_of("") == Author::kOther);
    assert_false(made_folder(drop_in_text("x", {}, {}, false)));
    Unit unit; // what systemd reads back
    unit.add(parse_unit(text));
    const std::vector<std::string> values = unit.all("Environment");
    assert_int_equal(values.size(), 3);
    equal(words_of_value(values[0]).at(0), "LD_PRELOAD=/a b/libvma.so x.so");
    equal(words_of_value(values[2]).at(0), "VMA_SHM_DIR=%t\"");
    equal(unit.last("Nice"), "3");
}

// Of the texts that the library and the counters have, those that a user meets most.
void reasons(void **)
{
    for (const char *const reason : {"3 sends and receives, VMA_LIFT_AFTER is 32",
                                     "no accelerated peer was found",
                                     "it listens",
                                     "the other end is user 7's, who did not come to the meeting",
                                     "the peer is another user's (VMA_OTHER_USERS=0)",
                                     "the peer is on another host, or in another network namespace (vmad: not running)",
                                     "the peer is on another host",
                                     "a rule of libvma.conf says os",
                                     "io_uring",
                                     "fork",
                                     "system call filter",
                                     "the directory of offers can't be used",
                                     "no endpoint could be opened",
                                     "SO_RCVLOWAT",
                                     "descriptor 0, 1 or 2",
                                     "another user has taken the names by which the peer would find us",
                                     "too many meetings at a time",
                                     "another program holds it too",
                                     "too many connections are accelerated",
                                     "TCP_ULP",
                                     "splice"})
        if (*what_to_do(reason) == '\0') {
            print_error("%s\n", reason);
            UNIT_FAIL("nothing is said about this reason");
        }
    assert_string_equal(what_to_do("something else"), "");
    assert_non_null(strstr(
        what_to_do("the peer is on another host, or in another network namespace (vmad: not running)"), "start vmad"));
}

void numbers(void **)
{
    assert_int_equal(parse_number("42").value_or(0), 42);
    for (const char *const wrong : {"", "-1", "4x", " 4", "18446744073709551616"})
        assert_false(parse_number(wrong).has_value());
    assert_false(parse_number("256", 255).has_value());
    assert_int_equal(split("  a b ", " ").size(), 2);
    assert_true(trim(" \t\n").empty() && trim(" x ") == "x");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(preload), cmocka_unit_test(cache),   cmocka_unit_test(place),   cmocka_unit_test(settings),
        cmocka_unit_test(drop_in), cmocka_unit_test(reasons), cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
