// SPDX-License-Identifier: BSD-2-Clause
// The configuration file: what each key does, what is said of each that is wrong, and what fi_getinfo() makes of it.
#include "prov/vma/test/fixture.hpp"
#include "prov/vma/test/inet/fuzz_corpus.hpp"
#include "prov/vma/test/named_config.hpp"

#include <arpa/inet.h>
#include <fstream>
#include <string>
#include <vector>

#include "core/config_file.hpp"
#include "core/log.hpp"

using namespace vma;
using namespace vma::core;
using namespace vma::test;

namespace {

struct Parsed {
    std::vector<ConfigProblem> problems;
    ConfigFile file;

    explicit Parsed(std::string_view text) : file(parse_config(text, problems)) {}
    bool admits(DeviceKind kind, const char *device, const char *interface, const char *address) const
    {
        return priority(kind, device, interface, address).has_value();
    }
    std::optional<unsigned> priority(DeviceKind kind, const char *device = "mlx5_0", const char *interface = "ib0",
                                     const char *address = "192.0.2.1") const
    {
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        assert_int_equal(::inet_pton(AF_INET, address, &v4.sin_addr), 1);
        return file.priority_of(kind, device, interface, *ip_of(reinterpret_cast<const sockaddr *>(&v4)));
    }
    std::string told() const
    {
        std::string all;
        for (const ConfigProblem &problem : problems)
            all += (problem.is_warning ? "" : "(info) ") + std::to_string(problem.line) + ": " + problem.text + "\n";
        return all;
    }
};

constexpr DeviceKind kRdma = DeviceKind::rdma;

// The example of CCI's README of its verbs transport.
void a_file_of_ccis(void **)
{
    const Parsed cci("# Verbs\n\n[ib]\ntransport = Verbs\nip = 1.2.3.4\nport = 5555\n");
    assert_string_equal(cci.told().c_str(), "");
    assert_int_equal(cci.file.sections().size(), 1);
    assert_true(cci.admits(kRdma, "mlx5_0", "ib0", "1.2.3.4"));
    assert_false(cci.admits(kRdma, "mlx5_0", "ib0", "1.2.3.5"));
    assert_false(cci.admits(DeviceKind::local, "local", "", "0.0.0.0")); // what no section describes is not used
    assert_false(cci.admits(DeviceKind::ethernet, "eth0", "eth0", "1.2.3.4"));
}

void ip_wins_over_interface(void **)
{
    const Parsed both("[ib]\ntransport=verbs\ninterface = ib0\nip = 1.2.3.4");
    assert_true(both.admits(kRdma, "mlx5_0", "ib7", "1.2.3.4"));
    assert_false(both.admits(kRdma, "mlx5_0", "ib0", "192.0.2.1"));
    assert_string_equal(both.told().c_str(),
                        "(info) 3: \"interface\" is ignored: \"ip\" is there too, and is what counts\n");
    const Parsed alone("[ib]\ntransport = verbs\ninterface = ib0 # the first\n");
    assert_true(alone.admits(kRdma, "mlx5_0", "ib0", "192.0.2.1"));
    assert_false(alone.admits(kRdma, "mlx5_0", "ib1", "192.0.2.1"));
}

void each_section_is_a_device(void **)
{
    const Parsed file("[a]\ntransport = verbs\ndevice = mlx5_0\ninterface = ib0\nport = 5000-5009\r\n"
                      "[b]\ntransport = verbs\nip = 198.51.100.0/24\npriority = 60\n"
                      "[c]\ntransport = sm\n[d]\ndriver = eth\ninterface = eth1\npriority = 0\n");
    assert_string_equal(file.told().c_str(), "");
    assert_int_equal(*file.priority(kRdma), kUsualPriority);
    assert_false(file.admits(kRdma, "mlx5_0", "ib1", "192.0.2.1")); // interface of one with device of another
    assert_false(file.admits(kRdma, "mlx5_1", "ib0", "192.0.2.1"));
    assert_int_equal(*file.priority(kRdma, "mlx5_1", "ib9", "198.51.100.7"), 60);
    assert_int_equal(*file.priority(kRdma, "mlx5_0", "ib0", "198.51.100.7"), 60); // the higher of both
    assert_int_equal(*file.priority(DeviceKind::local, "local", "", "0.0.0.0"), kUsualPriority);
    assert_int_equal(*file.priority(DeviceKind::ethernet, "eth1", "eth1", "192.0.2.1"), 0);
    const auto ports = file.file.ports_of(kRdma, "mlx5_0", "ib0", in6_addr{});
    assert_true(ports && ports->low == 5000 && ports->high == 5009);
    assert_false(file.file.ports_of(kRdma, "mlx5_1", "ib0", in6_addr{}).has_value());
}

void the_default_is_first(void **)
{
    const Parsed file("[a]\ntransport = verbs\npriority = 100\n[b]\ntransport = sm\ndefault = 1\n"
                      "[c]\ntransport = eth\ndefault = true\n");
    assert_int_equal(*file.priority(DeviceKind::local), kFirst);
    assert_int_equal(*file.priority(kRdma), 100);
    assert_int_equal(*file.priority(DeviceKind::ethernet), kUsualPriority);
    assert_string_equal(file.told().c_str(), "9: a section before has \"default\" already: 0 is taken\n");
}

// Where a key has no meaning, that is said.
void what_is_ignored_is_told(void **)
{
    const Parsed file("[a]\ntransport = sm\nip = 1.2.3.4\nmtu = 9000\nbufsize = 1\n[b]\ntransport = tcp\nip = 1.2.3.4\n"
                      "[c]\ntransport = eth\ninterface = eth0\nport = 5\n");
    const char *const expected[] = {
        "3: \"ip\" is ignored: processes of one host reach each other by shared memory, which has none",
        "4: \"mtu\" is ignored: an endpoint's hints say how large its messages and queues are",
        "5: \"bufsize\" is ignored: an endpoint's hints say how large its messages and queues are",
        "(info) 7: the transport \"tcp\" is not this provider's: this section admits no device",
        "12: \"port\" is ignored: on an Ethernet port the kernel gives ports out",
    };
    std::string all;
    for (const char *line : expected)
        all += std::string(line) + "\n";
    assert_string_equal(file.told().c_str(), all.c_str());
    assert_int_equal(file.file.sections().size(), 2);
}

// The section that has it is void, for it may have been meant to keep a device out; the others count.
void expect_void(const char *lines, unsigned line, const char *what)
{
    const std::string text = std::string("[good]\ntransport = sm\n[bad]\n") + lines + "\n[good too]\ntransport = sm\n";
    const Parsed file(text);
    assert_int_equal(file.file.sections().size(), 2);
    assert_int_equal(file.problems.size(), 1);
    assert_int_equal(file.problems[0].line, line);
    assert_string_equal(file.problems[0].text.c_str(), (std::string(what) + ": this section admits no device").c_str());
}

void what_is_wrong_voids_its_section(void **)
{
    expect_void("ip = 1.2.3.4", 3, "section \"bad\" has no \"transport\", which was expected to be verbs, sm or eth");
    expect_void("transport = quic", 4, "\"quic\" is no transport; verbs, sm or eth was expected");
    expect_void("transport = verbs\nport = 70000", 5,
                "\"port\": \"70000\" is not a port, 1 to 65535, or a range of them, as 5000-5009");
    expect_void("transport = verbs\nip = 1.2.3", 5,
                "\"ip\": \"1.2.3\" is not an IPv4 or IPv6 address or prefix (192.0.2.7, 2001:db8::/32), or several "
                "separated by commas, after one ^ for all but these");
    expect_void("transport = eth\nmac = 00:24:d5:0f:bd:34", 5,
                "devices are not chosen by \"mac\"; \"interface\" was expected");
    expect_void(
        "transport = verbs\ninterfce = ib0", 5,
        "\"interfce\" is no key; these are: transport, device, interface, ip, port, priority, default, mac, mtu, "
        "bufsize");
    expect_void("transport = verbs\nip =", 5, "\"ip\" has no value behind its =");
    expect_void("transport = verbs\n\nip = 1.2.3.4\nip = 1.2.3.5", 7, "\"ip\" is there a second time, after line 6");
    expect_void("transport = verbs\nnonsense\x01", 5, "\"nonsense?\" is no \"key = value\" and no \"[section]\"");
    expect_void((std::string("transport = verbs\nip=") + std::string(1100, '1')).c_str(), 5,
                "the line has more than 1023 bytes");
}

void what_is_wrong_with_a_file(void **)
{
    const char kNone[] =
        "0: no section of it admits a device, as \"[name]\" with \"transport = verbs\" would: no device "
        "of this provider is used\n";
    assert_string_equal(Parsed("").told().c_str(), kNone);
    assert_string_equal(Parsed("# nothing\n\n").told().c_str(), kNone);
    assert_string_equal(
        Parsed("transport = sm\n").told().c_str(),
        ("1: \"transport\" belongs to a device: it stands in no section and is not looked at\n" + std::string(kNone))
            .c_str());
    assert_string_equal(Parsed(std::string(kMostConfigBytes + 1, '\n')).told().c_str(),
                        "0: it has more than 65536 bytes: no device of this provider is used\n");
    for (const char *header : {"[]", "[a", "[a]b", "[a]]", "[ ]"})
        assert_true(Parsed(std::string(header) + "\ntransport = sm\n").file.sections().empty());
    std::string many;
    for (unsigned i = 0; i < kMostConfigSections + 200; ++i)
        many += "[s]\ntransport = sm\n";
    const Parsed all(many);
    assert_int_equal(all.file.sections().size(), kMostConfigSections);
    assert_int_equal(all.problems.size(), kMostConfigProblems + 1);
    assert_string_equal(all.problems.back().text.c_str(), "100 more such lines are not shown");
}

void what_the_fuzzer_knows(void **)
{
    fuzz::run_corpus("config_file", "core");
}

// ---- fi_getinfo -----------------------------------------------------------------------------------------------------

std::vector<std::string> g_log;
constexpr LogSink kKeeping = {
    [](Level level, Subsys) noexcept { return level == Level::warn; },
    [](Level, Subsys, const char *, int, const char *text) noexcept { g_log.emplace_back(text); },
};

int local_result()
{
    int error = 0;
    const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, nullptr, &error);
    if (info)
        assert_string_equal(info->domain_attr->name, "local");
    return error;
}

void only_what_is_described_is_offered(void **)
{
    const OwnDirectory directory;
    assert_int_equal(local_result(), 0);
    {
        const NamedConfig file("[a]\ntransport = sm\n");
        assert_int_equal(local_result(), 0);
        ::setenv("FI_VMA_DEVICE", "rxe0", 1); // both must admit it
        assert_int_equal(local_result(), -FI_ENODATA);
        ::unsetenv("FI_VMA_DEVICE");
    }
    const NamedConfig file("[a]\ntransport = verbs\n");
    assert_int_equal(local_result(), -FI_ENODATA);
}

void what_is_wrong_is_logged_once(void **)
{
    const OwnDirectory directory;
    set_log_sink(&kKeeping);
    const NamedConfig file("[a]\ntransport = verbs\nport = 0\n[b]\ntransport = sm\n");
    assert_int_equal(local_result(), 0);
    assert_int_equal(local_result(), 0);
    assert_int_equal(g_log.size(), 1);
    assert_string_equal(g_log[0].c_str(), (file.path() + ":3: \"port\": \"0\" is not a port, 1 to 65535, or a range of "
                                                         "them, as 5000-5009: this section admits no device")
                                              .c_str());
    std::ofstream(file.path()) << "[a]\ntransport = verbs\n"; // it was read once
    assert_int_equal(local_result(), 0);
    set_log_sink(nullptr);
    g_log.clear();
}

void a_file_that_is_none_leaves_no_device(void **)
{
    const OwnDirectory directory;
    set_log_sink(&kKeeping);
    for (const std::string &path : {directory.path() + "/missing", directory.path(), std::string("/dev/zero")}) {
        ::setenv("FI_VMA_CONFIG", path.c_str(), 1);
        assert_int_equal(local_result(), -FI_ENODATA);
        assert_int_equal(g_log.size(), 1);
        assert_int_equal(g_log[0].find(path + ": it can't be read as a file ("), 0);
        g_log.clear();
    }
    ::setenv("FI_VMA_CONFIG", "", 1); // as if it were not set
    assert_int_equal(local_result(), 0);
    ::unsetenv("FI_VMA_CONFIG");
    set_log_sink(nullptr);
}

// CCI's variable is for programs that come by libfabric, which this one does not.
void ccis_variable_is_not_for_all(void **)
{
    const OwnDirectory directory;
    ::setenv("CCI_CONFIG", (directory.path() + "/missing").c_str(), 1);
    assert_int_equal(local_result(), 0);
    ::unsetenv("CCI_CONFIG");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_ccis),
        cmocka_unit_test(ip_wins_over_interface),
        cmocka_unit_test(each_section_is_a_device),
        cmocka_unit_test(the_default_is_first),
        cmocka_unit_test(what_is_ignored_is_told),
        cmocka_unit_test(what_is_wrong_voids_its_section),
        cmocka_unit_test(what_is_wrong_with_a_file),
        cmocka_unit_test(what_the_fuzzer_knows),
        cmocka_unit_test(only_what_is_described_is_offered),
        cmocka_unit_test(what_is_wrong_is_logged_once),
        cmocka_unit_test(a_file_that_is_none_leaves_no_device),
        cmocka_unit_test(ccis_variable_is_not_for_all),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
