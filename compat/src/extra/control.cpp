// SPDX-License-Identifier: BSD-2-Clause
// Calls that change what the library does: rules, threads, memory; and the one that logs what is known of a descriptor.
#include <string.h>

#include <rdma/fi_ext_vma.h>

#include "compat/src/base/memory.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/extra/state.hpp"
#include "compat/src/extra/threads.hpp"
#include "compat/src/rules/rules.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::extra {

int add_conf_rule(const char *line)
{
    return rules::add(line);
}

int thread_offload(int offload, pthread_t thread)
{
    return set_thread_rule(offload != 0, thread) ? 0 : fail(ENOMEM);
}

namespace {

constexpr int kMostLevel = 8; // VLOG_ALL

// What util/vma_stats shows comes here, too.
void dump(const sock::Socket &s, int fd, config::Level level)
{
    char name[sock::kNameMax];
    const State *const state = find_state(s);
    const char *const reason = s.kernel_reason;
    const std::uint64_t dummies = state != nullptr ? state->dummy_sent.load(std::memory_order_relaxed) : 0;
    config::log_line(level, "fd=%d: %s, %s, %s%s", fd, sock::connection_name(s, name),
                     sock::offloaded(s) ? "accelerated" : "on the kernel",
                     sock::is_nonblocking(s) ? "non-blocking" : "blocking", reason != nullptr ? reason : "");
    const sock::Stream *const stream = sock::stream_of(s);
    if (stream != nullptr && sock::transport(*stream).spans) // whose TCP counts them
        config::log_line(level, "fd=%d: by the endpoint: sent %llu, arrived %llu, read %llu bytes", fd,
                         static_cast<unsigned long long>(stream->tx.position),
                         static_cast<unsigned long long>(stream->rx.written.load(std::memory_order_relaxed)),
                         static_cast<unsigned long long>(stream->rx.consumed.load(std::memory_order_relaxed)));
    if (dummies != 0)
        config::log_line(level, "fd=%d: dummy sends: %llu", fd, static_cast<unsigned long long>(dummies));
}

} // namespace

int dump_fd_stats(int fd, int level)
{
    if (level < static_cast<int>(config::Level::kNone) || level > kMostLevel || fd < 0)
        return fail(EINVAL);
    const auto wanted = static_cast<config::Level>(level < kMostLevel ? level : kMostLevel - 1);
    const sock::Socket *const one = fd != 0 ? sock::lookup(fd) : nullptr;
    if (fd != 0 && one == nullptr)
        return fail(EINVAL);
    if (!config::log_enabled(wanted) || wanted == config::Level::kNone)
        return 0;
    if (one != nullptr) {
        dump(*one, fd, wanted);
        return 0;
    }
    for (std::uint32_t i = 0; i < sock::pool_size(); ++i)
        if (const sock::Socket &s = *sock::socket_by_index(i);
            s.mode.load(std::memory_order_acquire) != sock::Mode::kFree)
            dump(s, s.any_fd.load(std::memory_order_relaxed), wanted);
    return 0;
}

int set_allocator(void *header, size_t length)
{
    if (header == nullptr || length < CMSG_LEN(sizeof(vma_cmsg_ioctl_user_alloc_t)))
        return fail(EINVAL);
    cmsghdr head;
    vma_cmsg_ioctl_user_alloc_t wanted;
    memcpy(&head, header, sizeof head);
    if (head.cmsg_level != SOL_SOCKET || head.cmsg_type != CMSG_VMA_IOCTL_USER_ALLOC ||
        head.cmsg_len != CMSG_LEN(sizeof wanted))
        return fail(EINVAL);
    memcpy(&wanted, CMSG_DATA(static_cast<cmsghdr *>(header)), sizeof wanted);
    constexpr unsigned kFlags = VMA_IOCTL_USER_ALLOC_TX | VMA_IOCTL_USER_ALLOC_RX;
    if ((wanted.flags & kFlags) == 0 || (wanted.flags & ~kFlags) != 0 || wanted.memalloc == nullptr ||
        wanted.memfree == nullptr || sock::pool_size() != 0)
        return fail(EINVAL);
    if ((wanted.flags & VMA_IOCTL_USER_ALLOC_TX) != 0)
        VMA_LOG(kDebug,
                "ioctl(): memory to send from is shared with the receiver, or the kernel's: it is not asked for");
    if ((wanted.flags & VMA_IOCTL_USER_ALLOC_RX) != 0)
        memory::use_allocator(wanted.memalloc, wanted.memfree);
    return 0;
}

} // namespace vma::extra
