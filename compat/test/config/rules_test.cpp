// SPDX-License-Identifier: BSD-2-Clause
// libvma.conf: the grammar, what each error says and where, which section is a program's, and which addresses a rule
// meets.
#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "compat/src/rules/parser.hpp"
#include "compat/src/rules/rules.hpp"

using namespace vma::rules;

namespace {

class Problems final : public Reporter
{
public:
    void report(const Problem &problem) override { all.push_back(problem); }
    std::vector<Problem> all;
};

sockaddr_in6 address(const char *text, std::uint16_t port)
{
    sockaddr_in6 out = {};
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(port);
    const std::string mapped = std::strchr(text, ':') != nullptr ? text : std::string("::ffff:") + text;
    assert_int_equal(inet_pton(AF_INET6, mapped.c_str(), &out.sin6_addr), 1);
    return out;
}

Rule rule_of(const char *line)
{
    Problems problems;
    const Statement statement = parse_line(line, 7, problems);
    if (statement.kind != Kind::kRule)
        print_error("%s: %s\n", line, problems.all.empty() ? "no rule" : problems.all[0].text);
    assert_int_equal(statement.kind, Kind::kRule);
    assert_true(problems.all.empty());
    return statement.rule;
}

bool meets(const char *line, const char *first, std::uint16_t first_port, const char *second = nullptr,
           std::uint16_t second_port = 0)
{
    const Rule rule = rule_of(line);
    const sockaddr_in6 one = address(first, first_port);
    if (second == nullptr)
        return matches(rule, one, nullptr);
    const sockaddr_in6 other = address(second, second_port);
    return matches(rule, one, &other);
}

void wrong(const char *line, unsigned column, const char *text)
{
    Problems problems;
    const Statement statement = parse_line(line, 3, problems);
    assert_int_equal(statement.kind, Kind::kWrong);
    assert_int_equal(problems.all.size(), 1);
    if (problems.all[0].column != column || std::strstr(problems.all[0].text, text) == nullptr)
        print_error("%s: column %u: %s\n", line, problems.all[0].column, problems.all[0].text);
    assert_int_equal(problems.all[0].column, column);
    assert_non_null(std::strstr(problems.all[0].text, text));
    assert_true(problems.all[0].is_error);
    assert_int_equal(problems.all[0].line, 3);
}

void rules_meet_addresses(void **)
{
    assert_true(meets("use os tcp_server *:*", "10.0.0.1", 1));
    assert_true(meets("use os tcp_server *:*", "2001:db8::1", 1));
    assert_true(meets("use vma tcp_server 10.0.0.1:80", "10.0.0.1", 80));
    assert_false(meets("use vma tcp_server 10.0.0.1:80", "10.0.0.2", 80));
    assert_false(meets("use vma tcp_server 10.0.0.1:80", "10.0.0.1", 81));
    assert_true(meets("use vma udp_sender 10.1.2.3/15:5000-5010", "10.0.255.255", 5010));
    assert_false(meets("use vma udp_sender 10.1.2.3/15:5000-5010", "10.2.0.0", 5005));
    assert_false(meets("use vma udp_sender 10.1.2.3/15:5000-5010", "10.0.0.1", 5011));
    assert_false(meets("use vma udp_sender 0.0.0.0/0:*", "2001:db8::1", 5)); // IPv4 alone
    assert_true(meets("use vma udp_sender 0.0.0.0/0:*", "1.2.3.4", 5));
    assert_true(meets("use vma udp_receiver [2001:db8::]/33:*", "2001:db8:7fff::1", 5));
    assert_false(meets("use vma udp_receiver [2001:db8::]/33:*", "2001:db8:8000::1", 5));
    assert_true(meets("use vma udp_receiver [ff02::/16]:7", "ff02::abcd", 7));
    assert_true(meets("use vma tcp_client 192.168.1.0/24:*:*:*", "192.168.1.9", 5, "10.0.0.1", 999));
    assert_false(meets("use vma tcp_client 192.168.1.0/24:*:10.0.0.2:*", "192.168.1.9", 5, "10.0.0.1", 999));
    assert_true(meets("use vma tcp_client *:80:*:1000-2000", "192.168.1.9", 80, "10.0.0.1", 1999));
    assert_false(meets("use sdp tcp_client *:*", "1.2.3.4", 5));
    assert_false(meets("use sa tcp_client *:*", "1.2.3.4", 5));
    assert_true(meets("\t use  os udp_connect   * : 53 # names", "1.2.3.4", 53));
    assert_true(meets("use os udp_connect *:53\r", "1.2.3.4", 53));
}

// As VMA's manual writes all of them. libvma makes 0 of the end, and no port is in the range.
void all_ports_of_the_manual(void **)
{
    for (const std::uint16_t port : {std::uint16_t{0}, std::uint16_t{80}, std::uint16_t{65535}})
        assert_true(meets("use os tcp_server *:0-65536", "1.2.3.4", port));
}

void any_transport_is_the_kernel_for_who_connects(void **)
{
    assert_true(means_kernel(rule_of("use * tcp_client *:*")));
    assert_true(means_kernel(rule_of("use * udp_connect *:*")));
    assert_false(means_kernel(rule_of("use * tcp_server *:*")));
    assert_false(means_kernel(rule_of("use * udp_receiver *:*")));
    assert_true(means_kernel(rule_of("use os udp_sender *:*")));
    assert_false(means_kernel(rule_of("use vma udp_sender *:*")));
}

void errors_name_the_column(void **)
{
    wrong("uze os tcp_server *:*", 1, "expected use, application-id, privileged or log, found \"uze\"");
    wrong("privileged", 11, "expected the path of a program, found the end of the line");
    wrong("privileged nginx", 12, "expected the path of a program");
    wrong("privileged /bin/x VMA_SPEC", 19, "expected VMA_NAME=VALUE");
    wrong("privileged /bin/x PATH=/", 19, "expected VMA_NAME=VALUE");
    wrong("use tcp tcp_server *:*", 5, "expected a transport (vma, os or *), found \"tcp\"");
    wrong("use os tcp_sever *:*", 8, "expected a role");
    wrong("use os tcp_server", 18, "found the end of the line");
    wrong("use os tcp_server localhost:80", 19, "expected an address");
    wrong("use os tcp_server 10.0.0.256:80", 19, "expected an address");
    wrong("use os tcp_server 10.0.0.1", 27, "expected \":\"");
    wrong("use os tcp_server 10.0.0.1:65536", 28, "expected a port");
    wrong("use os tcp_server 10.0.0.1:0-65537", 30, "not less than the first");
    wrong("use os tcp_server 10.0.0.1:65536-65536", 28, "expected a port");
    wrong("use os tcp_server 10.0.0.1:080", 28, "expected a port");
    wrong("use os tcp_server 10.0.0.1:20-10", 31, "not less than the first");
    wrong("use os tcp_server 10.0.0.1/x:20", 28, "the length of a prefix");
    wrong("use os tcp_server [2001:db8::1:20", 34, "expected \"]\"");
    wrong("use os tcp_server [2001:db8::1 20", 32, "expected \"]\"");
    wrong("use os tcp_server *:* more", 23, "expected the end of the line");
    wrong("application-id foo", 19, "expected an application id");
    wrong("application-id foo bar baz", 24, "expected the end of the line");
    wrong("log nowhere", 5, "expected destination or min-level");
    wrong("use os tcp_server \x1b[31m", 19, "found \"?[31m\"");
}

void libvma_is_followed_where_it_is_lenient(void **)
{
    Problems problems;
    assert_int_equal(parse_line("use os tcp_server 10.0.0.1/40:5", 1, problems).rule.first.bits, 128);
    assert_int_equal(problems.all.size(), 1);
    assert_false(problems.all[0].is_error);
    assert_int_equal(parse_line("use os tcp_server *:5:*:6", 2, problems).kind, Kind::kRule);
    assert_string_equal(problems.all[1].text, "this role has one address: the second one is not looked at");
    for (const char *line : {"log min-level 9", "log destination stderr", "log destination ystderr min-level 1",
                             "log destination file libvma.log", "log destination syslog"})
        assert_int_equal(parse_line(line, 3, problems).kind, Kind::kLog);
    assert_int_equal(parse_line("privileged /bin/x VMA_SPEC=latency VMA_MTU=", 4, problems).kind, Kind::kPrivileged);
}

const char kFile[] = "use os tcp_server *:1\n"
                     "\n"
                     "application-id tcp-lat B1   # comment\n"
                     "use vma tcp_client 192.168.1.0/24:*:*:*\n"
                     "nonsense\n"
                     "use os tcp_server *:5001\n"
                     "application-id db2* *\n"
                     "use os tcp_server *:2\n"
                     "application-id tcp-lat B1\n"
                     "use os udp_connect *:53";

void sections_are_found(void **)
{
    Problems problems;
    const File file = parse_text(kFile, problems);
    assert_int_equal(problems.all.size(), 1);
    assert_int_equal(problems.all[0].line, 5);
    assert_int_equal(file.sections.size(), 3);
    assert_int_equal(file.sections[1].rules.size(), 3); // two pieces, one section
    assert_int_equal(file.sections[1].rules[2].line, 10);
    bool known = false;
    assert_ptr_equal(section_of(file, "tcp-lat", "B1", known), &file.sections[0]); // the first that matches
    const File later = parse_text(std::strchr(kFile, '\n') + 1, problems);
    assert_int_equal(later.sections.size(), 2);
    assert_ptr_equal(section_of(later, "tcp-lat", "B1", known), &later.sections[0]);
    assert_true(known);
    assert_ptr_equal(section_of(later, "tcp-lat", kDefaultId, known), nullptr);
    assert_ptr_equal(section_of(later, "tcp-lat", "*", known), &later.sections[0]);
    assert_ptr_equal(section_of(later, "db2sysc", "anything", known), &later.sections[1]);
    assert_false(known);
    assert_ptr_equal(section_of(later, "db1", kDefaultId, known), nullptr);
    assert_true(known);
}

void odd_files_are_refused(void **)
{
    Problems problems;
    File file;
    assert_int_equal(read_file("/nonexistent/libvma.conf", file, problems), ENOENT);
    assert_int_equal(read_file("/", file, problems), EISDIR);
    assert_int_equal(read_file("/dev/null", file, problems), EINVAL);
    char name[] = "/tmp/vma-rules-XXXXXX";
    const int fd = mkstemp(name);
    assert_true(fd >= 0);
    const std::string text = std::string("use os tcp_server *:7\n") + std::string("\0#\n", 3);
    assert_int_equal(write(fd, text.data(), text.size()), text.size());
    const int result = read_file(name, file, problems);
    assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
    const int large = read_file(name, file, problems);
    close(fd);
    unlink(name);
    assert_int_equal(result, 0);
    assert_int_equal(file.sections[0].rules.size(), 1);
    assert_int_equal(large, EFBIG);
}

void rules_are_added_in_front(void **)
{
    const sockaddr_in6 here = address("10.0.0.1", 80);
    assert_false(exist());
    assert_false(says_kernel(Role::kTcpServer, here));
    assert_int_equal(add("use os tcp_server 10.0.0.0/8:*"), 0);
    assert_true(exist());
    assert_true(says_kernel(Role::kTcpServer, here));
    assert_false(says_kernel(Role::kTcpClient, here));
    assert_int_equal(add("use vma tcp_server *:80"), 0);
    assert_false(says_kernel(Role::kTcpServer, here));
    for (const char *line : {"", "application-id * *", "use os", "log min-level 1"}) {
        errno = 0;
        assert_int_equal(add(line), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_int_equal(add(nullptr), -1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(rules_meet_addresses),
        cmocka_unit_test(all_ports_of_the_manual),
        cmocka_unit_test(any_transport_is_the_kernel_for_who_connects),
        cmocka_unit_test(errors_name_the_column),
        cmocka_unit_test(libvma_is_followed_where_it_is_lenient),
        cmocka_unit_test(sections_are_found),
        cmocka_unit_test(odd_files_are_refused),
        cmocka_unit_test(rules_are_added_in_front),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
