// SPDX-License-Identifier: BSD-2-Clause
// Fast connections: who gets a ring, and the sender's half.
#include "verbs/fast.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "ofi/libfabric.hpp"
#include "verbs/endpoint.hpp"

namespace vma::verbs {
namespace {

struct Setting {
    ofi::Param param;
    const char *name;
    std::size_t least, most, otherwise;
};

constexpr Setting kConnections = {ofi::Param::fast_connections, "FI_VMA_FAST_CONNECTIONS", 0, 65536, 0};
constexpr Setting kDepth = {ofi::Param::fast_depth, "FI_VMA_FAST_DEPTH", 4, 1024, 64};
constexpr Setting kSize = {ofi::Param::fast_size, "FI_VMA_FAST_SIZE", 48, 4080, 240};
static_assert(kDepth.least == 1U << FastShape::kMinDepth && kDepth.most == 1U << FastShape::kMaxDepth);
static_assert(kSize.least + sizeof(FastTrailer) == 1U << FastShape::kMinSlot &&
              kSize.most + sizeof(FastTrailer) == 1U << FastShape::kMaxSlot);

// The process's, without a lock: exchange() lets one thread warn.
constinit std::atomic<bool> g_warned{false};

std::size_t value_of(const Setting &setting) noexcept
{
    const char *text = ofi::param(setting.param);
    if (text == nullptr)
        return setting.otherwise;
    std::size_t value = 0;
    if (core::parse_number(text, setting.most, value) && value >= setting.least)
        return value;
    if (!g_warned.exchange(true, std::memory_order_relaxed))
        VMA_WARN(ep_ctrl, "%s is \"%s\", expected a number from %zu to %zu: %zu is taken", setting.name, text,
                 setting.least, setting.most, setting.otherwise);
    return setting.otherwise;
}

constexpr std::uint64_t kMostPatience = std::uint64_t{1} << 20;
constexpr std::uint64_t kMixer = 0x9e3779b97f4a7c15;

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept
{
    hash = (hash ^ word) * kMixer;
    return hash ^ hash >> 32;
}

} // namespace

FastSettings fast_settings() noexcept
{
    return {value_of(kConnections), std::bit_floor(value_of(kDepth)), value_of(kSize)};
}

std::uint32_t fast_hash(const FastTrailer &trailer, const std::byte *message) noexcept
{
    std::uint64_t hash = mix(trailer.sequence, trailer.data);
    hash = mix(hash, std::uint64_t{trailer.length} << 16 | trailer.has_data);
    std::uint64_t word;
    std::size_t left = trailer.length;
    for (; left >= sizeof word; left -= sizeof word, message += sizeof word) {
        std::memcpy(&word, message, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    std::memcpy(&word, message, left);
    return static_cast<std::uint32_t>(mix(hash, word) >> 32);
}

// ---- who gets one ---------------------------------------------------------------------------------------------------

Fast::~Fast()
{
    if (mirror)
        VMA_DEBUG(ep_ctrl, "a fast connection ends: %llu of %llu messages sent by the ring, %llu received by it",
                  static_cast<unsigned long long>(written), static_cast<unsigned long long>(sent),
                  static_cast<unsigned long long>(taken));
    nic_.fast_places.fetch_sub(1, std::memory_order_relaxed);
}

std::unique_ptr<Fast> Fast::make(NicDomain &nic, std::size_t receives) noexcept
{
    const FastSettings settings = fast_settings();
    if (nic.fast_places.fetch_add(1, std::memory_order_relaxed) >= settings.connections) {
        nic.fast_places.fetch_sub(1, std::memory_order_relaxed);
        return nullptr;
    }
    std::unique_ptr<Fast> made(new (std::nothrow) Fast(nic));
    if (!made) {
        nic.fast_places.fetch_sub(1, std::memory_order_relaxed);
        return nullptr;
    }
    const std::size_t places = std::bit_ceil(receives);
    made->held.reset(new (std::nothrow) HeldReceive[places]);
    made->held_mask = places - 1;
    made->longest = settings.longest;
    made->shape.depth_log = static_cast<unsigned>(std::countr_zero(settings.depth));
    made->shape.slot_log =
        static_cast<unsigned>(std::countr_zero(std::bit_ceil(settings.longest + sizeof(FastTrailer))));
    if (!made->held ||
        made->block.make(nic.pd(), made->shape.bytes(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) != 0)
        return nullptr;
    return made;
}

void Fast::describe(ConnectHeader &header) const noexcept
{
    header.notes = shape.encode();
    header.block_key = block.remote_key();
    header.block_address = reinterpret_cast<std::uintptr_t>(block.bytes());
}

bool Fast::join(const ConnectHeader &header) noexcept
{
    if (!peer_shape.decode(header) || mirror.make(nic_.pd(), peer_shape.bytes(), 0) != 0)
        return false;
    peer_address = header.block_address;
    peer_key = header.block_key;
    longest = std::min(longest, peer_shape.longest());
    return true;
}

// Who may sleep until the device tells of a message must not wait for one that comes without being told of.
void Endpoint::open_fast() noexcept
{
    constexpr std::size_t kLeastSends = 4; // a message and the words around it
    // After `leave` a send may find no receive for as long as the peer doesn't look.
    constexpr std::uint8_t kForEver = 7;
    if (manager.retries().rnr_retry != kForEver || shared || region_bytes_ != 0 || receive_counter ||
        tx_size_ < kLeastSends || tx_queue->wait_obj != FI_WAIT_NONE || rx_queue->wait_obj != FI_WAIT_NONE ||
        tx_queue->stamped != nullptr || rx_queue->stamped != nullptr) // the device stamps nothing that goes by rings
        return;
    fast = Fast::make(nic_domain(domain), rx_size_);
    if (fast)
        fast->describe(outgoing.header);
}

// With what the peer said, before the first message.
void Endpoint::join_fast() noexcept
{
    if (!fast)
        return;
    if (!fast->join(incoming.header)) {
        fast.reset();
        return;
    }
    for (Queue *queue : {tx_queue, rx_queue}) {
        const core::SpinGuard guard(queue->lock);
        if (std::find(queue->fast.begin(), queue->fast.end(), this) == queue->fast.end())
            queue->fast.push_back(this);
    }
    const core::SpinGuard guard(tx_lock);
    fast_out = fast.get();
}

// ---- sending, with tx_lock held ------------------------------------------------------------------------------------

// Writes a word of the peer's FastWords, at once.
ssize_t Endpoint::tell_word(std::size_t offset, std::uint64_t value) noexcept
{
    std::byte *word = fast->mirror.bytes() + offset;
    std::memcpy(word, &value, sizeof value);
    ibv_sge list{.addr = reinterpret_cast<std::uintptr_t>(word), .length = sizeof value, .lkey = 0};
    return write_fast(list, fast->peer_address + offset, 0,
                      {.context = nullptr, .flags = 0, .counter = nullptr, .wanted = false});
}

ssize_t Endpoint::write_fast(ibv_sge &list, std::uint64_t to, unsigned send_flags, const Work &work) noexcept
{
    list.lkey = fast->mirror.local_key();
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = send_flags | (list.length <= max_inline ? unsigned{IBV_SEND_INLINE} : 0);
    wr.wr.rdma = {.remote_addr = to, .rkey = fast->peer_key};
    return post_locked(wr, work);
}

// What waits in a row of FI_MORE goes first.
ssize_t Endpoint::tell_in_order(std::size_t offset, std::uint64_t value) noexcept
{
    if (const ssize_t error = flush_row())
        return error;
    return tell_word(offset, value);
}

ssize_t Endpoint::leave_ring(Fast::Phase then) noexcept
{
    if (const ssize_t error = tell_in_order(offsetof(FastWords, leave), fast->sent))
        return error;
    // Who was there for a short time only, or in vain, asks later the next time.
    const std::uint64_t stay = fast->sent - std::min(fast->sent, fast->from);
    const bool worth_it = then == Fast::Phase::slow && stay >= 8 * fast->patience;
    fast->patience = worth_it ? Fast::kAsk : std::min(fast->patience * 4, kMostPatience);
    fast->phase = then;
    fast->streak = 0;
    return 0;
}

// Which path the next message takes is known afterwards. A negative fi_errno: none, now.
ssize_t Endpoint::steer(bool small) noexcept
{
    Fast &f = *fast;
    if (f.phase == Fast::Phase::asked || f.phase == Fast::Phase::cancelled) {
        const std::uint64_t answer = f.words().answer.load(std::memory_order_acquire);
        if (answer >= f.asked) {
            f.from = answer;
            f.phase = f.phase == Fast::Phase::asked ? Fast::Phase::ring : Fast::Phase::slow;
        } else if (f.phase == Fast::Phase::asked && f.sent >= f.asked) {
            return leave_ring(Fast::Phase::cancelled);
        }
    }
    if (f.phase == Fast::Phase::ring && f.sent >= f.from && (!small || f.is_full()))
        return leave_ring(Fast::Phase::slow);
    if (f.phase != Fast::Phase::slow)
        return 0;
    f.streak = small ? f.streak + 1 : 0;
    if (f.streak < f.patience)
        return 0;
    const std::uint64_t ask = std::max(f.sent + Fast::kNotice, f.from + 1);
    if (tell_in_order(offsetof(FastWords, ask), ask) == 0) {
        f.asked = ask;
        f.phase = Fast::Phase::asked;
        f.streak = 0;
    }
    return 0;
}

ssize_t Endpoint::write_slot(const ibv_send_wr &wr, std::size_t length, const Work &work) noexcept
{
    Fast &f = *fast;
    if (const ssize_t error = flush_row())
        return error;
    const std::size_t end = f.peer_shape.end(f.written);
    std::byte *const trailer_at = f.mirror.bytes() + end - sizeof(FastTrailer);
    std::byte *const begin = trailer_at - length;
    std::byte *to = begin;
    for (int i = 0; i < wr.num_sge; ++i) {
        if (wr.sg_list[i].length > 0)
            std::memcpy(to, reinterpret_cast<const void *>(wr.sg_list[i].addr), wr.sg_list[i].length);
        to += wr.sg_list[i].length;
    }
    const bool has_data = wr.opcode == IBV_WR_SEND_WITH_IMM;
    FastTrailer trailer = {.data = has_data ? ntohl(wr.imm_data) : 0,
                           .length = static_cast<std::uint16_t>(length),
                           .has_data = has_data,
                           .hash = 0,
                           .sequence = static_cast<std::uint32_t>(f.written + 1)};
    trailer.hash = fast_hash(trailer, begin);
    std::memcpy(trailer_at, &trailer, sizeof trailer);
    const std::size_t bytes = length + sizeof trailer;
    ibv_sge list{
        .addr = reinterpret_cast<std::uintptr_t>(begin), .length = static_cast<std::uint32_t>(bytes), .lkey = 0};
    const ssize_t error = write_fast(list, f.peer_address + end - bytes, wr.send_flags & IBV_SEND_FENCE, work);
    f.written += error == 0;
    return error;
}

// A message, or a write that takes a receive.
ssize_t Endpoint::post_fast(ibv_send_wr &wr, const Work &work, std::uint64_t flags) noexcept
{
    Fast &f = *fast;
    if (tx.left() <= kFastWordSends) [[unlikely]] {
        make_room();
        if (tx.left() <= kFastWordSends)
            return -FI_EAGAIN;
    }
    std::uint64_t length = 0;
    for (int i = 0; i < wr.num_sge; ++i)
        length += wr.sg_list[i].length;
    const bool small = wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM && length <= f.longest;
    if (const ssize_t error = steer(small))
        return error;
    const bool by_ring = f.phase == Fast::Phase::ring && f.sent >= f.from;
    const ssize_t error = by_ring ? write_slot(wr, length, work) : post_slow(wr, work, flags);
    f.sent += error == 0;
    return error;
}

} // namespace vma::verbs
