// SPDX-License-Identifier: BSD-2-Clause
// Fast connections of the verbs device: messages of random sizes and kinds in both directions, whose order holds
// whichever path each of them takes.
#include "prov/vma/test/verbs/ring.hpp"

#include <algorithm>
#include <random>
#include <thread>

using namespace vma;
using namespace vma::test;

namespace {

// Both directions at once, each with its own path; receives that wait for messages, and messages that wait for
// receives.
class Stream
{
public:
    Stream(RdmaSide &from, RdmaSide &to, std::mt19937 &random)
        : from_(from), to_(to), engine_(random), out_(from.domain(), kLongest), in_(to.domain(), kReceives * kLongest)
    {
        out_.fill(0);
    }

    void send_some()
    {
        if (left_ == 0) {
            small_ = random_() % 3 != 0;
            left_ = 1 + random_() % (small_ ? 400 : 50);
        }
        for (unsigned burst = random_() % 12; burst > 0 && left_ > 0 && may_send(); --burst, --left_)
            if (!send(burst > 1 && random_() % 3 == 0))
                return;
    }
    void post_some()
    {
        for (unsigned burst = random_() % 12; burst > 0 && posted_ - received_ < kReceives; --burst) {
            const iovec halves[] = {{&in_.bytes[posted_ % kReceives * kLongest], 100},
                                    {&in_.bytes[posted_ % kReceives * kLongest + 100], kLongest - 100}};
            void *desc[] = {in_.desc(), in_.desc()};
            fi_msg each{};
            each.msg_iov = halves;
            each.desc = desc;
            each.iov_count = 2;
            each.context = tag(posted_);
            assert_int_equal(fi_recvmsg(to_.ep, &each, FI_COMPLETION), 0);
            ++posted_;
        }
    }
    void received(const fi_cq_data_entry &entry)
    {
        assert_ptr_equal(entry.op_context, tag(received_));
        const Message &message = messages_[received_ % messages_.size()];
        assert_int_equal(entry.flags, message.flags);
        assert_int_equal(entry.len, message.length);
        assert_int_equal(entry.data, (message.flags & FI_REMOTE_CQ_DATA) != 0 ? received_ & 0xffffffff : 0);
        if ((message.flags & FI_RECV) != 0)
            assert_memory_equal(&in_.bytes[received_ % kReceives * kLongest], &out_.bytes[message.offset],
                                message.length);
        ++received_;
    }
    std::uint64_t messages() const { return received_; }
    bool idle() const { return sent_ == received_; }
    bool has_more() const { return more_; }

private:
    static constexpr std::size_t kLongest = 1000, kReceives = 40;
    struct Message {
        std::uint64_t flags;
        std::size_t length, offset;
    };

    unsigned random_() { return static_cast<unsigned>(engine_()); }
    // A row of FI_MORE that was begun is ended.
    bool may_send() const { return more_ || sent_ - received_ < kReceives; }
    bool send(bool more)
    {
        Message message = {FI_RECV | FI_MSG, random_() % (small_ ? 241U : unsigned{kLongest}), 0};
        message.offset = random_() % (kLongest - message.length);
        if (random_() % 4 == 0)
            message.flags |= FI_REMOTE_CQ_DATA;
        const iovec iov{&out_.bytes[message.offset], message.length};
        void *desc = out_.desc();
        const std::uint64_t flags = (message.flags & FI_REMOTE_CQ_DATA) | (more ? FI_MORE : 0);
        ssize_t result;
        if (!small_ && random_() % 10 == 0) {
            message.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
            result = fi_writedata(from_.ep, iov.iov_base, 0, desc, sent_, 0, in_.address(), in_.key(), nullptr);
            message.length = 0;
        } else {
            fi_msg each{};
            each.msg_iov = &iov;
            each.desc = &desc;
            each.iov_count = 1;
            each.data = sent_;
            result = fi_sendmsg(from_.ep, &each, flags | (message.length <= 128 && random_() % 2 ? FI_INJECT : 0));
        }
        if (result == 0)
            more_ = more && message.flags != (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        if (result != 0)
            assert_int_equal(result, -FI_EAGAIN);
        else
            messages_[sent_++ % messages_.size()] = message;
        return result == 0;
    }

    RdmaSide &from_, &to_;
    std::mt19937 &engine_;
    Memory out_, in_;
    std::vector<Message> messages_{2 * kReceives};
    std::uint64_t sent_ = 0, posted_ = 0, received_ = 0;
    unsigned left_ = 0;
    bool small_ = true;
    bool more_ = false;
};

unsigned seed()
{
    const char *set = std::getenv("SEED");
    const unsigned chosen = set != nullptr ? static_cast<unsigned>(std::atoi(set)) : std::random_device()();
    std::printf("SEED=%u\n", chosen);
    return chosen;
}

void order_holds_over_all_switches(void **)
{
    constexpr std::uint64_t kMessages = 30000;
    const Fast fast;
    const SimulatedHost host({.name = "ring0", .max_inline = 128});
    PairSetup setup = kSpins;
    setup.bind_flags = FI_SELECTIVE_COMPLETION;
    setup.tx_size = 24;
    setup.rx_size = 40;
    RdmaPair pair(setup);
    std::mt19937 random(seed());
    Stream there(pair.a, pair.b, random);
    Stream back(pair.b, pair.a, random);
    std::uint64_t switches = 0;
    const auto read = [&random](RdmaSide &side, Stream &in) {
        fi_cq_data_entry entries[8];
        const ssize_t got = fi_cq_read(side.cq(), entries, 1 + random() % 8);
        for (ssize_t i = 0; i < got; ++i) {
            assert_true(entries[i].flags & (FI_RECV | FI_REMOTE_WRITE)); // of sends none was asked for
            in.received(entries[i]);
        }
        if (got < 0)
            assert_int_equal(got, -FI_EAGAIN);
    };
    while (there.messages() < kMessages || back.messages() < kMessages || !there.idle() || !back.idle()) {
        const bool was = uses_ring(pair.a.ep);
        if (there.messages() < kMessages || there.has_more())
            there.send_some();
        if (back.messages() < kMessages || back.has_more())
            back.send_some();
        switches += was != uses_ring(pair.a.ep);
        // Else they would settle on the slow path, for what they do is not worth a ring.
        for (fid_ep *ep : {pair.a.ep, pair.b.ep})
            fast_of(ep)->patience = std::min<std::uint64_t>(fast_of(ep)->patience, verbs::Fast::kAsk);
        (random() % 2 ? there : back).post_some();
        if (random() % 2)
            read(pair.a, back);
        else
            read(pair.b, there);
    }
    const std::uint64_t by_ring = fast_of(pair.a.ep)->written;
    std::printf("%llu switches, %llu of %llu messages by the ring\n", static_cast<unsigned long long>(switches),
                static_cast<unsigned long long>(by_ring), static_cast<unsigned long long>(there.messages()));
    assert_true(switches > 20 && by_ring > 1000);
}

// Each side has a thread that sends and one that receives, and is ahead or behind as they are scheduled.
void order_holds_among_threads(void **)
{
    constexpr std::uint64_t kMessages = 20000;
    const Fast fast;
    const SimulatedHost host({}, sim::Clock::real);
    RdmaPair pair(kSpins);
    const auto receive = [](RdmaSide &side) {
        constexpr std::size_t kPlaces = 32;
        Memory in(side.domain(), kPlaces * 512);
        for (std::uint64_t i = 0; i < kPlaces; ++i)
            assert_int_equal(fi_recv(side.ep, &in.bytes[i * 512], 512, in.desc(), 0, tag(i)), 0);
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            fi_cq_data_entry entry{};
            ssize_t got;
            while ((got = fi_cq_read(side.cq(), &entry, 1)) == -FI_EAGAIN)
                std::this_thread::yield();
            assert_int_equal(got, 1);
            assert_ptr_equal(entry.op_context, tag(i));
            unsigned char *place = &in.bytes[i % kPlaces * 512];
            assert_memory_equal(place, &i, sizeof i);
            if (i + kPlaces < kMessages)
                assert_int_equal(fi_recv(side.ep, place, 512, in.desc(), 0, tag(i + kPlaces)), 0);
        }
    };
    const auto send = [](RdmaSide &side) {
        Memory out(side.domain(), 512);
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            std::memcpy(out.bytes.data(), &i, sizeof i);
            if (i % 64 == 0)
                fast_of(side.ep)->patience = 1; // it would settle on the slow path
            if (i % 4 == 0)
                std::this_thread::yield(); // a receiver that does not run answers no question
            while (fi_inject(side.ep, out.bytes.data(), i % 500 == 499 ? 256 : 8 + i % 100, 0) != 0)
                std::this_thread::yield();
        }
    };
    std::thread threads[] = {std::thread([&] { receive(pair.a); }), std::thread([&] { receive(pair.b); }),
                             std::thread([&] { send(pair.a); })};
    send(pair.b);
    for (std::thread &thread : threads)
        thread.join();
    std::printf("%llu messages by the ring\n", static_cast<unsigned long long>(fast_of(pair.a.ep)->written));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(order_holds_over_all_switches),
        cmocka_unit_test(order_holds_among_threads),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
