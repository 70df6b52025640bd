// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/wire.hpp"
#include "util/vma_lat/roles/mesh.hpp"

namespace vma::lat {

Bytes encode(const Hello &hello)
{
    Writer writer;
    for (const std::uint32_t number : {hello.rank, hello.plan.processes, hello.plan.size, hello.plan.window})
        writer.number(number);
    writer.number(hello.plan.count);
    writer.number(hello.plan.seed);
    writer.number(hello.port);
    writer.text(hello.plan.provider);
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, Hello &hello)
{
    Reader reader(bytes);
    for (std::uint32_t *number : {&hello.rank, &hello.plan.processes, &hello.plan.size, &hello.plan.window})
        reader.number(*number);
    reader.number(hello.plan.count);
    reader.number(hello.plan.seed);
    reader.number(hello.port);
    hello.plan.provider = reader.text(kMaxName);
    if (!reader.complete() || hello.rank >= hello.plan.processes || hello.plan.processes > kMaxConnections)
        return malformed("hello");
    return {};
}

Failure disagreement(const Hello &mine, const Hello &theirs)
{
    struct Field {
        const char *name;
        std::uint64_t mine;
        std::uint64_t theirs;
    };
    const MeshPlan &a = mine.plan;
    const MeshPlan &b = theirs.plan;
    for (const Field &field :
         {Field{"number of members", a.processes, b.processes}, Field{"--size", a.size, b.size},
          Field{"--window", a.window, b.window}, Field{"--count", a.count, b.count}, Field{"--seed", a.seed, b.seed}}) {
        if (field.mine != field.theirs)
            return error(kExitUsage, "rank %u has %s %llu, and rank %u has %llu: say the same to all members",
                         theirs.rank, field.name, static_cast<unsigned long long>(field.theirs), mine.rank,
                         static_cast<unsigned long long>(field.mine));
    }
    if (a.provider != b.provider)
        return error(kExitUsage, "rank %u has --provider %s, and rank %u has %s: say the same to all members",
                     theirs.rank, b.provider.c_str(), mine.rank, a.provider.c_str());
    return {};
}

} // namespace vma::lat
