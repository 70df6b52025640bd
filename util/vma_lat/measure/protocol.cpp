// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/protocol.hpp"

#include "util/vma_lat/measure/wire.hpp"

#include <algorithm>

namespace vma::lat {

namespace {

constexpr std::uint32_t kMagic = 0x564c4154; // VLAT
constexpr std::uint16_t kVersion = 3;
constexpr std::size_t kMaxText = 1000;

} // namespace

Error malformed(const char *what)
{
    return error(kExitServer, "the other side sent a %s that is no message of vma_lat; the connection is ended", what);
}

std::array<std::byte, kControlHeader> encode_header(Header header)
{
    Writer writer;
    writer.number(kMagic);
    writer.number(kVersion);
    writer.number(static_cast<std::uint16_t>(header.type));
    writer.number(header.length);
    const Bytes bytes = writer.take();
    std::array<std::byte, kControlHeader> out{};
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return out;
}

Failure decode_header(std::span<const std::byte, kControlHeader> bytes, Header &header)
{
    Reader reader(bytes);
    std::uint32_t magic = 0;
    std::uint16_t version = 0;
    std::uint16_t type = 0;
    reader.number(magic);
    reader.number(version);
    reader.number(type);
    reader.number(header.length);
    if (magic != kMagic)
        return error(kExitServer,
                     "the other side is no vma_lat: its first bytes are not ours; the connection is ended");
    if (version != kVersion)
        return error(kExitServer,
                     "the other side's vma_lat speaks version %u, this one version %u; use the same on both sides",
                     version, kVersion);
    if (type < static_cast<std::uint16_t>(Type::kPlan) || type > static_cast<std::uint16_t>(Type::kHello))
        return malformed("type");
    if (header.length > kMaxBody)
        return malformed("length");
    header.type = static_cast<Type>(type);
    return {};
}

Bytes encode(const Plan &plan)
{
    Writer writer;
    writer.number(static_cast<std::uint8_t>(plan.kind));
    writer.number(static_cast<std::uint8_t>(plan.test));
    writer.number(static_cast<std::uint8_t>(plan.wait));
    writer.number(static_cast<std::uint8_t>(plan.check));
    writer.number(plan.session);
    writer.number(plan.data_port);
    writer.number(plan.size);
    writer.number(plan.sockets);
    writer.text(plan.provider);
    writer.text(plan.domain);
    writer.text(plan.group);
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, Plan &plan)
{
    Reader reader(bytes);
    std::uint8_t kind = 0;
    std::uint8_t test = 0;
    std::uint8_t wait = 0;
    std::uint8_t check = 0;
    for (std::uint8_t *field : {&kind, &test, &wait, &check})
        reader.number(*field);
    reader.number(plan.session);
    reader.number(plan.data_port);
    reader.number(plan.size);
    reader.number(plan.sockets);
    plan.provider = reader.text(kMaxName);
    plan.domain = reader.text(kMaxName);
    plan.group = reader.text(kMaxName);
    if (!reader.complete() || kind > static_cast<std::uint8_t>(Kind::kFabricDgram) ||
        test > static_cast<std::uint8_t>(Test::kUnderLoad) || wait > static_cast<std::uint8_t>(Wait::kEpoll) ||
        check > 1)
        return malformed("plan");
    plan.kind = static_cast<Kind>(kind);
    plan.test = static_cast<Test>(test);
    plan.wait = static_cast<Wait>(wait);
    plan.check = check != 0;
    return fault_of(plan);
}

Bytes encode(const Places &places)
{
    Writer writer;
    writer.number(static_cast<std::uint16_t>(places.ports.size()));
    for (const std::uint16_t port : places.ports)
        writer.number(port);
    writer.number(static_cast<std::uint16_t>(places.addresses.size()));
    for (const Bytes &address : places.addresses)
        writer.run(address);
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, Places &places)
{
    Reader reader(bytes);
    std::uint16_t count = 0;
    reader.number(count);
    if (count > kMaxSockets)
        return malformed("list of ports");
    places.ports.resize(count);
    for (std::uint16_t &port : places.ports)
        reader.number(port);
    reader.number(count);
    if (count > kMaxSockets)
        return malformed("list of addresses");
    places.addresses.clear();
    for (unsigned i = 0; i < count; ++i) {
        const auto address = reader.run(kMaxAddress);
        places.addresses.emplace_back(address.begin(), address.end());
    }
    if (!reader.complete())
        return malformed("list of ports and addresses");
    return {};
}

namespace {

void write(const Way &way, Writer &writer)
{
    for (const auto flag : {static_cast<std::uint8_t>(way.carrier), static_cast<std::uint8_t>(way.other_user),
                            static_cast<std::uint8_t>(way.introduced)})
        writer.number(flag);
    writer.number(way.sockets);
    writer.number(way.user);
    writer.number(way.bytes);
    writer.number(way.kernel_bytes);
    writer.text(way.device.substr(0, kMaxName));
    writer.text(way.reason.substr(0, kMaxReason));
}

bool read(Way &way, Reader &reader)
{
    std::uint8_t carrier = 0;
    std::uint8_t other_user = 0;
    std::uint8_t introduced = 0;
    for (std::uint8_t *field : {&carrier, &other_user, &introduced})
        reader.number(*field);
    reader.number(way.sockets);
    reader.number(way.user);
    reader.number(way.bytes);
    reader.number(way.kernel_bytes);
    way.device = reader.text(kMaxName);
    way.reason = reader.text(kMaxReason);
    if (carrier > static_cast<std::uint8_t>(Carrier::kPort) || other_user > 1 || introduced > 1)
        return false;
    way.carrier = static_cast<Carrier>(carrier);
    way.other_user = other_user != 0;
    way.introduced = introduced != 0;
    return true;
}

} // namespace

Bytes encode(const Report &report)
{
    const Counts &counts = report.counts;
    const Side &side = report.side;
    Writer writer;
    for (const std::uint64_t number : {counts.sent, counts.received, counts.reordered, counts.duplicates,
                                       counts.damaged, counts.foreign, counts.timed, counts.first_ns, counts.last_ns})
        writer.number(number);
    writer.number(static_cast<std::uint8_t>(side.library));
    writer.number(side.user);
    writer.number(side.network);
    writer.number(static_cast<std::uint16_t>(side.ways.size()));
    for (const Way &way : side.ways)
        write(way, writer);
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, Report &report)
{
    Counts &counts = report.counts;
    Side &side = report.side;
    Reader reader(bytes);
    for (std::uint64_t *number : {&counts.sent, &counts.received, &counts.reordered, &counts.duplicates,
                                  &counts.damaged, &counts.foreign, &counts.timed, &counts.first_ns, &counts.last_ns})
        reader.number(*number);
    std::uint8_t library = 0;
    std::uint16_t count = 0;
    reader.number(library);
    reader.number(side.user);
    reader.number(side.network);
    reader.number(count);
    side.library = library != 0;
    side.ways.assign(std::min<std::size_t>(count, kMostWays), Way());
    const bool good = std::all_of(side.ways.begin(), side.ways.end(), [&](Way &way) { return read(way, reader); });
    if (!reader.complete() || !good || library > 1 || count > kMostWays || counts.last_ns < counts.first_ns)
        return malformed("result");
    return {};
}

Bytes encode(const std::string &text)
{
    Writer writer;
    writer.text(text.substr(0, kMaxText));
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, std::string &text)
{
    Reader reader(bytes);
    text = reader.text(kMaxText);
    if (!reader.complete())
        return malformed("text");
    return {};
}

} // namespace vma::lat
