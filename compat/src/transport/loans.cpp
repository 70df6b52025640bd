// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/transport/loans.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include <rdma/fi_endpoint.h>

#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/port.hpp"

namespace vma::sock {

namespace {

StreamLoans::One &at(StreamLoans &loans, std::uint32_t place)
{
    return loans.list[(loans.first + place) % StreamLoans::kMost];
}

void leave(StreamLoans &loans)
{
    if (loans.users.fetch_sub(1, std::memory_order_acq_rel) != 1)
        return;
    if (loans.mapping != nullptr)
        ::munmap(loans.mapping, loans.mapping_size);
    delete &loans;
}

// The peer hears of it when it is a good part of the ring; or when it has to know that all was read.
void credit(Stream &s)
{
    const Receiver &rx = s.rx;
    const std::uint64_t now = creditable(s);
    const std::uint64_t told = rx.credited.load(std::memory_order_relaxed);
    const bool all = now == rx.consumed.load(std::memory_order_relaxed) && now != told &&
                     rx.path.load(std::memory_order_relaxed) == Path::kKernel;
    if (s.endpoint != nullptr && (all || now - told >= rx.ring / 4))
        send_credit(s);
}

void end_loan(fi_vma_lender *lender, const void *payload, std::size_t)
{
    StreamLoans &loans = *static_cast<StreamLoans *>(lender);
    Stream &s = loans.socket;
    {
        const LockGuard guard(s.rx_lock);
        const bool current = s.rx.loans == &loans;
        for (std::uint32_t i = 0; i < loans.count; ++i) {
            StreamLoans::One &one = at(loans, i);
            if (one.ended || one.payload != payload)
                continue;
            one.ended = true;
            break;
        }
        for (; loans.count != 0 && at(loans, 0).ended; --loans.count)
            loans.first = (loans.first + 1) % StreamLoans::kMost;
        if (current) {
            s.rx.lent_from.store(loans.count != 0 ? at(loans, 0).position : kNone, std::memory_order_release);
            credit(s);
        }
    }
    leave(loans);
}

StreamLoans *loans_of(Stream &s)
{
    if (s.rx.loans == nullptr)
        s.rx.loans = new (std::nothrow) StreamLoans(s);
    return s.rx.loans;
}

} // namespace

StreamLoans::StreamLoans(Stream &of) noexcept : fi_vma_lender{end_loan, nullptr}, socket(of) {}

std::uint64_t creditable(const Stream &s)
{
    return std::min(s.rx.consumed.load(std::memory_order_acquire), s.rx.lent_from.load(std::memory_order_acquire));
}

Loan ring_lend(Stream &s, std::size_t most)
{
    Receiver &rx = s.rx;
    const std::uint64_t position = rx.consumed.load(std::memory_order_relaxed);
    const std::uint64_t left = rx.written.load(std::memory_order_acquire) - position;
    if (s.endpoint == nullptr || rx.path.load(std::memory_order_relaxed) != Path::kEndpoint ||
        rx.returning.load(std::memory_order_acquire) || left == 0 || most == 0)
        return {};
    const std::uint64_t offset = position & (rx.ring - 1);
    const auto length = static_cast<std::uint32_t>(std::min({std::uint64_t{most}, left, rx.ring - offset}));
    const std::uint64_t lent_from = std::min(rx.lent_from.load(std::memory_order_relaxed), position);
    StreamLoans *const loans = position + length - lent_from <= rx.ring / 2 ? loans_of(s) : nullptr;
    if (loans == nullptr || loans->count == StreamLoans::kMost)
        return {};
    at(*loans, loans->count++) = {position, rx.base + offset, false};
    loans->users.fetch_add(1, std::memory_order_relaxed);
    rx.lent_from.store(lent_from, std::memory_order_release);
    rx.consumed.store(position + length, std::memory_order_release);
    stats::received(record_of(s), length,
                    [&](const stats::Slot &record) { stats::capture_received(record, rx.base + offset, length); });
    return {loans, rx.base + offset, length, 0};
}

void part_from_loans(Stream &s)
{
    StreamLoans *const loans = s.rx.loans;
    if (loans == nullptr)
        return;
    fi_vma_mapping mapping = {};
    std::size_t size = sizeof mapping;
    if (loans->count != 0 && s.endpoint != nullptr &&
        fi_getopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_KEEP_REGION), &mapping, &size) == 0) {
        loans->mapping = mapping.base;
        loans->mapping_size = mapping.len;
    }
    s.rx.loans = nullptr;
    s.rx.lent_from.store(kNone, std::memory_order_release);
    leave(*loans);
}

} // namespace vma::sock
