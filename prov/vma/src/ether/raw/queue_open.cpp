// SPDX-License-Identifier: BSD-2-Clause
#include "core/kernel.hpp"
#include "ether/raw/queue.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "ether/nic/device_times.hpp"
#include "ether/nic/frame_memory.hpp"
#include "inet/tcp/segment.hpp"
#include "inet/wire/ethernet.hpp"

namespace vma::ether {
namespace {

int last_error() noexcept
{
    return errno != 0 ? -errno : -EIO;
}

VerbsObject<ibv_context> open_context(const std::string &name) noexcept
{
    const verbs::Table &verbs = *verbs::table();
    int count = 0;
    ibv_device **const list = verbs.get_device_list(&count);
    ibv_context *context = nullptr;
    errno = ENODEV;
    if (list == nullptr) // libibverbs finds no kernel modules
        return {};
    for (int i = 0; i < count && context == nullptr; ++i) {
        if (name == verbs.get_device_name(list[i]))
            context = verbs.open_device(list[i]);
    }
    const int error = errno;
    verbs.free_device_list(list);
    errno = error;
    return own(context, verbs.close_device);
}

// As an older rdma-core fills it, nothing is claimed that it doesn't know.
ibv_device_attr_ex describe(ibv_context *context) noexcept
{
    ibv_device_attr_ex attr{};
    const verbs_context *const extended = __extension__ verbs_get_ctx_op(context, query_device_ex);
    if (extended == nullptr || extended->query_device_ex(context, nullptr, &attr, sizeof attr) != 0)
        attr = {};
    return attr;
}

// For segments: how many frames to send there are, and how long each is. The memory is that of the usual ones.
constexpr std::uint32_t kLongFrames = 256;
constexpr std::uint32_t kLongFrame = 16384;
constexpr std::uint32_t kLongestHeaders = inet::kMaxEthernetHeader + inet::kIpv4Header + inet::kTcpLongestHeader;

} // namespace

int RawQueue::open(const core::RdmaPort &port, const RawQueueOptions &options,
                   std::unique_ptr<RawQueue> &opened) noexcept
{
    if (verbs::table() == nullptr)
        return -ELIBACC;
    std::unique_ptr<RawQueue> made(new (std::nothrow) RawQueue);
    if (!made)
        return -ENOMEM;
    errno = 0;
    if (const int status = made->open_device(port, options); status != 0)
        return status;
    opened = std::move(made);
    return 0;
}

int RawQueue::open_device(const core::RdmaPort &port, const RawQueueOptions &options) noexcept
{
    context_ = open_context(port.device);
    if (!context_)
        return last_error();
    ibv_device_attr attr{};
    if (const int error = verbs::table()->query_device(context_.get(), &attr); error != 0)
        return -error;
    const auto most = static_cast<std::uint32_t>(std::max(std::min(attr.max_qp_wr, attr.max_cqe), 1));
    receive_frames_ = std::min(options.receive_frames, most);
    send_frames_ = std::min(options.send_frames, most);
    send_frame_size_ = frame_size_ = options.frame_size;
    const ibv_device_attr_ex more = describe(context_.get());
    choose_offloads(options, attr, more);
    if (options.stamps)
        start_clock(more);
    if (const int status = open_queues(); status != 0)
        return status;
    if (const int status = map_frames(); status != 0)
        return status;
    fill_work();
    if (const int status = start(port.port); status != 0)
        return status;
    return open_wait_set();
}

// From what the counter says now on, so that whoever reads it, too, counts the same turns.
void RawQueue::start_clock(const ibv_device_attr_ex &attr) noexcept
{
    clock_ = {attr.completion_timestamp_mask, attr.hca_core_clock};
    std::uint64_t ticks = 0;
    if (clock_.runs() && read_counter(context_.get(), ticks) == 0)
        static_cast<void>(clock_.time_of(ticks, core::monotonic_ns()));
}

// What the device says of raw packets. Its word about checksums means those that it computes and those that it
// verifies.
void RawQueue::choose_offloads(const RawQueueOptions &options, const ibv_device_attr &plain,
                               const ibv_device_attr_ex &attr) noexcept
{
    verifies_checksums_ = (plain.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0 ||
                          (attr.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) != 0;
    sends_checksums_ = options.offloads && verifies_checksums_;
    const bool cuts = sends_checksums_ && (attr.tso_caps.supported_qpts & (1U << IBV_QPT_RAW_PACKET)) != 0 &&
                      attr.tso_caps.max_tso >= 2 * frame_size_;
    if (!cuts)
        return;
    send_frame_size_ = std::max(kLongFrame, 2 * frame_size_);
    send_frames_ = std::min(send_frames_, kLongFrames);
    segment_limit_ = std::min(attr.tso_caps.max_tso, send_frame_size_) - kLongestHeaders;
}

// With room for the headers of segments that the device cuts; a device that doesn't want that cuts none.
VerbsObject<ibv_qp> RawQueue::make_qp(ibv_qp_init_attr &attr) noexcept
{
    const verbs::Table &verbs = *verbs::table();
    const verbs_context *const extended = __extension__ verbs_get_ctx_op(context_.get(), create_qp_ex);
    if (segment_limit_ != 0 && extended != nullptr) {
        ibv_qp_init_attr_ex more{};
        more.send_cq = attr.send_cq;
        more.recv_cq = attr.recv_cq;
        more.cap = attr.cap;
        more.qp_type = attr.qp_type;
        more.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
        more.pd = pd_.get();
        more.max_tso_header = kLongestHeaders;
        VerbsObject<ibv_qp> made = own(extended->create_qp_ex(context_.get(), &more), verbs.destroy_qp);
        if (made)
            return made;
        VMA_DEBUG(domain, "RDMA device %s cuts no TCP segments after all: %s", verbs.get_device_name(context_->device),
                  std::strerror(errno));
    }
    segment_limit_ = 0;
    return own(verbs.create_qp(pd_.get(), &attr), verbs.destroy_qp);
}

// With the times of its completions, if they are wanted and the device gives such a queue.
VerbsObject<ibv_cq> RawQueue::make_receive_cq() noexcept
{
    const verbs::Table &verbs = *verbs::table();
    if (clock_.runs()) {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = receive_frames_;
        attr.channel = channel_.get();
        attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
        stamped_cq_ = ::ibv_create_cq_ex(context_.get(), &attr);
        if (stamped_cq_ != nullptr)
            return own(::ibv_cq_ex_to_cq(stamped_cq_), verbs.destroy_cq);
        VMA_INFO(domain, "RDMA device %s stamps no completions: %s", verbs.get_device_name(context_->device),
                 std::strerror(errno));
    }
    return own(verbs.create_cq(context_.get(), static_cast<int>(receive_frames_), nullptr, channel_.get(), 0),
               verbs.destroy_cq);
}

int RawQueue::open_queues() noexcept
{
    const verbs::Table &verbs = *verbs::table();
    pd_ = own(verbs.alloc_pd(context_.get()), verbs.dealloc_pd);
    channel_ = own(verbs.create_comp_channel(context_.get()), verbs.destroy_comp_channel);
    if (!pd_ || !channel_)
        return last_error();
    receive_cq_ = make_receive_cq();
    send_cq_ =
        own(verbs.create_cq(context_.get(), static_cast<int>(send_frames_), nullptr, nullptr, 0), verbs.destroy_cq);
    if (!receive_cq_ || !send_cq_)
        return last_error();
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.send_cq = send_cq_.get();
    attr.recv_cq = receive_cq_.get();
    attr.cap.max_send_wr = send_frames_;
    attr.cap.max_recv_wr = receive_frames_;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    qp_ = make_qp(attr);
    return qp_ ? 0 : last_error();
}

int RawQueue::map_frames() noexcept
{
    const std::size_t size = std::size_t{receive_frames_} * frame_size_ + std::size_t{send_frames_} * send_frame_size_;
    memory_.map = program_memory(size);
    if (!memory_.map)
        memory_.map = {::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), size};
    if (!memory_.map)
        return -errno;
    // The device holds these very pages: fork() must not make us write to copies of them.
    ::madvise(memory_.map.data(), size, MADV_DONTFORK);
    mr_ = own(verbs::table()->reg_mr(pd_.get(), memory_.map.data(), size, IBV_ACCESS_LOCAL_WRITE),
              verbs::table()->dereg_mr);
    if (!mr_)
        return last_error();
    memory_.lent = LentFrames::make(memory_.map.data(), frame_size_, receive_frames_, receive_frames_ / 2);
    return 0;
}

template <typename Request> void RawQueue::fill(Work<Request> &work, FrameIndex frame) noexcept
{
    work.part.addr = reinterpret_cast<std::uintptr_t>(bytes(frame).data());
    work.part.length = frame_size_;
    work.part.lkey = mr_->lkey;
    work.request.wr_id = frame;
    work.request.sg_list = &work.part;
    work.request.num_sge = 1;
}

void RawQueue::fill_work() noexcept
{
    receive_work_ = std::make_unique<Work<ibv_recv_wr>[]>(receive_frames_);
    for (FrameIndex i = 0; i < receive_frames_; ++i) {
        fill(receive_work_[i], i);
        release(i);
    }
    send_work_ = std::make_unique<Work<ibv_send_wr>[]>(send_frames_);
    free_ = std::make_unique<FrameIndex[]>(send_frames_);
    under_way_ = std::make_unique<FrameIndex[]>(send_frames_);
    for (FrameIndex i = send_frames_; i-- != 0;) { // the lowest is taken first
        fill(send_work_[i], receive_frames_ + i);
        send_work_[i].request.opcode = IBV_WR_SEND;
        release(receive_frames_ + i);
    }
}

// A queue pair takes receives from INIT on, and frames come from RTR on: none is lost for want of a receive.
int RawQueue::start(std::uint8_t port) noexcept
{
    const verbs::Table &verbs = *verbs::table();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = port;
    int error = verbs.modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_PORT);
    if (error == 0)
        refill();
    for (const ibv_qp_state next : {IBV_QPS_RTR, IBV_QPS_RTS}) {
        attr.qp_state = next;
        if (error == 0)
            error = verbs.modify_qp(qp_.get(), &attr, IBV_QP_STATE);
    }
    return broken_ && error == 0 ? -EIO : -error;
}

int RawQueue::open_wait_set() noexcept
{
    wait_set_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    if (!wait_set_)
        return -errno;
    for (const int fd : {channel_->fd, context_->async_fd}) {
        if (!core::set_nonblocking(fd) || !core::watch_fd(wait_set_.get(), fd))
            return -errno;
    }
    return 0;
}

} // namespace vma::ether
