// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/provider.hpp"

#include <dlfcn.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstdio>

#include <rdma/fi_domain.h>
#include <rdma/providers/fi_log.h>

#include "compat/src/base/memory.hpp"
#include "compat/src/config/aliases.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/config/privileged.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/helper_thread.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/provider_text.hpp"
#include "compat/src/libc/this_thread.hpp"
#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock {

namespace {

config::Level level_of(int provider_level)
{
    switch (provider_level) {
    case FI_LOG_WARN:
        return config::Level::kWarn;
    case FI_LOG_INFO:
        return config::Level::kDebug;
    default:
        return config::Level::kFunc;
    }
}

int logs(int level)
{
    return config::log_enabled(level_of(level)) ? 1 : 0;
}

void log(int level, const char *subsystem, const char *text)
{
    config::log_line(level_of(level), "provider: %s: %s", subsystem, text);
}

constexpr fi_vma_log kLog = {logs, log};

// Those that devices of this host need, and what they open in turn: not later, with a lock of ours held.
void open_libraries(fi_provider &provider, bool rdma, bool ports)
{
    char local[] = "local";
    fi_fabric_attr attr = {};
    attr.name = local;
    attr.api_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    fid_fabric *fabric = nullptr;
    fi_ops_vma_process *process = nullptr;
    if ((!rdma && !ports) || provider.fabric(&attr, &fabric, nullptr) != 0)
        return;
    if (fi_open_ops(&fabric->fid, FI_VMA_PROCESS_OPS, 0, reinterpret_cast<void **>(&process), nullptr) == 0 &&
        process->size > offsetof(fi_ops_vma_process, open_libraries)) { // VMA_PROVIDER may name an older one
        process->set_log(&kLog);
        if (rdma)
            process->open_libraries("verbs");
        if (ports)
            process->open_libraries("ethernet");
    }
    fi_close(&fabric->fid);
}

fi_provider *begin(const char *path)
{
    void *const library = path != nullptr ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) {
        VMA_LOG(kWarn, "cannot load the provider libvma-fi.so: %s; all connections stay on the kernel",
                path != nullptr ? ::dlerror() : "not found beside libvma.so; VMA_PROVIDER can name it");
        return nullptr;
    }
    if (process_is_ending())
        return nullptr; // nobody has waited that long for us, and the provider looks into who has called it
    using Entry = fi_provider *();
    auto *const entry = reinterpret_cast<Entry *>(::dlsym(library, "fi_prov_ini"));
    libc::know_provider(reinterpret_cast<const void *>(entry));
    fi_provider *const provider = entry != nullptr ? entry() : nullptr;
    if (provider == nullptr)
        VMA_LOG(kWarn, "%s: it has no usable fi_prov_ini; all connections stay on the kernel", path);
    else
        open_libraries(*provider, ports_are_named() && rdma_is_here(), ports_are_named()); // a NIC's raw packets
    return provider;
}

} // namespace

void load_provider()
{
    if (g_loading.provider != nullptr || config::is_refused()) // as sockets that it has from others
        return;
    measure_stack(); // looks up a name, as long as no lock is held
    loading_provider(true);
    g_loading.provider = begin(config::provider_path());
    loading_provider(false);
}

void open_rdma_libraries()
{
    if (g_loading.provider == nullptr || process_is_ending())
        return;
    loading_provider(true);
    open_libraries(*g_loading.provider, rdma_is_here(), false);
    loading_provider(false);
}

fi_provider *provider()
{
    return g_loading.provider;
}

int find_device(fi_provider &provider, Want want, const Addresses *addresses, fi_info *&info)
{
    // The fabric's name in the hints keeps all other devices out: none of them is even asked what it has.
    char local[] = "local";
    char verbs[] = "verbs";
    char ethernet[] = "ethernet";
    fi_tx_attr tx = {};
    fi_rx_attr rx = {};
    fi_ep_attr ep = {};
    fi_domain_attr domain = {};
    fi_fabric_attr fabric = {};
    fi_info hints = {};
    sockaddr_in6 source = {};
    sockaddr_in6 target = {};
    ep.type = want == Want::kDatagrams ? FI_EP_DGRAM : FI_EP_MSG;
    if (want == Want::kPortStreams)
        fi_vma_make_stream(&ep);
    domain.threading = FI_THREAD_SAFE;
    fabric.name = want == Want::kPortStreams ? ethernet : want == Want::kRdmaStreams ? verbs : local;
    hints.caps = want == Want::kStreams || want == Want::kRdmaStreams ? FI_MSG | FI_RMA : FI_MSG;
    hints.addr_format = FI_SOCKADDR_IN;
    hints.tx_attr = &tx;
    hints.rx_attr = &rx;
    hints.ep_attr = &ep;
    hints.domain_attr = &domain;
    hints.fabric_attr = &fabric;
    if (want == Want::kPortStreams)
        hints.addr_format = FI_FORMAT_UNSPEC;
    if (addresses != nullptr) {
        hints.src_addrlen = to_sockaddr(addresses->local, source);
        hints.dest_addrlen = to_sockaddr(addresses->peer, target);
        source.sin6_port = 0; // of either family in the same place
        if (want == Want::kRdmaStreams)
            domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints.addr_format = source.sin6_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
        hints.src_addr = &source;
        hints.dest_addr = &target;
    }
    return provider.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, &hints, &info);
}

namespace {

// A default, or a profile's wish, is no reason to warn of huge pages that are not there.
const char *kind_of_pages()
{
    switch (config::params().mem_alloc_type) {
    case 0:
        return "never";
    case 1:
        return "no";
    default:
        return config::variable("VMA_MEM_ALLOC_TYPE") != nullptr ? "yes" : "auto";
    }
}

// Who asks for a conversion of the device's times, asks for them; but FI_VMA_ETHERNET_STAMPS goes first.
const char *kind_of_stamps()
{
    return config::variable("VMA_HW_TS_CONVERSION") != nullptr && config::params().hw_ts_conversion != 0 ? "hardware"
                                                                                                         : nullptr;
}

// Locks of the provider's are critical stretches, as ours are: it counts them where we do.
void count_providers_locks(const fi_ops_vma_process &process)
{
    using libc::Critical;
    static_assert(sizeof(Critical) == sizeof(fi_vma_held) &&
                  offsetof(Critical, depth) == offsetof(fi_vma_held, locks) &&
                  sizeof(Critical::depth) == sizeof(fi_vma_held::locks) &&
                  offsetof(Critical, deferred) == offsetof(fi_vma_held, put_off));
    process.count_held(reinterpret_cast<fi_vma_held *>(&libc::t_libc.critical), libc::deliver_deferred);
}

} // namespace

void introduce_provider(const fi_ops_vma_process &process)
{
    process.set_log(&kLog);
    process.set_directory(offers_directory()); // the program may have thrown its environment away
    if (process.size > offsetof(fi_ops_vma_process, set_gro_streams)) { // VMA_PROVIDER may name an older one
        std::snprintf(g_loading.gro_streams, sizeof g_loading.gro_streams, "%u", config::params().gro_streams_max);
        process.set_gro_streams(g_loading.gro_streams);
    }
    if (process.size > offsetof(fi_ops_vma_process, set_huge_pages))
        process.set_huge_pages(kind_of_pages());
    if (process.size > offsetof(fi_ops_vma_process, set_ethernet_stamps))
        process.set_ethernet_stamps(kind_of_stamps());
    if (process.size > offsetof(fi_ops_vma_process, set_frame_allocator)) {
        const memory::Allocator chosen = memory::chosen_allocator();
        process.set_frame_allocator(chosen.allocate, chosen.free);
    }
    if (process.size > offsetof(fi_ops_vma_process, count_held))
        count_providers_locks(process);
    libc::g_private.provider_owns.store(process.owns_fd, std::memory_order_release);
}

} // namespace vma::sock
