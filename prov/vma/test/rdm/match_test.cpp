// SPDX-License-Identifier: BSD-2-Clause
// Tag matching, cases by hand, in the order that MPI wants. That an index is used is seen by cutting the list that it
// is of.
#include "prov/vma/test/rdm/match_model.hpp"

namespace {

// As long as this stands, who walks the list of all comes no further than to its first entry.
template <typename Entry> class Cut
{
public:
    explicit Cut(Entry *first) : first_(*first), newer_(std::exchange(first->links[kInOrder].newer, nullptr)) {}
    ~Cut() { first_.links[kInOrder].newer = newer_; }
    Cut(const Cut &) = delete;
    Cut &operator=(const Cut &) = delete;

private:
    Entry &first_;
    Entry *newer_;
};

void receives_win_in_their_order(void **)
{
    for (const unsigned others : {0U, 40U}) {
        Model model;
        model.pad_posted(others);
        Posted &exact = model.post(kAnna, 5);
        Posted &wild = model.post(kAny, 0, kAll);
        Posted &again = model.post(kAnna, 5);
        Posted &masked = model.post(kAnna, 0xf5, 0xf0);
        assert_int_equal(model.matcher.posted_indexed(), others != 0);
        model.take_posted(exact, kAnna, 5);
        assert_ptr_equal(model.find_posted(kBert, 5), &wild);
        model.take_posted(wild, kAnna, 5);
        assert_null(model.find_posted(kBert, 5));
        assert_ptr_equal(model.find_posted(kAnna, 0x75), &masked);
        model.take_posted(again, kAnna, 5);
        model.take_posted(masked, kAnna, 5);
        assert_null(model.find_posted(kAnna, 5));
        assert_null(model.find_posted(kAnna, 1'000'000));
        model.check_order();
    }
}

void one_with_a_source_has_no_right_of_way(void **)
{
    for (const unsigned others : {0U, 40U}) {
        Model model;
        model.pad_posted(others);
        Posted &any = model.post(kAny, 7);
        Posted &anna = model.post(kAnna, 7);
        Posted &any_again = model.post(kAny, 7);
        model.take_posted(any, kAnna, 7);
        assert_ptr_equal(model.find_posted(kBert, 7), &any_again);
        model.take_posted(anna, kAnna, 7);
        model.take_posted(any_again, kAnna, 7);
        assert_null(model.find_posted(kAnna, 7));
    }
}

void messages_win_in_their_order(void **)
{
    for (const unsigned others : {0U, 40U}) {
        Model model;
        model.pad_arrivals(others);
        Arrival &first = model.keep(kBert, 0x15);
        Arrival &second = model.keep(kAnna, 0x25);
        Arrival &third = model.keep(kAnna, 0x15);
        Arrival &fourth = model.keep(kBert, 0x25);
        assert_int_equal(model.matcher.arrivals_indexed(), others != 0);
        assert_ptr_equal(model.find_arrival(kAnna, 0x15), &third);
        assert_ptr_equal(model.find_arrival(kAnna, 5, 0xf0), &second);
        model.take_arrival(first, kAny, 5, 0xf0);
        model.take_arrival(third, kAny, 0x15);
        model.take_arrival(second, kAny, 0x25);
        model.take_arrival(fourth, kBert, 0, 0xff);
        assert_null(model.find_arrival(kAny, 5, 0xf0));
        model.check_order();
    }
}

void an_index_comes_with_the_seventeenth_and_goes_with_the_last(void **)
{
    Model model;
    unsigned once = 0;
    for (unsigned round = 0; round < 3; ++round) {
        model.pad_posted(16);
        model.pad_arrivals(16);
        assert_false(model.matcher.posted_indexed());
        assert_false(model.matcher.arrivals_indexed());
        model.pad_posted(200);
        model.pad_arrivals(200);
        assert_true(model.matcher.posted_indexed());
        assert_true(model.matcher.arrivals_indexed());
        assert_non_null(model.find_arrival(&kPlaces[4], 1'000'150));
        while (model.posted.size() > 1)
            model.remove(model.posted.back());
        while (model.arrivals.size() > 1)
            model.remove(model.arrivals.front());
        assert_true(model.matcher.posted_indexed());
        assert_true(model.matcher.arrivals_indexed());
        model.remove(model.posted.front());
        model.remove(model.arrivals.front());
        assert_false(model.matcher.posted_indexed());
        assert_false(model.matcher.arrivals_indexed());
        once = round == 0 ? allocated : once;
        assert_int_equal(allocated, once); // the tables' memory is used again
    }
}

// The last of a thousand is found though the list is cut.
void many_are_not_walked(void **)
{
    constexpr unsigned kCount = 1000;
    Model model;
    std::vector<Posted *> receives;
    std::vector<Arrival *> messages;
    for (unsigned i = 0; i < kCount; ++i) {
        receives.push_back(&model.post(i % 2 ? kAny : kAnna, i, 0x8000));
        messages.push_back(&model.keep(&kPlaces[i % 5], i));
    }
    assert_non_null(model.find_arrival(kAny, 1)); // there is a table for each of the two
    assert_non_null(model.find_arrival(kAnna, 5, 0x8000));
    for (unsigned i = kCount - 1; i > 0; --i) {
        const Cut posted(model.matcher.first_posted());
        const Cut arrived(model.matcher.first_arrival());
        assert_ptr_equal(model.matcher.find_posted(kAnna, i | 0x8000), receives[i]);
        assert_ptr_equal(model.matcher.find_posted(kBert, i), i % 2 ? receives[i] : nullptr);
        assert_ptr_equal(model.matcher.find_arrival(kAny, i, 0), messages[i]);
        assert_ptr_equal(model.matcher.find_arrival(kAnna, i, 0x8000), i % 5 ? nullptr : messages[i]);
    }
    for (unsigned i = kCount; i-- > 0;) { // none is in the way of one before it
        model.remove(*receives[i]);
        model.remove(*messages[i]);
        assert_null(model.matcher.find_posted(kAnna, i));
        assert_null(model.matcher.find_arrival(kAny, i, 0));
    }
}

// How many entries of the first table's longest chain there are.
template <typename Entry> unsigned longest_chain(const std::list<Entry> &entries)
{
    unsigned longest = 0;
    for (const Entry &last : entries) {
        unsigned length = 0;
        for (const Entry *one = &last; one != nullptr; one = one->links[1].older)
            ++length;
        longest = std::max(longest, length);
    }
    return longest;
}

// There are never more than two entries a chain on average, wherever in a tag, or in the source, they differ.
void chains_stay_short(void **)
{
    constexpr unsigned kCount = 1000;
    constexpr unsigned kLongest = 20;
    static const char block[kCount * 64] = {};
    for (unsigned shift = 0; shift <= 54; shift += 6) {
        Model model;
        model.pad_arrivals(20);
        assert_null(model.find_arrival(kAny, 42, 0)); // what is kept from here on makes a table grow that exists
        for (unsigned i = 0; i < kCount; ++i) {
            model.post(kAnna, std::uint64_t{i} << shift);
            model.keep(kAnna, std::uint64_t{i} << shift);
        }
        assert_true(longest_chain(model.posted) <= kLongest);
        assert_true(longest_chain(model.arrivals) <= kLongest);
    }
    for (const std::size_t step : {1U, 8U, 64U}) {
        Model model;
        for (unsigned i = 0; i < kCount; ++i) {
            model.post(&block[i * step], 1);
            model.keep(&block[i * step], 1);
        }
        assert_null(model.find_arrival(kAnna, 1)); // all are put in at once
        assert_true(longest_chain(model.posted) <= kLongest);
        assert_true(longest_chain(model.arrivals) <= kLongest);
    }
}

// Chains are split while their entries stay in order.
void tables_that_grow_keep_the_order(void **)
{
    Model model;
    model.pad_posted(20);
    model.pad_arrivals(20);
    assert_null(model.find_arrival(kAny, 42, 0x100)); // from here on, messages join a table that exists
    std::vector<Posted *> receives;
    std::vector<Arrival *> messages;
    for (unsigned i = 0; i < 2000; ++i) {
        const bool same = i % 20 == 0;
        Posted &receive = model.post(kAnna, same ? 42 : 1000 + i);
        Arrival &message = model.keep(kAnna, same ? 42 : 1000 + i);
        if (same) {
            receives.push_back(&receive);
            messages.push_back(&message);
        }
    }
    for (Posted *receive : receives)
        model.take_posted(*receive, kAnna, 42);
    for (Arrival *message : messages)
        model.take_arrival(*message, kAny, 42, 0x100);
    assert_null(model.find_posted(kAnna, 42));
    assert_null(model.find_arrival(kAny, 42, 0x100));
}

void a_ninth_class_of_receives(void **)
{
    Model model;
    std::vector<Posted *> receives;
    model.pad_posted(20); // a class of its own
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < 12; ++i)
            receives.push_back(&model.post(kAny, round << 16, (1U << i) - 1));
    }
    assert_int_equal(receives[6]->table, 7);
    assert_int_equal(receives[7]->table, kMatchClasses);
    assert_ptr_equal(model.find_posted(kAnna, 0x3ff), receives[10]); // among the others alone
    assert_ptr_equal(model.find_posted(kAnna, 0x10000 | 0x3f), receives[12 + 6]);
    assert_ptr_equal(model.find_posted(kAnna, 0x10000 | 0x40), receives[12 + 7]);
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < 12; ++i)
            model.take_posted(*receives[12 * round + i], kAnna, round << 16);
    }
    Posted &late = model.post(kAny, 0, (1U << 11) - 1);
    assert_true(late.table < kMatchClasses); // one is free by now
    model.take_posted(late, kAnna, 1234);
}

// A class that gets a table while some of it stand among the others.
void a_class_on_both_sides(void **)
{
    Model model;
    model.pad_posted(20);
    std::vector<Posted *> eight;
    for (unsigned i = 0; i < 8; ++i)
        eight.push_back(&model.post(kBert, 1, 1U << (8 + i)));
    Posted &older = model.post(kAnna, 3, 4);
    assert_int_equal(eight[6]->table, 7);
    assert_int_equal(older.table, kMatchClasses);
    model.remove(*eight[2]);
    Posted &newer = model.post(kAnna, 3, 4);
    assert_int_equal(newer.table, 3);
    model.take_posted(older, kAnna, 7);
    Posted &newest = model.post(kAnna, 3, 4);
    model.take_posted(newer, kAnna, 3);
    model.take_posted(newest, kAnna, 3);
    model.take_posted(*eight[7], kBert, 0x8001);
}

void a_ninth_class_of_messages(void **)
{
    Model model;
    model.pad_arrivals(40);
    Arrival &message = model.keep(kAnna, 0);
    for (unsigned i = 0; i < 10; ++i)
        assert_ptr_equal(model.find_arrival(kAny, 0, 1U << i), &message);
    {
        const Cut cut(model.matcher.first_arrival());
        for (unsigned i = 0; i < 10; ++i)
            assert_ptr_equal(model.matcher.find_arrival(kAny, 0, 1U << i), i < kMatchClasses ? &message : nullptr);
    }
    model.remove(message);
    for (unsigned i = 0; i < 10; ++i)
        assert_null(model.find_arrival(kAny, 0, 1U << i));
}

// A class that nobody has asked for before gets what is there, and what comes.
void a_class_that_comes_late(void **)
{
    Model model;
    std::vector<Arrival *> messages;
    model.pad_arrivals(5);
    for (unsigned i = 0; i < 100; ++i)
        messages.push_back(&model.keep(i % 2 ? kAnna : kBert, i % 10 | (i / 10) << 8));
    assert_null(model.find_arrival(kAnna, 99));
    assert_ptr_equal(model.find_arrival(kAnna, 3, 0xf00), messages[3]);
    {
        const Cut cut(model.matcher.first_arrival());
        assert_ptr_equal(model.matcher.find_arrival(kAnna, 5, 0xf00), messages[5]);
        assert_ptr_equal(model.matcher.find_arrival(kAnna, 0x405, 0), messages[45]);
    }
    model.remove(*messages[3]);
    Arrival &newest = model.keep(kAnna, 0x1003);
    for (unsigned i = 13; i < 100; i += 10)
        model.take_arrival(*messages[i], kAnna, 3, 0xf00);
    model.take_arrival(newest, kAnna, 3, 0xff00);
    assert_null(model.find_arrival(kAnna, 3, 0xf00));
}

void without_memory(void **)
{
    Model model;
    std::vector<Posted *> receives;
    std::vector<Arrival *> messages;
    const unsigned before = refused;
    refuse_of_eight = 8;
    for (unsigned i = 0; i < 100; ++i) {
        receives.push_back(&model.post(i % 2 ? kAny : kAnna, i / 2));
        messages.push_back(&model.keep(kAnna, i / 2));
    }
    for (unsigned i = 99; i > 0; --i) {
        assert_ptr_equal(model.find_posted(kAnna, i / 2), receives[i / 2 * 2]);
        assert_ptr_equal(model.find_arrival(kAny, i / 2), messages[i / 2 * 2]);
    }
    assert_true(refused > before + 1);
    {
        const Cut cut(model.matcher.first_arrival());
        assert_null(model.matcher.find_arrival(kAny, 7, 0)); // so it is walked, in truth
    }
    refuse_of_eight = 0; // what comes now has tables again
    Posted &receive = model.post(kAnna, 1234);
    assert_true(receives[1]->table == kMatchClasses && receive.table < kMatchClasses);
    model.take_posted(receive, kAnna, 1234);
    assert_ptr_equal(model.find_arrival(kAny, 7), messages[14]);
    const Cut cut(model.matcher.first_arrival());
    assert_ptr_equal(model.matcher.find_arrival(kAny, 7, 0), messages[14]);
}

void without_memory_to_grow(void **)
{
    Model model;
    model.pad_posted(17);
    model.pad_arrivals(17);
    assert_non_null(model.find_arrival(&kPlaces[4], 1'000'010));
    const unsigned before = refused;
    refuse_of_eight = 8;
    for (unsigned i = 0; i < 1000; ++i) {
        model.post(&kPlaces[4], i);
        model.keep(&kPlaces[4], i);
    }
    assert_in_range(refused - before, 6, 12); // it is tried again when there are twice as many
    const auto find_all = [&model] {
        for (unsigned i = 0; i < 1000; i += 7) {
            assert_non_null(model.find_posted(&kPlaces[4], i));
            assert_non_null(model.find_arrival(&kPlaces[4], i));
        }
    };
    find_all();
    refuse_of_eight = 0;
    const unsigned made = allocated;
    for (unsigned i = 0; i < 2000; ++i) {
        model.post(&kPlaces[4], 1000 + i);
        model.keep(&kPlaces[4], 1000 + i);
    }
    assert_true(allocated > made);
    find_all();
    assert_true(longest_chain(model.posted) <= 20 && longest_chain(model.arrivals) <= 20);
}

// What a table put up with is forgotten with its entries.
void memory_to_grow_comes_back(void **)
{
    Model model;
    for (const unsigned refuse : {8U, 0U}) {
        model.pad_posted(17); // before there is none
        refuse_of_eight = refuse;
        model.pad_posted(900);
        assert_int_equal(longest_chain(model.posted) <= 20, refuse == 0);
        while (!model.posted.empty())
            model.remove(model.posted.front());
        refuse_of_eight = 0;
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(receives_win_in_their_order),
        cmocka_unit_test(one_with_a_source_has_no_right_of_way),
        cmocka_unit_test(messages_win_in_their_order),
        cmocka_unit_test(an_index_comes_with_the_seventeenth_and_goes_with_the_last),
        cmocka_unit_test(many_are_not_walked),
        cmocka_unit_test(chains_stay_short),
        cmocka_unit_test(tables_that_grow_keep_the_order),
        cmocka_unit_test(a_ninth_class_of_receives),
        cmocka_unit_test(a_class_on_both_sides),
        cmocka_unit_test(a_ninth_class_of_messages),
        cmocka_unit_test(a_class_that_comes_late),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(without_memory_to_grow),
        cmocka_unit_test(memory_to_grow_comes_back),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
