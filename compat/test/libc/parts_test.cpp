// SPDX-License-Identifier: BSD-2-Clause
// The parts of a message, from any of its bytes on.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "compat/src/base/parts.hpp"

using namespace vma::sock;

namespace {

std::uint8_t g_bytes[64];

// A message of parts of these lengths, one behind the other.
struct Message {
    std::vector<iovec> parts;
    msghdr header = {};
    Message(std::initializer_list<std::size_t> lengths)
    {
        std::size_t at = 0;
        for (const std::size_t length : lengths) {
            parts.push_back({g_bytes + at, length});
            at += length;
        }
        header.msg_iov = parts.data();
        header.msg_iovlen = parts.size();
    }
};

void every_byte_is_met_once(void **)
{
    const Message message = {3, 0, 5, 1, 0};
    constexpr std::size_t kTotal = 9;
    for (std::size_t skip = 0; skip <= kTotal + 1; ++skip) {
        std::size_t at = skip;
        for (Parts parts(message.header, skip); parts.next(); at += parts.length()) {
            assert_ptr_equal(parts.bytes(), g_bytes + at);
            assert_true(parts.length() != 0);
        }
        assert_int_equal(at, std::max(skip, kTotal));
    }
}

void the_first_part_is_cut(void **)
{
    const Message message = {4, 2};
    Parts parts(message.header, 1);
    assert_true(parts.next());
    assert_int_equal(parts.length(), 3);
    assert_false(parts.is_last());
    assert_true(parts.next());
    assert_ptr_equal(parts.bytes(), g_bytes + 4);
    assert_int_equal(parts.length(), 2);
    assert_true(parts.is_last());
    assert_false(parts.next());
    assert_false(parts.next());
}

void an_empty_part_behind_is_no_end(void **)
{
    const Message message = {4, 0};
    Parts parts(message.header, 0);
    assert_true(parts.next());
    assert_false(parts.is_last());
    assert_false(parts.next());
}

void a_message_without_parts(void **)
{
    const Message message = {};
    Parts parts(message.header, 0);
    assert_false(parts.next());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_met_once),
        cmocka_unit_test(the_first_part_is_cut),
        cmocka_unit_test(an_empty_part_behind_is_no_end),
        cmocka_unit_test(a_message_without_parts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
