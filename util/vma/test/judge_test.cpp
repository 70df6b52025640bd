// SPDX-License-Identifier: BSD-2-Clause
// What facts about a process and a machine cost: nothing where all is well, and each lack by itself.
#include "fabtests/unit.hpp"

#include <cstring>
#include <string>

#include "util/vma/judge.hpp"

namespace {

using namespace vma::command;

Place good_place()
{
    Place place;
    place.is_self = true;
    place.processors = 4;
    place.limits.descriptors = 65536;
    place.namespaces = {100, 0xefffffff, 0xeffffffc};
    return place;
}

Machine good_machine()
{
    Machine m;
    m.folder = "/dev/shm/vma-0";
    m.broker_path = "/run/vma/broker";
    m.first_network = 100;
    return m;
}

// The only finding; its text has `part`.
void is_found(const Place &place, const Machine &machine, Cost cost, const char *part)
{
    const Findings found = judge(place, machine);
    assert_int_equal(found.size(), 1);
    assert_int_equal(static_cast<int>(found[0].cost), static_cast<int>(cost));
    if (found[0].what.find(part) == std::string::npos) {
        print_error("'%s' lacks '%s'\n", found[0].what.c_str(), part);
        UNIT_FAIL("another finding");
    }
    assert_false(found[0].mend.empty());
}

void nothing_is_wrong(void **)
{
    assert_int_equal(judge(good_place(), good_machine()).size(), 0);
}

void meeting(void **)
{
    for (const Meeting bad : {Meeting::kMissing, Meeting::kReadOnly, Meeting::kStranger}) {
        Machine m = good_machine();
        m.meeting = bad;
        is_found(good_place(), m, Cost::kAll, "/dev/shm/vma-0");
    }
}

void filters(void **)
{
    Place place = good_place();
    place.seccomp = 1;
    is_found(place, good_machine(), Cost::kAll, "strict");
    place.seccomp = 2;
    assert_int_equal(judge(place, good_machine()).size(), 0); // it was tried, and nothing is refused
    Machine m = good_machine();
    m.refused = "memfd_create";
    is_found(place, m, Cost::kAll, "memfd_create");
    place.is_self = false;
    is_found(place, good_machine(), Cost::kNote, "can't be read");
}

void limits(void **)
{
    Place place = good_place();
    place.limits.descriptors = 256;
    is_found(place, good_machine(), Cost::kSome, "RLIMIT_NOFILE is 256");
    place = good_place();
    place.limits.file_size = 4096;
    is_found(place, good_machine(), Cost::kSome, "RLIMIT_FSIZE");
    Machine m = good_machine();
    m.most_streams = 16;
    is_found(good_place(), m, Cost::kSome, "at most 16 connections");
    place = good_place();
    place.limits.address_space = 1 << 20;
    assert_non_null(strstr(judge(place, m).front().mend.c_str(), "RLIMIT_AS"));
}

void broker(void **)
{
    for (const Broker lack : {Broker::kNobody, Broker::kSilent, Broker::kForbidden}) {
        Machine m = good_machine();
        m.broker = lack;
        is_found(good_place(), m, Cost::kNote, "/run/vma/broker"); // most programs need none
        Place container = good_place();
        container.namespaces.network = 200;
        is_found(container, m, Cost::kSome, "/run/vma/broker");
    }
    Machine unwanted = good_machine();
    unwanted.broker = Broker::kUnwanted;
    assert_int_equal(judge(good_place(), unwanted).size(), 0);
}

void namespaces(void **)
{
    Place place = good_place();
    place.namespaces.ipc = 5;
    is_found(place, good_machine(), Cost::kNote, "IPC");
    place.namespaces = {}; // not known
    assert_int_equal(judge(place, good_machine()).size(), 0);
}

void variables(void **)
{
    Place place = good_place();
    place.variables["VMA_OFFLOADED_SOCKETS"] = "0";
    is_found(place, good_machine(), Cost::kAll, "VMA_OFFLOADED_SOCKETS");
    place = good_place();
    place.variables["VMA_SPEC"] = "latency";
    assert_int_equal(judge(place, good_machine()).size(), 0);
    place.processors = 1;
    is_found(place, good_machine(), Cost::kSome, "one processor");
}

void ports(void **)
{
    Place place = good_place();
    Machine m = good_machine();
    place.variables["VMA_ETHERNET"] = "eth1";
    place.capabilities = UINT64_MAX;
    m.interfaces = {{"eth1", true, true}};
    m.huge_pages = 10;
    assert_int_equal(judge(place, m).size(), 0);
    m.interfaces = {{"eth1", true, false}};
    is_found(place, m, Cost::kSome, "eth1 is down");
    m.interfaces = {{"eth7", false, false}};
    is_found(place, m, Cost::kSome, "no interface eth7");
    m.interfaces = {{"eth1", true, true}};
    m.huge_pages = 0;
    is_found(place, m, Cost::kNote, "huge pages");
    m.huge_pages = 10;
    place.capabilities = 0;
    is_found(place, m, Cost::kSome, "CAP_NET_RAW");
    place.limits.locked_memory = 65536;
    assert_int_equal(judge(place, m).size(), 2); // which CAP_IPC_LOCK lifts
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_wrong), cmocka_unit_test(meeting), cmocka_unit_test(filters),
        cmocka_unit_test(limits),           cmocka_unit_test(broker),  cmocka_unit_test(namespaces),
        cmocka_unit_test(variables),        cmocka_unit_test(ports),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
