// SPDX-License-Identifier: BSD-2-Clause
// The entry point, called as libfabric and libvma.so call it; and the built library itself: libfabric loads it with
// RTLD_NOW and says nothing when that fails, so here is where it is said.
#include "prov/vma/test/fixture.hpp"

#include <dlfcn.h>
#include <link.h>

#include <rdma/fi_ext_vma.h>

using namespace vma;
using namespace vma::test;

namespace {

constexpr char kLibrary[] = ".libs/libvma-fi.so"; // tests run at the top of the build tree

void what_it_says_of_itself(void **)
{
    const fi_provider *provider = fi_prov_ini();
    assert_string_equal(provider->name, "vma");
    assert_true(provider->fi_version >= FI_VERSION(1, 17));
    assert_non_null(provider->getinfo);
    assert_non_null(provider->fabric);
    assert_non_null(provider->cleanup);
    assert_ptr_equal(fi_prov_ini(), provider); // libvma.so and libfabric may both ask
}

int note_libfabric(dl_phdr_info *info, std::size_t, void *found)
{
    if (std::strstr(info->dlpi_name, "libfabric") != nullptr)
        *static_cast<bool *>(found) = true;
    return 0;
}

void the_library_loads_by_itself(void **)
{
    void *library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        print_error("%s\n", ::dlerror());
        UNIT_FAIL("the library does not load");
        return;
    }
    bool libfabric = false;
    ::dl_iterate_phdr(note_libfabric, &libfabric);
    assert_false(libfabric);

    const auto entry = reinterpret_cast<decltype(&fi_prov_ini)>(::dlsym(library, "fi_prov_ini"));
    assert_non_null(entry);
    const fi_provider *provider = entry();
    fi_info *info = nullptr;
    assert_int_equal(provider->getinfo(kApi, "127.0.0.1", "0", FI_SOURCE, nullptr, &info), 0);
    fid_fabric *fabric = nullptr;
    assert_int_equal(provider->fabric(info->fabric_attr, &fabric, nullptr), 0);
    fid_domain *domain = nullptr;
    assert_int_equal(fi_domain(fabric, info, &domain, nullptr), 0);
    assert_int_equal(fi_close(&domain->fid), 0);
    assert_int_equal(fi_close(&fabric->fid), 0);
    ofi::free_info(info);
    provider->cleanup();
    assert_int_equal(::dlclose(library), 0);
}

void fabrics_and_domains(void **)
{
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, nullptr);
    fid_fabric *fabric = nullptr;
    fi_fabric_attr other = *info->fabric_attr;
    char name[] = "elsewhere";
    other.name = name;
    assert_int_equal(fi_prov_ini()->fabric(&other, &fabric, nullptr), -FI_ENODATA);
    int context = 0;
    assert_int_equal(fi_prov_ini()->fabric(info->fabric_attr, &fabric, &context), 0);
    assert_int_equal(fabric->fid.fclass, FI_CLASS_FABRIC);
    assert_ptr_equal(fabric->fid.context, &context);

    fid_domain *domain = nullptr;
    fid_domain *second = nullptr;
    assert_int_equal(fi_domain(fabric, info.get(), &domain, &context), 0);
    assert_int_equal(fi_domain(fabric, info.get(), &second, nullptr), 0);
    assert_ptr_equal(domain->fid.context, &context);
    // ofi_rxm asks for extensions of other providers, and takes nothing but this for "no".
    void *ops = nullptr;
    assert_int_equal(fi_open_ops(&domain->fid, "ofix_flow_ctrl_v1", 0, &ops, nullptr), -FI_ENOSYS);
    assert_int_equal(fi_set_ops(&domain->fid, "ofix_dynamic_rbuf_v2", 0, nullptr, nullptr), -FI_ENOSYS);
    fid_av *av = nullptr;
    fi_av_attr av_attr{};
    av_attr.name = "shared";
    assert_int_equal(fi_av_open(domain, &av_attr, &av, nullptr), -FI_ENOSYS);
    assert_int_equal(fi_close(&fabric->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&second->fid), 0);
    assert_int_equal(fi_close(&domain->fid), 0);
    assert_int_equal(fi_close(&fabric->fid), 0);
}

std::string g_logged;

int all_levels(int)
{
    return 1;
}

void keep_line(int, const char *subsystem, const char *text)
{
    g_logged += std::string(subsystem) + ": " + text;
}

void what_a_program_without_libfabric_needs(void **)
{
    fi_ops_vma_process *ops = nullptr;
    int eq_fd = -1;
    {
        const Net net;
        assert_int_equal(fi_open_ops(&net.fabric->fid, "unknown", 0, reinterpret_cast<void **>(&ops), nullptr),
                         -FI_ENOSYS);
        assert_int_equal(fi_open_ops(&net.fabric->fid, FI_VMA_PROCESS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr),
                         0);
        assert_true(ops->size >= sizeof(*ops));
        assert_int_equal(fi_control(&net.eq->fid, FI_GETWAIT, &eq_fd), 0);
        assert_int_equal(ops->owns_fd(eq_fd), 1);
        assert_int_equal(ops->owns_fd(STDIN_FILENO), 0);
        assert_int_equal(ops->owns_fd(-1), 0);

        static const fi_vma_log log = {all_levels, keep_line};
        ops->set_log(&log);
        fi_fabric_attr wrong{};
        char name[] = "elsewhere";
        wrong.name = name;
        fid_fabric *none = nullptr;
        assert_int_equal(fi_prov_ini()->fabric(&wrong, &none, nullptr), -FI_ENODATA);
        ops->set_log(nullptr);
        assert_string_equal(g_logged.c_str(), "fabric: there is no fabric of the name elsewhere");
    }
    assert_int_equal(ops->owns_fd(eq_fd), 0);
    ops->freeinfo(ask(nullptr, nullptr, 0, nullptr).release());
    ops->freeinfo(nullptr);
}

void domains_that_promise_too_much(void **)
{
    const ofi::InfoPtr info = ask(nullptr, nullptr, 0, nullptr);
    fid_fabric *fabric = nullptr;
    assert_int_equal(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr), 0);
    fid_domain *domain = nullptr;
    info->domain_attr->data_progress = FI_PROGRESS_AUTO;
    assert_int_equal(fi_domain(fabric, info.get(), &domain, nullptr), -FI_EINVAL);
    assert_int_equal(fi_close(&fabric->fid), 0);
}

void a_directory_that_cannot_be_used(void **)
{
    ::setenv("FI_VMA_DIR", "/dev/null/nowhere", 1);
    {
        const Net net;
        fid_pep *pep = nullptr;
        assert_int_equal(fi_passive_ep(net.fabric, net.info.get(), &pep, nullptr), -ENOTDIR);
    }
    ::unsetenv("FI_VMA_DIR");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_it_says_of_itself),        cmocka_unit_test(the_library_loads_by_itself),
        cmocka_unit_test(fabrics_and_domains),           cmocka_unit_test(what_a_program_without_libfabric_needs),
        cmocka_unit_test(domains_that_promise_too_much), cmocka_unit_test(a_directory_that_cannot_be_used),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
