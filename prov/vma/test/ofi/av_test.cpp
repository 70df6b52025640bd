// SPDX-License-Identifier: BSD-2-Clause
// Address vectors: what is inserted is found, what is removed is not, and every entry is answered for.
#include "prov/vma/test/local/pair.hpp"

#include <map>

#include <arpa/inet.h>

using namespace vma;
using namespace vma::test;

namespace {

struct Vector {
    ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, nullptr);
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_av *av = nullptr;

    explicit Vector(fi_av_type type = FI_AV_TABLE)
    {
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        fi_av_attr attr{};
        attr.type = type;
        attr.count = 4; // a hint only: it grows
        REQUIRE(fi_av_open(domain, &attr, &av, nullptr) == 0);
        REQUIRE(attr.type == (type == FI_AV_UNSPEC ? FI_AV_TABLE : type));
    }
    ~Vector()
    {
        REQUIRE(fi_close(&av->fid) == 0);
        REQUIRE(fi_close(&domain->fid) == 0);
        REQUIRE(fi_close(&fabric->fid) == 0);
    }
    Vector(const Vector &) = delete;
    Vector &operator=(const Vector &) = delete;

    fi_addr_t insert(const sockaddr_in &address)
    {
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        REQUIRE(fi_av_insert(av, &address, 1, &place, 0, nullptr) == 1);
        return place;
    }
};

sockaddr_in address_of(std::uint16_t port)
{
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// Above any first size; numbers count up from zero.
void a_table_grows(void **)
{
    Vector table;
    constexpr std::size_t kCount = 5000;
    std::vector<sockaddr_in> addresses;
    for (std::size_t i = 0; i < kCount; ++i)
        addresses.push_back(address_of(static_cast<std::uint16_t>(1000 + i)));
    std::vector<fi_addr_t> places(kCount);
    assert_int_equal(fi_av_insert(table.av, addresses.data(), kCount, places.data(), 0, nullptr), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
        assert_int_equal(places[i], i);
        sockaddr_in found{};
        std::size_t length = sizeof found;
        assert_int_equal(fi_av_lookup(table.av, i, &found, &length), 0);
        assert_int_equal(length, sizeof found);
        assert_memory_equal(&found, &addresses[i], sizeof found);
    }
    // Without a place for the numbers, too.
    assert_int_equal(fi_av_insert(table.av, addresses.data(), 1, nullptr, 0, nullptr), 1);
}

void what_is_removed_is_gone(void **)
{
    Vector map(FI_AV_MAP);
    fi_addr_t places[3];
    for (std::uint16_t i = 0; i < 3; ++i)
        places[i] = map.insert(address_of(i));
    assert_int_equal(fi_av_remove(map.av, &places[1], 1, 0), 0);
    sockaddr_in found{};
    std::size_t length = sizeof found;
    assert_int_equal(fi_av_lookup(map.av, places[1], &found, &length), -FI_EINVAL);
    assert_int_equal(fi_av_remove(map.av, &places[1], 1, 0), -FI_EINVAL);
    assert_int_equal(fi_av_lookup(map.av, FI_ADDR_NOTAVAIL, &found, &length), -FI_EINVAL);
    const fi_addr_t again = map.insert(address_of(77));
    length = sizeof found;
    assert_int_equal(fi_av_lookup(map.av, again, &found, &length), 0);
    assert_int_equal(ntohs(found.sin_port), 77);
    // What is short is cut, and told how long it is.
    char head[4];
    length = sizeof head;
    assert_int_equal(fi_av_lookup(map.av, again, head, &length), 0);
    assert_int_equal(length, sizeof found);
    assert_memory_equal(head, &found, sizeof head);
}

// Inserting and removing at random, against a model.
void random_changes(void **)
{
    Random random;
    Vector map(FI_AV_UNSPEC);
    std::map<fi_addr_t, std::uint16_t> model;
    for (int i = 0; i < 20000; ++i) {
        if (model.empty() || random.below(5) < 3) {
            const auto port = static_cast<std::uint16_t>(random.below(500));
            assert_true(model.emplace(map.insert(address_of(port)), port).second);
        } else {
            auto victim = model.begin();
            std::advance(victim, random.below(std::min<std::size_t>(model.size(), 50)));
            fi_addr_t place = victim->first;
            assert_int_equal(fi_av_remove(map.av, &place, 1, 0), 0);
            model.erase(victim);
        }
    }
    for (const auto &[place, port] : model) {
        sockaddr_in found{};
        std::size_t length = sizeof found;
        assert_int_equal(fi_av_lookup(map.av, place, &found, &length), 0);
        assert_int_equal(ntohs(found.sin_port), port);
    }
}

void every_entry_is_answered(void **)
{
    Vector table;
    sockaddr_in addresses[3] = {address_of(1), address_of(2), address_of(3)};
    addresses[1].sin_family = AF_UNIX;
    fi_addr_t places[3];
    int errors[3] = {-1, -1, -1};
    assert_int_equal(fi_av_insert(table.av, addresses, 3, places, FI_SYNC_ERR, errors), 2);
    assert_int_equal(errors[0], 0);
    assert_int_equal(errors[1], FI_EINVAL);
    assert_int_equal(errors[2], 0);
    assert_int_equal(places[1], FI_ADDR_NOTAVAIL);
    assert_int_equal(places[2], 1);
    assert_int_equal(fi_av_insert(table.av, addresses, 3, places, FI_SYNC_ERR, nullptr), -FI_EINVAL);
    assert_int_equal(fi_av_insert(table.av, addresses, 3, places, FI_EVENT, nullptr), -FI_EBADFLAGS);
    assert_int_equal(fi_av_insertsvc(table.av, "127.0.0.1", "4711", places, 0, nullptr), 1);
    sockaddr_in found{};
    std::size_t length = sizeof found;
    assert_int_equal(fi_av_lookup(table.av, places[0], &found, &length), 0);
    assert_int_equal(ntohs(found.sin_port), 4711);
    assert_int_equal(fi_av_insertsym(table.av, "127.0.0.1", 1, "4711", 1, places, 0, nullptr), -FI_ENOSYS);
}

void addresses_as_text(void **)
{
    Vector table;
    const sockaddr_in v4 = address_of(4711);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(80);
    v6.sin6_addr = in6addr_loopback;
    char text[64];
    std::size_t length = sizeof text;
    assert_string_equal(fi_av_straddr(table.av, &v4, text, &length), "fi_sockaddr_in://127.0.0.1:4711");
    assert_int_equal(length, std::strlen(text) + 1);
    length = sizeof text;
    assert_string_equal(fi_av_straddr(table.av, &v6, text, &length), "fi_sockaddr_in6://[::1]:80");
    length = 5;
    assert_string_equal(fi_av_straddr(table.av, &v4, text, &length), "fi_s");
    assert_int_equal(length, std::strlen("fi_sockaddr_in://127.0.0.1:4711") + 1);
    fi_addr_t place = 0;
    assert_int_equal(fi_av_insert(table.av, &v6, 1, &place, 0, nullptr), 1);
    sockaddr_in6 found{};
    length = sizeof found;
    assert_int_equal(fi_av_lookup(table.av, place, &found, &length), 0);
    assert_memory_equal(&found, &v6, sizeof v6);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_table_grows),     cmocka_unit_test(what_is_removed_is_gone),
        cmocka_unit_test(random_changes),    cmocka_unit_test(every_entry_is_answered),
        cmocka_unit_test(addresses_as_text),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
