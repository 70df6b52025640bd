// SPDX-License-Identifier: BSD-2-Clause
// Units of systemd: how they are read, and which of their settings cost acceleration.
#include "fabtests/unit.hpp"

#include <string>

#include "util/vma/systemd/unit_judge.hpp"

namespace {

using namespace vma::command;

constexpr char kLibrary[] = "/usr/lib/x86_64-linux-gnu/libvma.so";

Unit service(const std::string &settings)
{
    Unit unit;
    unit.add(parse_unit("[Service]\n" + settings));
    return unit;
}

Findings judged(const std::string &settings, bool ethernet = false)
{
    return judge(service(settings), {kLibrary, ethernet});
}

void costs(const char *settings, Cost cost)
{
    const Findings found = judged(settings);
    if (found.size() != 1 || found[0].cost != cost) {
        print_error("%s: %zu findings%s%s\n", settings, found.size(), found.empty() ? "" : ": ",
                    found.empty() ? "" : found[0].what.c_str());
        UNIT_FAIL("it costs something else");
    }
}

void costs_nothing(const char *settings)
{
    if (const Findings found = judged(settings); !found.empty()) {
        print_error("%s: %s\n", settings, found[0].what.c_str());
        UNIT_FAIL("it should cost nothing");
    }
}

void syntax(void **)
{
    const Unit unit =
        service("# a remark\n; another\nA=1\nB = two \\\n# between\n  words\nA=2\n[Unit]\nA=3\nnonsense\n");
    assert_string_equal(unit.last("A").c_str(), "2");
    assert_string_equal(unit.last("B").c_str(), "two  words");
    assert_string_equal(unit.last("C").c_str(), "");
    assert_int_equal(service("A=1\nA=\nA=2\nA=3\n").all("A").size(), 2);
    assert_int_equal(parse_unit("").size(), 0);
    parse_unit("[\n]\n=\n\\");
    const std::vector<std::string> words = words_of_value("a \"b c\"d 'e\"' f\\ g \"\" 100%%");
    assert_int_equal(words.size(), 6);
    assert_string_equal(words[1].c_str(), "b cd");
    assert_string_equal(words[2].c_str(), "e\"");
    assert_string_equal(words[3].c_str(), "f g");
    assert_string_equal(words[5].c_str(), "100%");
}

void names(void **)
{
    assert_string_equal(service_name("redis").value_or("").c_str(), "redis.service");
    assert_string_equal(service_name("redis@a-1.service").value_or("").c_str(), "redis@a-1.service");
    for (const char *const wrong : {"", ".service", "a/b.service", "../x.service", "x.socket", "a b", ".x"})
        assert_false(service_name(wrong).has_value());
}

// doc/sandboxes.md has what stays accelerated and what doesn't.
void switches(void **)
{
    for (const char *const fine :
         {"", "NoNewPrivileges=yes", "PrivateTmp=yes", "PrivateDevices=yes", "PrivateUsers=yes", "ProtectSystem=strict",
          "MemoryDenyWriteExecute=yes", "RestrictNamespaces=yes", "ProtectProc=invisible", "PrivateNetwork=no",
          "RestrictAddressFamilies=AF_INET AF_UNIX AF_NETLINK", "RestrictAddressFamilies=~AF_PACKET", "User=root",
          "ReadOnlyPaths=/\nReadWritePaths=/dev/shm", "LimitNOFILE=65536", "LimitAS=infinity", "ProtectHome=yes",
          "NoExecPaths=/\nExecPaths=/usr/bin/redis-server /usr/lib /lib", "UnsetEnvironment=HOME"})
        costs_nothing(fine);
    for (const char *const wrong :
         {"PrivateIPC=yes", "RestrictAddressFamilies=AF_INET AF_UNIX", "RestrictAddressFamilies=AF_INET AF_NETLINK",
          "RestrictAddressFamilies=~AF_UNIX", "InaccessiblePaths=/dev/shm", "ReadOnlyPaths=/dev", "LimitNPROC=1",
          "NoExecPaths=/\nExecPaths=/usr/bin", "UnsetEnvironment=\"LD_PRELOAD\"", "RootDirectory=/srv"})
        costs(wrong, Cost::kAll);
    costs("PrivateNetwork=yes", Cost::kSome);
    costs("LimitNOFILE=256:512", Cost::kSome);
    costs("LimitAS=96M", Cost::kSome);
    costs("DynamicUser=yes", Cost::kNote);
    costs("User=redis", Cost::kNote);
    costs("EnvironmentFile=-/etc/default/x", Cost::kNote);
}

void filters(void **)
{
    costs_nothing("SystemCallFilter=@system-service");
    costs_nothing("SystemCallFilter=~@privileged @mount");
    costs_nothing("SystemCallFilter=@system-service\nSystemCallFilter=~@privileged");
    costs_nothing("SystemCallFilter=@system-service\nSystemCallFilter=~@resources\nSystemCallErrorNumber=EPERM");
    costs("SystemCallFilter=@system-service\nSystemCallFilter=~@resources", Cost::kAll); // it kills who tries mbind()
    costs("SystemCallFilter=@system-service\nSystemCallFilter=~@ipc:EPERM\nSystemCallErrorNumber=EPERM", Cost::kAll);
    costs("SystemCallFilter=~clone", Cost::kAll);
    costs("SystemCallFilter=@basic-io @file-system @io-event @network-io @process @signal @timer", Cost::kAll);
    assert_string_equal(refused_by({"@system-service", "~memfd_create"}, true).c_str(), "@ipc");
    assert_string_equal(refused_by({"~ioctl", "ioctl"}, true).c_str(), ""); // taken back
    assert_string_equal(refused_by({}, true).c_str(), "");
}

// Debian 12's redis-server.service has these.
void mended(void **)
{
    const Unit redis = service("User=redis\nNoExecPaths=/\nExecPaths=/usr/bin/redis-server /usr/lib /lib\n"
                               "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX\nSystemCallFilter=@system-service\n"
                               "SystemCallFilter=~ @privileged @resources\nPrivateTmp=yes\n");
    const std::vector<std::string> settings = mend(redis, {kLibrary, false});
    assert_int_equal(settings.size(), 2);
    assert_string_equal(settings[0].c_str(), "SystemCallFilter=mbind");
    assert_string_equal(settings[1].c_str(), "RestrictAddressFamilies=AF_NETLINK");
    for (const char *const lines : // each of what a setting can undo
         {"SystemCallFilter=@basic-io", "SystemCallFilter=~@ipc clone ioctl", "RestrictAddressFamilies=AF_INET",
          "RestrictAddressFamilies=~AF_UNIX AF_NETLINK", "ReadOnlyPaths=/", "NoExecPaths=/", "LimitNOFILE=16",
          "LimitAS=1G\nLimitFSIZE=1", "LimitNPROC=1"}) {
        Unit unit = service(lines);
        for (const std::string &setting : mend(unit, {kLibrary, false}))
            unit.add(parse_unit("[Service]\n" + setting));
        if (!judge(unit, {kLibrary, false}).empty()) {
            print_error("%s\n", lines);
            UNIT_FAIL("it is not mended");
        }
    }
    assert_int_equal(mend(service("PrivateNetwork=yes\nReadOnlyPaths=/dev/shm"), {kLibrary, false}).size(), 0);
}

void rights(void **)
{
    assert_int_equal(judged("", true).size(), 0); // root's
    assert_int_equal(judged("CapabilityBoundingSet=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF", true).size(), 0);
    assert_int_equal(judged("CapabilityBoundingSet=CAP_NET_RAW", true).size(), 2);
    assert_int_equal(judged("CapabilityBoundingSet=~CAP_BPF", true).size(), 1);
    assert_int_equal(judged("User=redis", true).size(), 1 + 3);
    assert_int_equal(judged("User=redis\nAmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF", true).size(), 1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(syntax),  cmocka_unit_test(names),  cmocka_unit_test(switches),
        cmocka_unit_test(filters), cmocka_unit_test(mended), cmocka_unit_test(rights),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
