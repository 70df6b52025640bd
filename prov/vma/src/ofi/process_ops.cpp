// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/process_ops.hpp"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "core/fd.hpp"
#include "core/held.hpp"
#include "core/log.hpp"
#include "core/mutex.hpp"
#include "core/topology.hpp"
#include "ofi/device.hpp"
#include "ofi/info/info.hpp"
#include "ofi/libfabric.hpp"

namespace vma::ofi {
namespace {

constinit std::atomic<const fi_vma_log *> g_log{nullptr};

bool log_enabled(core::Level level, core::Subsys) noexcept
{
    const fi_vma_log *log = g_log.load(std::memory_order_acquire);
    return log != nullptr && log->enabled(static_cast<int>(level)) != 0;
}

void log_write(core::Level level, core::Subsys subsys, const char *, int, const char *text) noexcept
{
    if (const fi_vma_log *log = g_log.load(std::memory_order_acquire))
        log->write(static_cast<int>(level), core::subsys_name(subsys), text);
}

constexpr core::LogSink kSink = {log_enabled, log_write};

int owns_fd(int fd)
{
    return core::owns_fd(fd) ? 1 : 0;
}

void set_log(const fi_vma_log *log)
{
    if (log != nullptr)
        g_log.store(log, std::memory_order_release);
    if (!libfabric_attached())
        core::set_log_sink(log != nullptr ? &kSink : nullptr);
}

void set_directory(const char *path)
{
    override_param(Param::directory, path);
}

void set_gro_streams(const char *number)
{
    override_param(Param::gro_streams_max, number);
}

void set_huge_pages(const char *word)
{
    override_param(Param::huge_pages, word);
}

void set_ethernet_stamps(const char *word)
{
    default_param(Param::ethernet_stamps, word);
}

constinit core::Mutex g_allocator_mutex;
constinit FrameAllocator g_allocator;

void set_frame_allocator(void *(*allocate)(std::size_t), void (*release)(void *))
{
    const std::lock_guard guard(g_allocator_mutex);
    g_allocator = allocate != nullptr && release != nullptr ? FrameAllocator{allocate, release} : FrameAllocator{};
}

void open_libraries(const char *fabric)
{
    for (const Device *device : kDevices) {
        if (device->open_libraries == nullptr || std::strcmp(device->name, fabric) != 0)
            continue;
        device->open_libraries();
        core::machine_topology(); // by hwloc
    }
}

using core::Held;
static_assert(sizeof(Held) == sizeof(fi_vma_held) && offsetof(Held, locks) == offsetof(fi_vma_held, locks) &&
              offsetof(Held, put_off) == offsetof(fi_vma_held, put_off));

void count_held(fi_vma_held *mine, void (*deliver)())
{
    core::g_held_place.deliver.store(deliver, std::memory_order_relaxed);
    core::g_held_place.offset.store(reinterpret_cast<char *>(mine) - core::thread_pointer(), std::memory_order_release);
}

} // namespace

FrameAllocator frame_allocator() noexcept
{
    const std::lock_guard guard(g_allocator_mutex);
    return g_allocator;
}

constinit fi_ops_vma_process process_ops = {
    .size = sizeof(fi_ops_vma_process),
    .freeinfo = free_info,
    .owns_fd = owns_fd,
    .set_log = set_log,
    .set_directory = set_directory,
    .set_gro_streams = set_gro_streams,
    .set_huge_pages = set_huge_pages,
    .set_ethernet_stamps = set_ethernet_stamps,
    .set_frame_allocator = set_frame_allocator,
    .open_libraries = open_libraries,
    .count_held = count_held,
};

} // namespace vma::ofi
