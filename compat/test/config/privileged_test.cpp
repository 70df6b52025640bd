// SPDX-License-Identifier: BSD-2-Clause
// The lines of libvma.conf that let a program be accelerated that has more rights than who starts it.
// fabtests/sockets/test_privileged.py has the whole.
#include "fabtests/unit.hpp"

#include <cstring>
#include <string>
#include <string_view>

#include "compat/src/config/privileged.hpp"

namespace {

using vma::config::find_permission;

// What is written for "/bin/x"; "no" where there is no line.
std::string found(std::string_view text, std::size_t room = 64)
{
    char out[64];
    std::memset(out, '?', sizeof out);
    if (!find_permission(text, "/bin/x", out, room))
        return "no";
    std::string values;
    for (const char *entry = out; *entry != '\0'; entry += std::strlen(entry) + 1)
        values.append(entry).append(";");
    return values;
}

void lines(void **)
{
    assert_string_equal(found("").c_str(), "no");
    assert_string_equal(found("privileged /bin/x").c_str(), "");
    assert_string_equal(found("# nothing\n\nuse os tcp_server *:*\n \tprivileged\t/bin/x \r\n").c_str(), "");
    assert_string_equal(found("privileged /bin/x A=1  B= C=x=y # D=1").c_str(), "A=1;B=;C=x=y;");
    assert_string_equal(found("privileged /bin/x wrong A=1").c_str(), "A=1;");
    for (const char *text :
         {"#privileged /bin/x", "privileged /bin/xy", "privileged /bin/", "privileged x", "privileged",
          "privilege /bin/x", "privileged /bin/y /bin/x", "application-id x *", "privileged # /bin/x"})
        assert_string_equal(found(text).c_str(), "no");
    assert_string_equal(found("privileged /bin/y A=1\nprivileged /bin/x B=1\nprivileged /bin/x C=1").c_str(), "B=1;");
}

void room(void **)
{
    assert_string_equal(found("privileged /bin/x A=1 B=2", 9).c_str(), "A=1;B=2;");
    assert_string_equal(found("privileged /bin/x A=1 B=2", 8).c_str(), "A=1;");
    assert_string_equal(found("privileged /bin/x A=1 B=2", 1).c_str(), "");
}

void this_program_is_none(void **)
{
    vma::config::read_permission();
    assert_false(vma::config::is_privileged() || vma::config::is_refused());
    assert_null(vma::config::granted("VMA_SPEC"));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(room),
        cmocka_unit_test(this_program_is_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
