// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/libfabric.hpp"

#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <iterator>

#include <rdma/providers/fi_log.h>

#include "core/log.hpp"

namespace vma::ofi {
namespace {

struct ParamEntry {
    const char *name;  // as libfabric knows it
    const char *full;  // the variable
    const char *other; // a second variable with the same meaning, or nullptr
    const char *help;
};

constexpr ParamEntry kParams[] = {
    {"dir", "FI_VMA_DIR", "VMA_SHM_DIR",
     "Directory in which processes of one user find each other's endpoints. It must belong to the user and be closed "
     "to "
     "others (mode 0700); it is made if it is missing (default: /dev/shm/vma-<uid>)."},
    {"device", "FI_VMA_DEVICE", nullptr,
     "Names of the devices that may be used, separated by commas: local, mlx5_0 ... After a ^ at the beginning: those "
     "that may not (default: all may)."},
    {"interface", "FI_VMA_INTERFACE", nullptr,
     "Names of the network interfaces over which devices may be used, as FI_VMA_DEVICE; the device local has none and "
     "is not concerned (default: all)."},
    {"address", "FI_VMA_ADDRESS", nullptr,
     "IPv4 and IPv6 addresses or prefixes (192.0.2.0/24) of this host over which devices may be used, as "
     "FI_VMA_INTERFACE (default: all)."},
    {"port", "FI_VMA_PORT", nullptr,
     "Port, or range of ports as 5000-5009, on which a passive endpoint of an RDMA device listens that is given none "
     "(default: any)."},
    {"retry_count", "FI_VMA_RETRY_COUNT", nullptr,
     "How often an RDMA device sends again what is not acknowledged, 0 to 7, before the connection ends (default: 7)."},
    {"rnr_retry", "FI_VMA_RNR_RETRY", nullptr,
     "How often an RDMA device sends again what finds no receive posted, 0 to 6, before the connection ends; 7: for "
     "ever (default: 7)."},
    {"ack_timeout", "FI_VMA_ACK_TIMEOUT", nullptr,
     "How long an RDMA device waits for an acknowledgement: 4.096 us times 2 to the power of this number, 1 to 31; 0: "
     "for ever (default: what the connection manager says of the path)."},
    {"min_rnr_timer", "FI_VMA_MIN_RNR_TIMER", nullptr,
     "How long a peer waits before it sends again what found no receive posted here: a code of the InfiniBand "
     "specification, 1 (0.01 ms) to 31 (491 ms), 0 (655 ms) (default: 5, 0.06 ms)."},
    {"fast_connections", "FI_VMA_FAST_CONNECTIONS", nullptr,
     "Connections of a domain of an RDMA device that have a ring for short messages, which the receiver polls; both "
     "ends "
     "need one, and completion queues with FI_WAIT_NONE (default: 0, none)."},
    {"fast_depth", "FI_VMA_FAST_DEPTH", nullptr, "Messages that such a ring holds, 4 to 1024 (default: 64)."},
    {"fast_size", "FI_VMA_FAST_SIZE", nullptr,
     "Bytes of the longest message that goes by such a ring, 48 to 4080 (default: 240)."},
    {"guardian", "FI_VMA_GUARDIAN", nullptr,
     "Socket of vmad, which resets the TCP connections over Ethernet ports that this process leaves behind when it "
     "dies; "
     "empty: none (default: /run/vma/vmad.sock)."},
    {"ethernet", "FI_VMA_ETHERNET", nullptr,
     "How domains of the fabric ethernet get frames: xdp (AF_XDP sockets), raw (raw packet queue pairs of the RDMA "
     "device that the interface belongs to), auto: raw where the device has them, else xdp (default: xdp)."},
    {"ethernet_offloads", "FI_VMA_ETHERNET_OFFLOADS", nullptr,
     "What the kernel or the device can do with frames that are sent over an Ethernet port, checksums and "
     "segmentation, "
     "is left to it: on, off (default: on)."},
    {"ethernet_processes", "FI_VMA_ETHERNET_PROCESSES", nullptr,
     "Processes of one user that may share an Ethernet port by AF_XDP, 1 to 32. 1: nobody shares it, and the frames "
     "take "
     "less memory. The process that opens the port first decides (default: 8)."},
    {"ethernet_stamps", "FI_VMA_ETHERNET_STAMPS", nullptr,
     "Time stamps of received frames: off, software (the kernel's driver had it; AF_XDP alone), hardware (the device's "
     "clock "
     "too, where it stamps) (default: off)."},
    {"ethernet_xdp", "FI_VMA_ETHERNET_XDP", nullptr,
     "Where AF_XDP takes a port's frames: native (in the driver), generic (behind it, in the kernel's common path), "
     "auto: native where the driver has it, else generic (default: auto)."},
    {"gro_streams_max", "FI_VMA_GRO_STREAMS_MAX", nullptr,
     "TCP connections over an Ethernet port whose segments, where several came together, are taken as one at a time; "
     "0: "
     "none (default: 32)."},
    {"huge_pages", "FI_VMA_HUGE_PAGES", nullptr,
     "The memory of an Ethernet port's frames (AF_XDP): auto: huge pages if there are any, else ordinary ones; yes: "
     "likewise, with a warning if there are none; no: ordinary ones, which the kernel may make huge; never: ordinary "
     "ones (default: auto)."},
    {"network", "FI_VMA_NETWORK", nullptr,
     "Provider of libfabric's by which reliable-datagram endpoints reach other hosts (vma;ofi_rxm, tcp;ofi_rxm, ...); "
     "auto: vma;ofi_rxm where there is an RDMA device, else tcp;ofi_rxm where FI_PROVIDER leaves tcp in; off: none "
     "(default: auto)."},
    {"config", "FI_VMA_CONFIG", nullptr,
     "File that says which devices may be used, in sections as CCI's has them: transport, ip, interface, port ...; "
     "without it the file of CCI_CONFIG, if that is set (default: none)."},
};

// The process's, by parameter, without a lock: set by the library and by tests, and the words themselves stay.
constinit std::atomic<const char *> g_overrides[std::size(kParams)] = {};
constinit std::atomic<const char *> g_defaults[std::size(kParams)] = {};

struct Libfabric {
    const fi_provider *provider;
    decltype(&::fi_log) log;
    decltype(&::fi_log_enabled) log_enabled;
    decltype(&::fi_param_define) param_define;
    decltype(&::fi_version) version;
    LibfabricCalls calls;
};

// The process's: written by the thread that libfabric loads us with, and read once g_attached says that it is there.
constinit Libfabric g_libfabric{};
constinit std::atomic<bool> g_attached{false};

bool sink_enabled(core::Level level, core::Subsys subsys) noexcept
{
    return g_libfabric.log_enabled(g_libfabric.provider, static_cast<fi_log_level>(level),
                                   static_cast<fi_log_subsys>(subsys)) != 0;
}

void sink_write(core::Level level, core::Subsys subsys, const char *function, int line, const char *text) noexcept
{
    g_libfabric.log(g_libfabric.provider, static_cast<fi_log_level>(level), static_cast<fi_log_subsys>(subsys),
                    function, line, "%s\n", text);
}

constexpr core::LogSink kSink = {sink_enabled, sink_write};

const void *base_of(const void *address)
{
    Dl_info info{};
    return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

template <typename Function> bool find(void *handle, const char *name, Function &function, const void *base)
{
    void *symbol = ::dlsym(handle, name);
    if (symbol == nullptr || base_of(symbol) != base)
        return false;
    function = reinterpret_cast<Function>(symbol);
    return true;
}

bool find_all(void *handle, const void *base, Libfabric &found)
{
    return find(handle, "fi_log", found.log, base) && find(handle, "fi_log_enabled", found.log_enabled, base) &&
           find(handle, "fi_param_define", found.param_define, base) &&
           find(handle, "fi_version", found.version, base) && find(handle, "fi_getinfo", found.calls.getinfo, base) &&
           find(handle, "fi_freeinfo", found.calls.freeinfo, base) &&
           find(handle, "fi_dupinfo", found.calls.dupinfo, base) &&
           find(handle, "fi_fabric", found.calls.fabric, base) &&
           find(handle, "fi_strerror", found.calls.strerror, base);
}

} // namespace

void attach_libfabric(const fi_provider *provider, const void *caller) noexcept
{
    Dl_info info{};
    if (g_attached.load(std::memory_order_acquire) || ::dladdr(caller, &info) == 0 || info.dli_fname == nullptr)
        return;
    // Only a look: the caller stays loaded as long as it uses us.
    void *handle = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    Libfabric found{};
    const bool complete = find_all(handle != nullptr ? handle : RTLD_DEFAULT, info.dli_fbase, found);
    if (handle != nullptr)
        ::dlclose(handle);
    if (!complete)
        return;
    found.provider = provider;
    g_libfabric = found;
    g_attached.store(true, std::memory_order_release);
    core::set_log_sink(&kSink);
    for (const ParamEntry &entry : kParams)
        found.param_define(provider, entry.name, FI_PARAM_STRING, "%s", entry.help);
}

void detach_libfabric() noexcept
{
    core::set_log_sink(nullptr);
    g_attached.store(false, std::memory_order_release);
}

bool libfabric_attached() noexcept
{
    return g_attached.load(std::memory_order_acquire);
}

std::uint32_t libfabric_version() noexcept
{
    return libfabric_attached() ? g_libfabric.version() : FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
}

const LibfabricCalls *libfabric_calls() noexcept
{
    return libfabric_attached() ? &g_libfabric.calls : nullptr;
}

fi_info *allocate_info() noexcept
{
    if (libfabric_attached())
        return g_libfabric.calls.dupinfo(nullptr);
    auto *info = static_cast<fi_info *>(std::calloc(1, sizeof(fi_info)));
    if (info == nullptr)
        return nullptr;
    info->tx_attr = static_cast<fi_tx_attr *>(std::calloc(1, sizeof(fi_tx_attr)));
    info->rx_attr = static_cast<fi_rx_attr *>(std::calloc(1, sizeof(fi_rx_attr)));
    info->ep_attr = static_cast<fi_ep_attr *>(std::calloc(1, sizeof(fi_ep_attr)));
    info->domain_attr = static_cast<fi_domain_attr *>(std::calloc(1, sizeof(fi_domain_attr)));
    info->fabric_attr = static_cast<fi_fabric_attr *>(std::calloc(1, sizeof(fi_fabric_attr)));
    if (info->tx_attr && info->rx_attr && info->ep_attr && info->domain_attr && info->fabric_attr)
        return info;
    std::free(info->tx_attr);
    std::free(info->rx_attr);
    std::free(info->ep_attr);
    std::free(info->domain_attr);
    std::free(info->fabric_attr);
    std::free(info);
    return nullptr;
}

void override_param(Param which, const char *value) noexcept
{
    g_overrides[static_cast<int>(which)].store(value, std::memory_order_release);
}

void default_param(Param which, const char *value) noexcept
{
    g_defaults[static_cast<int>(which)].store(value, std::memory_order_release);
}

const char *param(Param which) noexcept
{
    if (const char *value = g_overrides[static_cast<int>(which)].load(std::memory_order_acquire))
        return value;
    const ParamEntry &entry = kParams[static_cast<int>(which)];
    const char *value = ::secure_getenv(entry.full);
    if ((value == nullptr || *value == '\0') && entry.other != nullptr)
        value = ::secure_getenv(entry.other);
    return value != nullptr && *value != '\0' ? value
                                              : g_defaults[static_cast<int>(which)].load(std::memory_order_acquire);
}

} // namespace vma::ofi
