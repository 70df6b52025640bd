// SPDX-License-Identifier: BSD-2-Clause
// The transport of a stream on a port: its bytes.
#include "compat/src/transport/port.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/table/accounting.hpp"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include <algorithm>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/parts.hpp"
#include "compat/src/base/spare_room.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/port_life.hpp"
#include "compat/src/transport/port_options.hpp"
#include "compat/src/transport/ring.hpp"

namespace vma::sock {

void handle_port_entry(Stream &s, const fi_cq_data_entry &entry)
{
    if ((entry.flags & FI_RECV) != 0 && entry.len == 0)
        return; // the end: falling back tells it, as only the kernel's socket says all of it
    if ((entry.flags & FI_RECV) != 0) {
        s.port_ready.tell_bytes();
        notify(s, POLLIN);
    } else {
        s.port_ready.tell_room();
        notify(s, POLLOUT);
    }
}

namespace {

// ---- sending: hot path ----------------------------------------------------------------------------------------------

ssize_t post(Stream &s, const void *bytes, std::size_t len, bool more)
{
    const iovec part = {const_cast<void *>(bytes), len};
    fi_msg message = {};
    message.msg_iov = &part;
    message.iov_count = 1;
    return fi_sendmsg(s.endpoint, &message, more ? FI_MORE : 0);
}

ssize_t counted(const Stream &s, const void *bytes, std::size_t sent)
{
    stats::sent(record_of(s), sent, [=](const stats::Slot &record) { stats::capture_sent(record, bytes, sent); });
    return static_cast<ssize_t>(sent);
}

// -EAGAIN, or the connection has ended.
ssize_t refused(Stream &s, ssize_t result)
{
    if (result != -EAGAIN)
        s.transport_over.store(true, std::memory_order_release);
    return -EAGAIN;
}

// Bytes taken, or -EAGAIN. An end of the connection is -EAGAIN with transport_over set: fall_back() gives it to the
// kernel, which says how it ended. tx_lock held.
ssize_t port_send(Stream &s, const void *bytes, std::size_t len, bool more)
{
    std::size_t sent = 0;
    for (;;) {
        const std::uint64_t told = s.port_ready.told_of_room();
        const ssize_t n = post(s, static_cast<const std::uint8_t *>(bytes) + sent, len - sent, more);
        sent += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
        if (n >= 0 && sent == len) [[likely]]
            return counted(s, bytes, len);
        if (n >= 0 || n == -EAGAIN) { // part of it is a refusal, too
            if (!s.port_ready.note_refused(told))
                continue; // the entry has come already, or an older one
        }
        return sent != 0 ? counted(s, bytes, sent) : refused(s, n);
    }
}

// How many bytes from `skip` on can be sent: all, or what the kernel takes before it finds that some are not there.
std::size_t whole_pieces(const msghdr *msg, std::size_t skip)
{
    constexpr std::size_t kKernelPiece = 32768;
    std::size_t whole = 0;
    for (Parts parts(*msg, skip); whole < libc::kMostTouched && parts.next();) {
        const std::size_t looked_at = std::min(parts.length(), libc::kMostTouched);
        const std::size_t there = libc::touch_pages(parts.bytes(), looked_at, libc::touch_to_read);
        whole += there;
        if (there != looked_at)
            return whole & ~(kKernelPiece - 1);
    }
    return SIZE_MAX;
}

ssize_t port_send_message(Stream &s, int, const msghdr *msg, std::size_t skip, int flags)
{
    ssize_t total = 0;
    std::size_t whole = whole_pieces(msg, skip);
    if (whole == 0) [[unlikely]]
        return -EFAULT;
    for (Parts parts(*msg, skip); whole != 0 && parts.next();) {
        const std::size_t want = std::min(parts.length(), whole);
        const bool more = (flags & MSG_MORE) != 0 || !parts.is_last();
        const ssize_t n = port_send(s, parts.bytes(), want, more);
        if (n < 0)
            return total != 0 ? total : n;
        total += n;
        whole -= static_cast<std::size_t>(n);
        if (static_cast<std::size_t>(n) < want)
            break;
    }
    return total != 0 ? total : -EAGAIN;
}

std::size_t port_send_small(Stream &s, const void *bytes, std::size_t len)
{
    return libc::can_read(bytes, std::min(len, libc::kMostTouched))
               ? static_cast<std::size_t>(std::max<ssize_t>(port_send(s, bytes, len, false), 0))
               : 0;
}

// ---- receiving: hot path --------------------------------------------------------------------------------------------

ssize_t peek(Stream &s, void *out, std::size_t len)
{
    const iovec part = {out, len};
    fi_msg message = {};
    message.msg_iov = &part;
    message.iov_count = 1;
    const std::uint64_t told = s.port_ready.told_of_bytes();
    const ssize_t n = fi_recvmsg(s.endpoint, &message, FI_PEEK);
    if (n == -EAGAIN)
        s.port_ready.note_empty(told);
    else
        s.port_ready.note_readable();
    return n;
}

// What is read up to the last byte may have more behind it, of which no entry tells.
void look_for_more(Stream &s)
{
    char byte;
    peek(s, &byte, sizeof byte);
}

ssize_t scatter(const msghdr *msg, std::size_t skip, const std::uint8_t *bytes, std::size_t len)
{
    std::size_t done = 0;
    for (Parts parts(*msg, skip); done < len && parts.next();) {
        const std::size_t n = std::min(parts.length(), len - done);
        memcpy(parts.bytes(), bytes + done, n);
        done += n;
    }
    return static_cast<ssize_t>(done);
}

// The program's. Only what is there to be read can't be written.
[[gnu::cold]] ssize_t refuse_memory(Stream &s)
{
    std::uint8_t byte;
    const ssize_t n = peek(s, &byte, sizeof byte);
    return n > 0 ? -EFAULT : refused(s, n);
}

// Is what can be read to go to memory that is not there? As the first byte of each part tells.
bool leads_nowhere(Stream &s, const msghdr *msg, std::size_t skip)
{
    std::size_t before = 0;
    for (Parts parts(*msg, skip); parts.next();) {
        if (!libc::can_update(parts.bytes(), 1)) [[unlikely]] {
            QueuedBytes queued;
            return before == 0 || (count_port(s, queued) && queued.readable > before);
        }
        before += parts.length();
    }
    return false;
}

ssize_t consume_peek(Stream &s, const msghdr *msg, std::size_t skip)
{
    const std::size_t most = total_length(*msg) - skip;
    const bool straight = msg->msg_iovlen == 1;
    SpareRoom room;
    if (!straight)
        room.take();
    const ssize_t n = straight ? peek(s, static_cast<std::uint8_t *>(msg->msg_iov->iov_base) + skip, most)
                               : peek(s, room.bytes(), std::min(most, room.size()));
    if (n <= 0)
        return refused(s, n);
    return straight ? n
                    : scatter(msg, skip, reinterpret_cast<std::uint8_t *>(room.bytes()), static_cast<std::size_t>(n));
}

// An entry may be read after its bytes were: true is what is left of them.
bool is_port_readable(Stream &s)
{
    const LockGuard guard(s.rx_lock);
    if (!is_on_port(s))
        return true;
    char byte;
    return peek(s, &byte, sizeof byte) > 0; // the end is told by falling back
}

ssize_t port_receive(Stream &s, void *out, std::size_t len)
{
    const std::uint64_t told = s.port_ready.told_of_bytes();
    const ssize_t n = fi_recv(s.endpoint, out, len, nullptr, FI_ADDR_UNSPEC, nullptr);
    if (n == static_cast<ssize_t>(len))
        look_for_more(s);
    else if (n > 0 || n == -EAGAIN)
        s.port_ready.note_empty(told);
    else
        s.port_ready.note_readable();
    if (n > 0) [[likely]] {
        const auto got = static_cast<std::size_t>(n);
        stats::received(record_of(s), got,
                        [=](const stats::Slot &record) { stats::capture_received(record, out, got); });
        return n;
    }
    return refused(s, n);
}

Loan port_lend(Stream &s, std::size_t most)
{
    fi_vma_loan loan = {nullptr, nullptr, std::min<std::size_t>(most, UINT32_MAX), 0};
    std::size_t size = sizeof loan;
    const std::uint64_t told = s.port_ready.told_of_bytes();
    const int result = fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_LEND), &loan, &size);
    if (result == -FI_EAGAIN || (result == 0 && loan.lender != nullptr && loan.left == 0))
        s.port_ready.note_empty(told);
    else
        s.port_ready.note_readable(); // the end and errors are port_receive()'s to find
    if (result != 0 || loan.lender == nullptr)
        return {};
    stats::received(record_of(s), loan.length,
                    [&](const stats::Slot &record) { stats::capture_received(record, loan.payload, loan.length); });
    return {loan.lender, static_cast<const std::uint8_t *>(loan.payload), static_cast<std::uint32_t>(loan.length), 0};
}

// MSG_TRUNC.
ssize_t throw_away(Stream &s, std::size_t want)
{
    std::uint8_t nowhere[512];
    std::size_t thrown = 0;
    while (thrown < want) {
        const std::size_t most = std::min(want - thrown, sizeof nowhere);
        const ssize_t n = port_receive(s, nowhere, most);
        if (n < 0 && thrown == 0)
            return n;
        if (n < 0)
            s.transport_over.store(false, std::memory_order_release); // the next call tells it
        thrown += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
        if (n < static_cast<ssize_t>(most))
            break;
    }
    return static_cast<ssize_t>(thrown);
}

ssize_t receive_parts(Stream &s, msghdr *msg, std::size_t skip, int flags)
{
    ssize_t total = 0;
    if ((flags & MSG_TRUNC) == 0 && leads_nowhere(s, msg, skip)) [[unlikely]]
        return refuse_memory(s);
    if ((flags & MSG_PEEK) != 0)
        return consume_peek(s, msg, skip);
    const bool thrown = (flags & MSG_TRUNC) != 0;
    for (Parts parts(*msg, skip); parts.next();) {
        const std::size_t want = parts.length();
        auto *const out = parts.bytes();
        const ssize_t n = thrown                     ? throw_away(s, want)
                          : libc::can_update(out, 1) ? port_receive(s, out, want)
                                                     : refuse_memory(s);
        if (n < 0) {
            if (total != 0)
                s.transport_over.store(false, std::memory_order_release); // the next call tells it
            return total != 0 ? total : n;
        }
        total += n;
        if (static_cast<std::size_t>(n) < want)
            break;
    }
    return total;
}

// The error that the program has not been told stands behind all bytes.
ssize_t port_receive_message(Stream &s, int, msghdr *msg, std::size_t skip, int flags)
{
    const ssize_t n = receive_parts(s, msg, skip, flags);
    if (n >= 0)
        describe_bytes(*msg, flags); // whoever gets an error has his message as it was
    const int error = n == -EAGAIN && skip == 0 ? take_error(s) : 0;
    return error != 0 ? -error : n;
}

ssize_t port_receive_small(Stream &s, void *out, std::size_t len)
{
    return libc::can_update(out, 1) ? std::max<ssize_t>(port_receive(s, out, len), 0) : 0;
}

} // namespace

[[VMA_STARTUP_DATA]] constinit Transport storage::port = {
    .name = "port",
    .way = stats::Way::kPort,
    .spans = false,
    .ordered = true,
    .ends_with_process = true,
    .lingers = false,
    .wakes_sleepers = false,
    .shrinks = false,
    .needs_ticks = true,
    .send_small = port_send_small,
    .send = port_send_message,
    .send_nothing = [](Stream &s) { return port_send(s, nullptr, 0, false) == 0; },
    .warm = [](Stream &, std::size_t) {},
    .receive_small = port_receive_small,
    .receive = port_receive_message,
    .lend = port_lend,
    .has_input = [](const Stream &s) { return s.port_ready.readable(); },
    .has_room = [](const Stream &s) { return s.port_ready.writable(); },
    .confirm_input = is_port_readable,
    .room_mark = [](const Stream &s) { return s.port_ready.told_of_room(); },
    .count = count_port,
    .publish = publish_port,
    .set_option = set_port_option,
    .option_was_set = port_option_was_set,
    .correct_option = correct_port_option,
    .prepare = [](Stream &, fi_info &) {},
    .prepared = [](Stream &, fid_ep &) { return 0; },
    .offloaded = [](Stream &) {},
    .went_down = port_went_down,
    .may_close = [](const Stream &) { return true; },
    .leave = leave_port,
    .post_tag = post_tag,
    .end_not_told = [](Stream &) {},
    .ended_for_good = [](Stream &) {},
    .endpoint_failed = [](Stream &) {},
    .handle_tag = [](Stream &, Tag) { return false; },
    .start_came = [](Stream &) {},
    .may_be_ready = [](const Stream &) { return true; },
    .peer_is_gone = shared_ring_peer_is_gone,
    .may_bring_more = [](Stream &) { return false; },
    .start_leaving = [](Stream &, Heir) {}, // leave_port() needs no answer
    .give_up_waiting = [](Stream &) {},
    .tick = [](Stream &) {},
};

} // namespace vma::sock
