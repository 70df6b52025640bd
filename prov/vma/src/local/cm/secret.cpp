// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/secret.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <sys/mman.h>
#include <sys/random.h>

#include "core/clock.hpp"

namespace vma::local {
namespace {

// What a hash of the key is for: neither can be taken for the other.
constexpr std::uint64_t kOfSecret = 0x564d'4173'6563'7265; // "VMAsecre"
constexpr std::uint64_t kOfWord = 0x564d'4177'6f72'6400;   // "VMAword"

std::uint64_t check_of(const Secret::Words &words) noexcept
{
    core::SecretHash hash(words.key);
    hash.add(kOfSecret);
    hash.add(words.number);
    hash.add(words.made_ns);
    return hash.finish();
}

std::uint64_t word_of(const Secret::Words &words, const Statement &statement) noexcept
{
    core::SecretHash hash(words.key);
    hash.add(kOfWord);
    hash.add(words.number);
    hash.add(std::uint64_t{statement.message} << 32 | statement.connection);
    hash.add(statement.link_end);
    hash.add(statement.tcp_socket);
    return hash.finish();
}

// Also false of a time that is to come: of another time namespace, or no time at all.
bool is_younger(const Secret::Words &words, std::uint64_t now, std::uint64_t most) noexcept
{
    return words.made_ns != 0 && now - words.made_ns < most;
}

bool fill(void *to, std::size_t length) noexcept
{
    return ::getrandom(to, length, GRND_NONBLOCK) == static_cast<ssize_t>(length);
}

} // namespace

bool Secret::is_whole(const Words &words) noexcept
{
    return words.made_ns != 0 && words.check == check_of(words);
}

// The number that the peer has told stands there, and behind it what only a secret looks like: a peer that names some
// other memory, which we may read and it may not, gets no hash of it.
Said say(const CmaPeer &peer, const Statement &statement, std::uint64_t &word) noexcept
{
    Secret::Words words{};
    static_assert(offsetof(Secret::Words, number) == 0); // which is the mark
    const bool is_read = cma_read_mark(peer, &words, sizeof words) && words.made_ns != 0;
    const std::uint64_t now = core::monotonic_ns();
    Said said = is_read && words.made_ns <= now ? Said::not_now : Said::never; // later: another time namespace's
    if (said == Said::not_now && is_younger(words, now, Secret::kFreshNs) && Secret::is_whole(words)) {
        word = word_of(words, statement);
        said = Said::yes;
    }
    ::explicit_bzero(&words, sizeof words);
    return said;
}

Secret::~Secret()
{
    if (page_ == nullptr)
        return;
    ::explicit_bzero(page_, sizeof *page_);
    ::munmap(page_, kBytes);
}

int Secret::open() noexcept
{
    void *const page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    is_kept_ = ::madvise(page, kBytes, MADV_WIPEONFORK) == 0 && ::madvise(page, kBytes, MADV_DONTDUMP) == 0;
    page_ = static_cast<Page *>(page);
    std::uint64_t number = 0;
    static_cast<void>(fill(&number, sizeof number));
    mark_ = {reinterpret_cast<std::uintptr_t>(page),
             number ^ core::monotonic_ns() ^ reinterpret_cast<std::uintptr_t>(this)};
    page_->now.number = mark_.number;
    renew_if_old();
    return 0;
}

void Secret::renew_if_old() noexcept
{
    const std::uint64_t now = core::monotonic_ns();
    if (!is_kept_ || is_younger(page_->now, now, kFreshNs))
        return;
    if (page_->now.number == 0 && !fill(&mark_.number, sizeof mark_.number))
        return; // a child, whose page was wiped: its parent has the old number at the same place
    Words fresh{.number = mark_.number, .made_ns = now, .key = {}, .check = 0};
    if (!fill(&fresh.key, sizeof fresh.key))
        return;
    fresh.check = check_of(fresh);
    page_->before = page_->now;
    page_->now = fresh;
    ::explicit_bzero(&fresh, sizeof fresh);
}

// Both are looked at whatever the first says, and each word as a whole: how long it takes tells nothing.
bool Secret::was_said(const Statement &statement, std::uint64_t word) const noexcept
{
    if (page_ == nullptr)
        return false;
    const std::uint64_t now = core::monotonic_ns();
    bool said = false;
    for (const Words *words : {&page_->now, &page_->before}) {
        const bool counts = is_whole(*words) && is_younger(*words, now, kCountsNs);
        said |= counts & ((word_of(*words, statement) ^ word) == 0);
    }
    return said;
}

} // namespace vma::local
