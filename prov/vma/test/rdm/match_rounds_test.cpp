// SPDX-License-Identifier: BSD-2-Clause
// Tag matching at random, across the length from which lists are indexed, with memory refused in between, against plain
// lists.
#include "prov/vma/test/rdm/match_model.hpp"

namespace {

// What the rounds of one seed have in common.
class Rounds
{
public:
    explicit Rounds(std::uint64_t seed) : random_(seed) {}

    void run(unsigned classes, unsigned refuse)
    {
        Model model;
        draw_masks(classes);
        refuse_of_eight = refuse;
        for (unsigned phase = 0; phase < 24; ++phase) {
            constexpr std::size_t kSizes[] = {0, 3, 15, 16, 17, 18, 40, 300};
            posted_target_ = kSizes[below(std::size(kSizes))];
            arrived_target_ = kSizes[below(std::size(kSizes))];
            for (unsigned i = 0; i < 1000; ++i)
                step(model);
            model.check_order();
            if (below(4) == 0)
                drain(model);
        }
        refuse_of_eight = 0;
    }
    // How often an index went.
    unsigned posted_dropped() const { return posted_dropped_; }
    unsigned arrived_dropped() const { return arrived_dropped_; }

private:
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
    const void *draw_source() { return &kPlaces[below(sources_)]; }
    const void *draw_wanted() { return below(3) == 0 ? kAny : draw_source(); }
    std::uint64_t draw_mask() { return masks_[below(masks_.size())]; }
    std::uint64_t draw_tag() { return below(4) | below(tags_) << 31 | below(2) << 63; }

    // Some ignore bits that no tag has: classes that differ in nothing else.
    void draw_masks(unsigned classes)
    {
        constexpr std::uint64_t kFields[] = {3, std::uint64_t{0xff} << 31, std::uint64_t{1} << 63, 0x1000};
        sources_ = 1 + below(5);
        tags_ = 1 + below(100);
        masks_.clear();
        for (unsigned i = 0; i < classes; ++i) {
            std::uint64_t mask = below(6) == 0 ? kAll : 0;
            for (const std::uint64_t field : kFields)
                mask |= below(3) == 0 ? field : 0;
            masks_.push_back(mask);
        }
    }
    // Whether a list that is to have so many shall grow now.
    bool grows(std::size_t size, std::size_t target) { return below(8) < (size < target ? 6U : 1U); }

    void step(Model &model)
    {
        const bool posted = model.matcher.posted_indexed();
        const bool arrived = model.matcher.arrivals_indexed();
        if (below(2) == 0)
            step_posted(model);
        else
            step_arrivals(model);
        posted_dropped_ += posted && !model.matcher.posted_indexed() ? 1 : 0;
        arrived_dropped_ += arrived && !model.matcher.arrivals_indexed() ? 1 : 0;
        model.check_counts();
    }
    void step_posted(Model &model)
    {
        if (grows(model.posted.size(), posted_target_)) {
            model.post(draw_wanted(), draw_tag(), draw_mask());
            return;
        }
        Posted *const found = model.find_posted(draw_source(), draw_tag());
        if (found != nullptr && below(4) != 0)
            model.remove(*found);
        if (below(4) == 0 && !model.posted.empty()) // fi_cancel()
            model.remove(*std::next(model.posted.begin(), static_cast<std::ptrdiff_t>(below(model.posted.size()))));
    }
    void step_arrivals(Model &model)
    {
        if (grows(model.arrivals.size(), arrived_target_)) {
            model.keep(draw_source(), draw_tag());
            return;
        }
        Arrival *const found = model.find_arrival(draw_wanted(), draw_tag(), draw_mask());
        if (found != nullptr && below(4) != 0)
            model.remove(*found);
        if (below(4) == 0 && !model.arrivals.empty()) // its sender has died
            model.remove(*std::next(model.arrivals.begin(), static_cast<std::ptrdiff_t>(below(model.arrivals.size()))));
    }
    void drain(Model &model)
    {
        posted_target_ = arrived_target_ = 0;
        while (!model.posted.empty())
            step(model);
        while (!model.arrivals.empty())
            step(model);
    }

    std::mt19937_64 random_;
    std::size_t sources_ = 1;
    std::size_t tags_ = 1;
    std::vector<std::uint64_t> masks_;
    std::size_t posted_target_ = 0;
    std::size_t arrived_target_ = 0;
    unsigned posted_dropped_ = 0;
    unsigned arrived_dropped_ = 0;
};

void run_seed(std::uint64_t seed)
{
    print_message("# VMA_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    Rounds rounds(seed);
    const unsigned before = refused;
    for (const unsigned classes : {1U, 2U, 3U, 20U, 30U}) {
        rounds.run(classes, 0);
        rounds.run(classes, 4); // half of the allocations fail
    }
    assert_true(refused > before);
    assert_true(rounds.posted_dropped() > 10 && rounds.arrived_dropped() > 10);
}

void as_plain_lists(void **)
{
    if (const char *const wanted = std::getenv("VMA_TEST_SEED")) {
        run_seed(std::strtoull(wanted, nullptr, 0));
        return;
    }
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
        run_seed(seed);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(as_plain_lists),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
