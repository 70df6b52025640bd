// SPDX-License-Identifier: BSD-2-Clause
// How the provider is asked for a device: by the name of its fabric always, so that no socket of this host ever has the
// libraries of RDMA devices loaded, and for another host by the addresses of the connection.
#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include <cstddef>
#include <string>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/offer.hpp"

using namespace vma;

namespace {

struct Asked {
    std::string fabric;
    std::uint32_t type = FI_EP_UNSPEC; // a provider's own is no value of fi_ep_type
    std::uint32_t format = 0;
    sockaddr_in6 source = {};
    sockaddr_in6 target = {};
    std::size_t source_length = 0;
    std::size_t target_length = 0;
};
Asked g_asked;

int note(std::uint32_t, const char *, const char *, std::uint64_t, const fi_info *hints, fi_info **)
{
    g_asked = {};
    g_asked.fabric = hints->fabric_attr->name;
    memcpy(&g_asked.type, &hints->ep_attr->type, sizeof g_asked.type);
    g_asked.format = hints->addr_format;
    g_asked.source_length = hints->src_addrlen;
    g_asked.target_length = hints->dest_addrlen;
    if (hints->src_addr != nullptr)
        memcpy(&g_asked.source, hints->src_addr, hints->src_addrlen);
    if (hints->dest_addr != nullptr)
        memcpy(&g_asked.target, hints->dest_addr, hints->dest_addrlen);
    return -FI_ENODATA;
}

const Asked &ask(sock::Want want, const sock::Addresses *addresses)
{
    fi_provider provider = {};
    provider.getinfo = note;
    fi_info *info = nullptr;
    assert_int_equal(sock::find_device(provider, want, addresses, info), -FI_ENODATA);
    assert_null(info);
    return g_asked;
}

sockaddr_in6 end(const char *address, std::uint16_t port)
{
    sockaddr_in6 a = {};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    assert_int_equal(::inet_pton(AF_INET6, address, &a.sin6_addr), 1);
    return a;
}

void this_host_asks_the_local_device(void **)
{
    for (const sock::Want want : {sock::Want::kStreams, sock::Want::kDatagrams}) {
        const Asked &asked = ask(want, nullptr);
        assert_string_equal(asked.fabric.c_str(), "local");
        assert_int_equal(asked.type, want == sock::Want::kStreams ? FI_EP_MSG : FI_EP_DGRAM);
        assert_int_equal(asked.source_length + asked.target_length, 0);
    }
}

void another_host_asks_for_the_connection(void **)
{
    const sock::Addresses addresses = {end("fd00::1", 4000), end("fd00::2", 5000)};
    const Asked &asked = ask(sock::Want::kRdmaStreams, &addresses);
    assert_string_equal(asked.fabric.c_str(), "verbs");
    assert_int_equal(asked.format, FI_SOCKADDR_IN6);
    assert_int_equal(asked.source.sin6_port, 0);
    assert_memory_equal(&asked.source.sin6_addr, &addresses.local.sin6_addr, sizeof(in6_addr));
    assert_int_equal(asked.target_length, sizeof(sockaddr_in6));
    assert_memory_equal(&asked.target, &addresses.peer, sizeof(sockaddr_in6));
}

void a_named_port_is_asked_for_the_connection(void **)
{
    const sock::Addresses addresses = {end("fd00::1", 4000), end("fd00::2", 5000)};
    const Asked &asked = ask(sock::Want::kPortStreams, &addresses);
    assert_string_equal(asked.fabric.c_str(), "ethernet");
    assert_int_equal(asked.type, FI_EP_VMA_STREAM);
    assert_int_equal(asked.source.sin6_port, 0); // the kernel's socket has it
    assert_memory_equal(&asked.target, &addresses.peer, sizeof(sockaddr_in6));
}

void v4_mapped_addresses_are_asked_as_v4(void **)
{
    const sock::Addresses addresses = {end("::ffff:192.0.2.1", 4000), end("::ffff:192.0.2.2", 5000)};
    const Asked &asked = ask(sock::Want::kRdmaStreams, &addresses);
    assert_int_equal(asked.format, FI_SOCKADDR_IN);
    assert_int_equal(asked.source_length, sizeof(sockaddr_in));
    sockaddr_in target = {};
    memcpy(&target, &asked.target, sizeof target);
    assert_int_equal(target.sin_family, AF_INET);
    assert_int_equal(ntohs(target.sin_port), 5000);
    assert_int_equal(ntohl(target.sin_addr.s_addr), 0xc0000202);
}

std::string g_pages;
std::string g_streams;

void note_pages(const char *word)
{
    g_pages = word;
}

void note_streams(const char *number)
{
    g_streams = number;
}

const char *g_stamps = nullptr;

// Takes all that it is told, and keeps nothing.
fi_ops_vma_process patient_provider()
{
    fi_ops_vma_process process = {};
    process.size = sizeof process;
    process.set_log = [](const fi_vma_log *) {};
    process.set_directory = [](const char *) {};
    process.set_gro_streams = [](const char *) {};
    process.set_huge_pages = [](const char *) {};
    process.set_ethernet_stamps = [](const char *) {};
    process.set_frame_allocator = [](void *(*)(std::size_t), void (*)(void *)) {};
    process.count_held = [](fi_vma_held *, void (*)()) {};
    process.owns_fd = [](int) { return 0; };
    return process;
}

// VMA_HW_TS_CONVERSION, which FI_VMA_ETHERNET_STAMPS goes before
void ports_get_stamps_if_somebody_asks_for_their_conversion(void **)
{
    fi_ops_vma_process process = patient_provider();
    process.set_ethernet_stamps = [](const char *word) { g_stamps = word; };
    const config::Params before = config::g_params;
    config::g_params.hw_ts_conversion = 3;
    sock::introduce_provider(process); // the default
    assert_null(g_stamps);
    for (const int wanted : {0, 1, 2, 3, 4}) {
        config::g_params.hw_ts_conversion = wanted;
        ::setenv("VMA_HW_TS_CONVERSION", std::to_string(wanted).c_str(), 1);
        sock::introduce_provider(process);
        if (wanted == 0)
            assert_null(g_stamps);
        else
            assert_string_equal(g_stamps, "hardware");
    }
    ::unsetenv("VMA_HW_TS_CONVERSION");
    config::g_params = before;
}

// VMA_MEM_ALLOC_TYPE and VMA_GRO_STREAMS_MAX
void the_provider_is_told_of_ports(void **)
{
    fi_ops_vma_process process = patient_provider();
    process.set_gro_streams = note_streams;
    process.set_huge_pages = note_pages;
    const config::Params before = config::g_params;
    const struct {
        int type;
        const char *variable;
        const char *word;
    } cases[] = {{2, nullptr, "auto"}, {2, "2", "yes"}, {1, "1", "no"}, {0, "0", "never"}};
    for (const auto &each : cases) {
        config::g_params.mem_alloc_type = each.type;
        config::g_params.gro_streams_max = static_cast<std::uint32_t>(each.type);
        if (each.variable != nullptr)
            ::setenv("VMA_MEM_ALLOC_TYPE", each.variable, 1);
        sock::introduce_provider(process);
        assert_string_equal(g_pages.c_str(), each.word);
        assert_string_equal(g_streams.c_str(), std::to_string(each.type).c_str());
    }
    ::unsetenv("VMA_MEM_ALLOC_TYPE");
    process.size = offsetof(fi_ops_vma_process, set_gro_streams); // an older one, named by VMA_PROVIDER
    process.set_gro_streams = nullptr;
    process.set_huge_pages = nullptr;
    process.set_ethernet_stamps = nullptr;
    process.set_frame_allocator = nullptr;
    sock::introduce_provider(process);
    config::g_params = before;
}

// Whatever RDMA devices there are: none of them takes the local one's place.
void no_other_device_stands_in(void **)
{
    ::setenv("VMA_PROVIDER", ".libs/libvma-fi.so", 0); // make check runs at the top of the build
    ::setenv("VMA_TRACELEVEL", "warn", 0);
    libc::resolve_real();
    config::load_params();
    sock::load_provider();
    fi_provider *const provider = sock::provider();
    assert_non_null(provider);
    static fi_info *info = nullptr; // freed with the process: what frees it belongs to an open fabric
    ::setenv("FI_VMA_DEVICE", "^local", 1);
    assert_int_equal(sock::find_device(*provider, sock::Want::kStreams, nullptr, info), -FI_ENODATA);
    ::unsetenv("FI_VMA_DEVICE");
    assert_int_equal(sock::find_device(*provider, sock::Want::kStreams, nullptr, info), 0);
    for (const fi_info *one = info; one != nullptr; one = one->next)
        assert_string_equal(one->domain_attr->name, "local");
}

} // namespace

int main()
{
    static const CMUnitTest tests[] = {
        cmocka_unit_test(this_host_asks_the_local_device),
        cmocka_unit_test(another_host_asks_for_the_connection),
        cmocka_unit_test(a_named_port_is_asked_for_the_connection),
        cmocka_unit_test(v4_mapped_addresses_are_asked_as_v4),
        cmocka_unit_test(the_provider_is_told_of_ports),
        cmocka_unit_test(ports_get_stamps_if_somebody_asks_for_their_conversion),
        cmocka_unit_test(no_other_device_stands_in),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
