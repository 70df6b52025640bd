// SPDX-License-Identifier: BSD-2-Clause
// Addresses as strings (FI_ADDR_STR): what is read, what is refused and that it is refused without looking behind it,
// what is written; and that each call of libfabric's that takes or gives an address does so with strings.
#include "prov/vma/test/local/pair.hpp"

#include <arpa/inet.h>
#include <sys/mman.h>

#include "ofi/address_format.hpp"

using namespace vma;
using namespace vma::test;

namespace {

const ofi::AddressFormat kText(FI_ADDR_STR);
const ofi::AddressFormat kPlain(FI_SOCKADDR);

std::string written(const ofi::Address &address)
{
    return kText.write(address).bytes.data();
}

std::string read_back(const std::string &text)
{
    ofi::Address address;
    return kText.read(text.c_str(), text.size() + 1, address) ? written(address) : "refused";
}

void strings_become_addresses(void **)
{
    assert_string_equal(read_back("fi_sockaddr_in://192.0.2.1:7000").c_str(), "fi_sockaddr_in://192.0.2.1:7000");
    assert_string_equal(read_back("fi_sockaddr_in6://[::1]:7000").c_str(), "fi_sockaddr_in6://[::1]:7000");
    assert_string_equal(read_back("fi_sockaddr://192.0.2.1:65535").c_str(), "fi_sockaddr_in://192.0.2.1:65535");
    assert_string_equal(read_back("fi_sockaddr://[2001:db8::1]:1").c_str(), "fi_sockaddr_in6://[2001:db8::1]:1");
    assert_string_equal(read_back("verbs://1.2.3.4:5555").c_str(), "fi_sockaddr_in://1.2.3.4:5555");
    assert_string_equal(read_back("VERBS://1.2.3.4:5555").c_str(), "fi_sockaddr_in://1.2.3.4:5555");
    assert_string_equal(read_back("fi_sockaddr_in://192.0.2.1").c_str(), "fi_sockaddr_in://192.0.2.1:0");
    assert_string_equal(read_back("fi_sockaddr_in://:7000").c_str(), "fi_sockaddr_in://0.0.0.0:7000");
    assert_string_equal(read_back("fi_sockaddr_in6://:7000").c_str(), "fi_sockaddr_in6://[::]:7000");
    // libfabric's own example of fields that mean nothing here.
    assert_string_equal(read_back("fi_sockaddr://10.31.6.12:7471?qos=3").c_str(), "fi_sockaddr_in://10.31.6.12:7471");
    assert_string_equal(read_back("fi_sockaddr://10.31.6.12:7471/1/2").c_str(), "fi_sockaddr_in://10.31.6.12:7471");
}

void what_is_no_address_is_refused(void **)
{
    const char *const kBad[] = {
        "",
        "192.0.2.1:7000",
        "://192.0.2.1:7000",
        "http://192.0.2.1:7000",
        "fi_shm://1:2",
        "fi_sockaddr_ib://192.0.2.1:7000",
        "fi_sockaddr_in:/192.0.2.1:7000",
        "fi_sockaddr_in://",
        "fi_sockaddr_in:///7000",
        "fi_sockaddr_in://192.0.2.1:",
        "fi_sockaddr_in://192.0.2.1:65536",
        "fi_sockaddr_in://192.0.2.1:-1",
        "fi_sockaddr_in://192.0.2.1:+1",
        "fi_sockaddr_in://192.0.2.1:7000x",
        "fi_sockaddr_in://192.0.2.1:99999999999999999999",
        "fi_sockaddr_in://192.0.2:7000",
        "fi_sockaddr_in:// 192.0.2.1:7000",
        "fi_sockaddr_in://localhost:7000", // a name is for fi_getinfo() and fi_av_insertsvc()
        "fi_sockaddr_in://[192.0.2.1]:7000",
        "fi_sockaddr_in://[::1]:7000",
        "fi_sockaddr_in6://192.0.2.1:7000",
        "fi_sockaddr_in6://[]:7000",
        "fi_sockaddr_in6://[::1:7000",
        "fi_sockaddr_in6://[::1]7000",
        "fi_sockaddr_in6://::1:7000",
    };
    for (const char *text : kBad)
        assert_string_equal((text + (": " + read_back(text))).c_str(), (text + std::string(": refused")).c_str());
    ofi::Address address;
    assert_false(kText.read(nullptr, 0, address));
    assert_false(kText.read_whole(nullptr, address));
}

// The string ends where readable memory does: looking behind it is a crash.
void nothing_behind_the_length_is_read(void **)
{
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void *const two = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(two != MAP_FAILED);
    char *const end = static_cast<char *>(two) + page;
    REQUIRE(::mprotect(end, page, PROT_NONE) == 0);
    const std::string text = "fi_sockaddr_in://127.0.0.1:7000";
    std::memcpy(end - text.size(), text.data(), text.size());
    ofi::Address address;
    for (std::size_t length = 0; length <= text.size(); ++length)
        assert_false(kText.read(end - length, length, address)); // no NUL within it
    std::memcpy(end - text.size() - 1, text.c_str(), text.size() + 1);
    assert_true(kText.read(end - text.size() - 1, text.size() + 1, address));
    assert_int_equal(address.port(), 7000);
    REQUIRE(::munmap(two, 2 * page) == 0);
}

void what_is_too_long_is_refused(void **)
{
    ofi::Address address;
    const std::string digits(ofi::kMostAddressString, '0');
    assert_false(kText.read_whole(("fi_sockaddr_in://127.0.0.1:7000?" + digits).c_str(), address));
    assert_false(kText.read_whole((digits + "://127.0.0.1:7000").c_str(), address));
    ofi::AddressParts parts;
    assert_non_null(ofi::split_address_string(("verbs://" + digits + ":1").c_str(), parts));
    const std::string longest = "fi_sockaddr_in://127.0.0.1:7000?";
    const std::string padding(ofi::kMostAddressString - longest.size(), 'x');
    assert_true(kText.read_whole((longest + padding).c_str(), address));
}

void names_are_split_for_the_resolver(void **)
{
    ofi::AddressParts parts;
    assert_null(ofi::split_address_string("verbs://foo.example:5555", parts));
    assert_string_equal(parts.host.c_str(), "foo.example");
    assert_string_equal(parts.service.c_str(), "5555");
    assert_int_equal(parts.family, AF_UNSPEC);
    assert_true(ofi::is_address_string("verbs://foo.example:5555"));
    assert_false(ofi::is_address_string("foo.example"));
    assert_false(ofi::is_address_string(nullptr));
}

// What does not fit is cut, and ends within the room.
void the_room_is_the_programs(void **)
{
    ofi::Address address;
    REQUIRE(kText.read_whole("fi_sockaddr_in://127.0.0.1:7000", address));
    const std::string whole = "fi_sockaddr_in://127.0.0.1:7000";
    for (std::size_t room = 0; room <= whole.size() + 1; ++room) {
        std::vector<char> out(whole.size() + 8, '#');
        std::size_t length = room;
        assert_int_equal(kText.copy(address, out.data(), &length), room > whole.size() ? 0 : -FI_ETOOSMALL);
        assert_int_equal(length, whole.size() + 1);
        assert_int_equal(out[room], '#');
        if (room > 0)
            assert_string_equal(out.data(), whole.substr(0, room - 1).c_str());
    }
    std::size_t length = sizeof(sockaddr_in6);
    sockaddr_in6 plain{};
    assert_int_equal(kPlain.copy(address, &plain, &length), 0);
    assert_int_equal(length, sizeof(sockaddr_in));
    assert_int_equal(kText.copy(address, &plain, nullptr), -FI_EINVAL);
    assert_int_equal(kText.write(ofi::Address()).length, 0);
}

// ---- fi_getinfo -----------------------------------------------------------------------------------------------------

struct Hints {
    fi_ep_attr ep{};
    fi_fabric_attr fabric{};
    fi_info info{};
    explicit Hints(std::uint32_t format, fi_ep_type type = FI_EP_MSG)
    {
        ep.type = type;
        fabric.name = const_cast<char *>("local");
        info.ep_attr = &ep;
        info.fabric_attr = &fabric;
        info.addr_format = format;
    }
};

const char *text_of(const void *addr, std::size_t length)
{
    REQUIRE(addr != nullptr && length != 0 && std::strlen(static_cast<const char *>(addr)) + 1 == length);
    return static_cast<const char *>(addr);
}

void getinfo_answers_with_strings(void **)
{
    const Hints hints(FI_ADDR_STR);
    ofi::InfoPtr info = ask("fi_sockaddr_in://127.0.0.1:7000", nullptr, 0, &hints.info);
    assert_int_equal(info->addr_format, FI_ADDR_STR);
    assert_string_equal(text_of(info->dest_addr, info->dest_addrlen), "fi_sockaddr_in://127.0.0.1:7000");
    assert_string_equal(text_of(info->src_addr, info->src_addrlen), "fi_sockaddr_in://127.0.0.1:0");
    info = ask("verbs://localhost:5555", nullptr, FI_SOURCE, &hints.info);
    assert_non_null(std::strstr(text_of(info->src_addr, info->src_addrlen), ":5555"));
    assert_null(info->dest_addr);
    info = ask("fi_sockaddr_in6://[::1]:7000", nullptr, FI_SOURCE, &hints.info);
    assert_string_equal(text_of(info->src_addr, info->src_addrlen), "fi_sockaddr_in6://[::1]:7000");
    info = ask("127.0.0.1", "7000", FI_SOURCE, &hints.info); // a node that is no string is a node
    assert_string_equal(text_of(info->src_addr, info->src_addrlen), "fi_sockaddr_in://127.0.0.1:7000");
    info = ask(nullptr, nullptr, 0, &hints.info); // nothing in particular
    assert_non_null(std::strstr(text_of(info->src_addr, info->src_addrlen), "fi_sockaddr_in"));
    info = ask("fi_sockaddr_in://:7000", nullptr, FI_SOURCE, &hints.info);
    assert_string_equal(text_of(info->src_addr, info->src_addrlen), "fi_sockaddr_in://0.0.0.0:7000");
}

// The string names addresses whatever the format that is asked for.
void getinfo_takes_strings_for_socket_addresses(void **)
{
    const ofi::InfoPtr info = ask("fi_sockaddr_in://127.0.0.1:7000", nullptr, FI_SOURCE, nullptr);
    assert_int_equal(info->addr_format, FI_SOCKADDR_IN);
    assert_int_equal(info->src_addrlen, sizeof(sockaddr_in));
    assert_int_equal(static_cast<const sockaddr_in *>(info->src_addr)->sin_port, htons(7000));
    const Hints v6(FI_SOCKADDR_IN6);
    int error = 0;
    assert_null(ask("fi_sockaddr_in://127.0.0.1:7000", nullptr, FI_SOURCE, &v6.info, &error).get());
    assert_int_equal(error, -FI_ENODATA);
}

void getinfo_refuses_what_is_none(void **)
{
    const Hints hints(FI_ADDR_STR);
    const struct {
        const char *node;
        const char *service;
        int error;
    } kBad[] = {
        {"fi_sockaddr_in://127.0.0.1:7000", "7000", -FI_EINVAL}, // fi_getinfo(3): service must be NULL
        {"fi_shm://1:2", nullptr, -FI_ENODATA},
        {"fi_sockaddr_in://127.0.0.1:70000", nullptr, -FI_ENODATA},
        {"fi_sockaddr_in6://127.0.0.1:7000", nullptr, -FI_ENODATA},
        {"fi_sockaddr_in://", nullptr, -FI_ENODATA},
    };
    for (const auto &bad : kBad) {
        int error = 0;
        assert_null(ask(bad.node, bad.service, 0, &hints.info, &error).get());
        assert_int_equal(error, bad.error);
    }
    const std::string longer = "verbs://" + std::string(4096, 'a') + ":1";
    int error = 0;
    assert_null(ask(longer.c_str(), nullptr, 0, &hints.info, &error).get());
    assert_int_equal(error, -FI_ENODATA);
}

void hints_have_strings(void **)
{
    Hints hints(FI_ADDR_STR);
    char text[] = "fi_sockaddr_in://127.0.0.1:7000";
    hints.info.src_addr = text;
    hints.info.src_addrlen = sizeof text;
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, &hints.info);
    assert_string_equal(text_of(info->src_addr, info->src_addrlen), text);
    hints.info.src_addrlen = sizeof text - 1; // without its end
    int error = 0;
    assert_null(ask(nullptr, nullptr, 0, &hints.info, &error).get());
    assert_int_equal(error, -FI_ENODATA);
}

// ---- objects --------------------------------------------------------------------------------------------------------

std::string name_of(fid_t fid)
{
    char name[128];
    std::size_t length = sizeof name;
    assert_int_equal(fi_getname(fid, name, &length), 0);
    assert_int_equal(length, std::strlen(name) + 1);
    return name;
}

void connections_have_names_that_are_strings(void **)
{
    const Hints hints(FI_ADDR_STR);
    Net net("127.0.0.1", &hints.info);
    fid_pep *pep = nullptr;
    REQUIRE(fi_passive_ep(net.fabric, net.info.get(), &pep, nullptr) == 0);
    REQUIRE(fi_pep_bind(pep, &net.eq->fid, 0) == 0);
    char bad[] = "fi_sockaddr_in://127.0.0.1:70000";
    assert_int_equal(fi_setname(&pep->fid, bad, sizeof bad), -FI_EINVAL);
    REQUIRE(fi_listen(pep) == 0);
    const std::string server = name_of(&pep->fid);
    assert_int_equal(server.find("fi_sockaddr_in://127.0.0.1:"), 0);

    fid_ep *client = net.endpoint();
    assert_int_equal(fi_connect(client, bad, nullptr, 0), -FI_EINVAL);
    assert_int_equal(fi_connect(client, server.c_str(), nullptr, 0), 0);
    const Event request = net.wait();
    assert_int_equal(request.event, FI_CONNREQ);
    REQUIRE(request.info);
    assert_int_equal(request.info->addr_format, FI_ADDR_STR);
    assert_string_equal(text_of(request.info->src_addr, request.info->src_addrlen), server.c_str());
    assert_string_equal(text_of(request.info->dest_addr, request.info->dest_addrlen), name_of(&client->fid).c_str());
    fid_ep *accepted = net.endpoint(request.info.get());
    assert_int_equal(fi_accept(accepted, nullptr, 0), 0);
    for (int i = 0; i < 2; ++i)
        assert_int_equal(net.wait().event, FI_CONNECTED);
    char peer[128];
    std::size_t length = sizeof peer;
    assert_int_equal(fi_getpeer(client, peer, &length), 0);
    assert_string_equal(peer, server.c_str());
    length = sizeof peer;
    assert_int_equal(fi_getpeer(accepted, peer, &length), 0);
    assert_string_equal(peer, name_of(&client->fid).c_str());
    for (fid_ep *endpoint : {client, accepted})
        assert_int_equal(fi_close(&endpoint->fid), 0);
    assert_int_equal(fi_close(&pep->fid), 0);
}

struct Vector {
    Hints hints{FI_ADDR_STR, FI_EP_DGRAM};
    ofi::InfoPtr info = ask("fi_sockaddr_in://127.0.0.1", nullptr, FI_SOURCE, &hints.info);
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_av *av = nullptr;

    Vector()
    {
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        fi_av_attr attr{};
        REQUIRE(fi_av_open(domain, &attr, &av, nullptr) == 0);
    }
    ~Vector()
    {
        REQUIRE(fi_close(&av->fid) == 0);
        REQUIRE(fi_close(&domain->fid) == 0);
        REQUIRE(fi_close(&fabric->fid) == 0);
    }
    Vector(const Vector &) = delete;
    Vector &operator=(const Vector &) = delete;

    std::string at(fi_addr_t place)
    {
        char text[128] = "";
        std::size_t length = sizeof text;
        assert_int_equal(fi_av_lookup(av, place, text, &length), 0);
        assert_int_equal(length, std::strlen(text) + 1);
        return text;
    }
};

void address_vectors_hold_strings(void **)
{
    Vector vector;
    const char *const texts[] = {"fi_sockaddr_in://127.0.0.1:7000", "fi_sockaddr_in://127.0.0.1:70000",
                                 "fi_sockaddr_in6://[::1]:7001", nullptr, "verbs://127.0.0.1:7002"};
    fi_addr_t places[5];
    int errors[5];
    assert_int_equal(fi_av_insert(vector.av, texts, 5, places, FI_SYNC_ERR, errors), 3);
    const int expected[] = {0, FI_EINVAL, 0, FI_EINVAL, 0};
    assert_memory_equal(errors, expected, sizeof expected);
    assert_int_equal(places[1], FI_ADDR_NOTAVAIL);
    assert_string_equal(vector.at(places[0]).c_str(), texts[0]);
    assert_string_equal(vector.at(places[2]).c_str(), texts[2]);
    assert_string_equal(vector.at(places[4]).c_str(), "fi_sockaddr_in://127.0.0.1:7002");
    char cut[8] = "#######";
    std::size_t length = 5;
    assert_int_equal(fi_av_lookup(vector.av, places[0], cut, &length), 0);
    assert_int_equal(length, std::strlen(texts[0]) + 1);
    assert_string_equal(cut, "fi_s");
    char shown[64];
    length = sizeof shown;
    assert_string_equal(fi_av_straddr(vector.av, "verbs://127.0.0.1:9", shown, &length),
                        "fi_sockaddr_in://127.0.0.1:9");
    assert_null(fi_av_straddr(vector.av, "fi_shm://1", shown, &length));
}

void services_are_named_in_the_string(void **)
{
    Vector vector;
    fi_addr_t place = FI_ADDR_NOTAVAIL;
    assert_int_equal(fi_av_insertsvc(vector.av, "verbs://localhost:7000", nullptr, &place, 0, nullptr), 1);
    assert_non_null(std::strstr(vector.at(place).c_str(), ":7000"));
    assert_int_equal(fi_av_insertsvc(vector.av, "127.0.0.1", "7001", &place, 0, nullptr), 1);
    assert_string_equal(vector.at(place).c_str(), "fi_sockaddr_in://127.0.0.1:7001");
    assert_int_equal(fi_av_insertsvc(vector.av, "verbs://127.0.0.1:1", "7000", &place, 0, nullptr), -FI_EINVAL);
    assert_int_equal(fi_av_insertsvc(vector.av, "127.0.0.1", nullptr, &place, 0, nullptr), -FI_EINVAL);
    assert_int_equal(fi_av_insertsvc(vector.av, "verbs://127.0.0.1:x", nullptr, &place, 0, nullptr), -FI_EINVAL);
}

// Of both kinds, which are opened the same way.
void datagram_endpoints_have_names_that_are_strings(void **)
{
    for (const fi_ep_type type : {FI_EP_DGRAM, FI_EP_RDM}) {
        const Hints hints(FI_ADDR_STR, type);
        const ofi::InfoPtr info = ask("fi_sockaddr_in://127.0.0.1", nullptr, FI_SOURCE, &hints.info);
        fid_fabric *fabric = nullptr;
        fid_domain *domain = nullptr;
        fid_ep *ep = nullptr;
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        REQUIRE(fi_endpoint(domain, info.get(), &ep, nullptr) == 0);
        char name[] = "fi_sockaddr_in://127.0.0.1:7123";
        assert_int_equal(fi_setname(&ep->fid, name, sizeof name - 1), -FI_EINVAL); // without its end
        assert_int_equal(fi_setname(&ep->fid, name, sizeof name), 0);
        assert_string_equal(name_of(&ep->fid).c_str(), name);
        assert_int_equal(fi_close(&ep->fid), 0);
        assert_int_equal(fi_close(&domain->fid), 0);
        assert_int_equal(fi_close(&fabric->fid), 0);
    }
}

} // namespace

int main()
{
    const OwnDirectory directory;
    const CMUnitTest tests[] = {
        cmocka_unit_test(strings_become_addresses),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(nothing_behind_the_length_is_read),
        cmocka_unit_test(what_is_too_long_is_refused),
        cmocka_unit_test(names_are_split_for_the_resolver),
        cmocka_unit_test(the_room_is_the_programs),
        cmocka_unit_test(getinfo_answers_with_strings),
        cmocka_unit_test(getinfo_takes_strings_for_socket_addresses),
        cmocka_unit_test(getinfo_refuses_what_is_none),
        cmocka_unit_test(hints_have_strings),
        cmocka_unit_test(connections_have_names_that_are_strings),
        cmocka_unit_test(address_vectors_hold_strings),
        cmocka_unit_test(services_are_named_in_the_string),
        cmocka_unit_test(datagram_endpoints_have_names_that_are_strings),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
