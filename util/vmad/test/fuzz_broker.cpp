// SPDX-License-Identifier: BSD-2-Clause
// A fuzzer of what vmad's broker reads: requests, and vmad.conf. An input is how many descriptors came with the packet
// (1 byte) and then the packet, which is also taken for the text of a file.
//
// With clang: `make util/vmad/test/fuzz_broker`, then `util/vmad/test/fuzz_broker -max_total_time=60 FOUND CORPUS`,
// where FOUND is an empty folder and CORPUS is corpus/broker beside this file.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "util/vmad/broker/policy.hpp"
#include "util/vmad/broker/request.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

using namespace vma;
using namespace vma::guard;

void promise(bool kept)
{
    if (!kept)
        __builtin_trap();
}

void read_request(const std::uint8_t *data, std::size_t size, unsigned descriptors)
{
    std::uint32_t id = 0;
    const auto bytes = std::as_bytes(std::span(data, size));
    const Asked asked = parse_request(bytes.first(std::min(size, sizeof(broker::Request))), size, descriptors, id);
    if (asked == Asked::kGarbage)
        return;
    broker::Request request;
    std::memcpy(&request, data, sizeof request); // it is all there
    promise(request.magic == broker::kMagic && request.length == size && request.id == id);
    promise(asked == Asked::kOtherVersion || (size == sizeof request && descriptors == (asked == Asked::kAsk ? 1 : 0)));
}

void read_rules(std::string_view text)
{
    const Person a{0, 0, 1, "/a"};
    const Person b{1, 1, 2, ""};
    Policy policy;
    const std::string error = policy.parse(text, "file");
    promise(policy.allows(a, b, 80) == policy.allows(b, a, 80));
    promise(error.empty() || (error.starts_with("file:") && !policy.allows(a, b, 80) && policy.allows(b, b, 80)));
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0)
        return 0;
    read_request(data + 1, size - 1, data[0]);
    read_rules({reinterpret_cast<const char *>(data + 1), size - 1});
    return 0;
}
