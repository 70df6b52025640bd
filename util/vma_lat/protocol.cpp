// SPDX-License-Identifier: BSD-2-Clause
#include "protocol.hpp"

#include <algorithm>
#include <concepts>

namespace vma::lat {

namespace {

constexpr std::uint32_t kMagic = 0x564c4154; // VLAT
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kMaxText = 1000;

class Writer
{
public:
    template <std::unsigned_integral T> void number(T value)
    {
        for (std::size_t i = sizeof value; i-- > 0;)
            bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
    void run(std::span<const std::byte> bytes) // at most 65535
    {
        number(static_cast<std::uint16_t>(bytes.size()));
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    void text(const std::string &text) { run(std::as_bytes(std::span(text))); }
    Bytes take() { return std::move(bytes_); }

private:
    Bytes bytes_;
};

// Reads nothing beyond the end: what is missing reads as 0, and complete() tells it.
class Reader
{
public:
    explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
    template <std::unsigned_integral T> void number(T &value)
    {
        value = 0;
        for (const std::byte byte : take(sizeof value))
            value = static_cast<T>(static_cast<std::uint64_t>(value) << 8 | std::to_integer<std::uint64_t>(byte));
    }
    std::span<const std::byte> run(std::size_t most)
    {
        std::uint16_t length = 0;
        number(length);
        if (length > most)
            broken_ = true;
        return take(length);
    }
    std::string text(std::size_t most)
    {
        std::string text;
        for (const std::byte byte : run(most)) {
            const char c = std::to_integer<char>(byte);
            text.push_back(c >= ' ' && c <= '~' ? c : '?'); // it goes to somebody's terminal
        }
        return text;
    }
    bool complete() const { return !broken_ && rest_.empty(); }

private:
    std::span<const std::byte> take(std::size_t length)
    {
        if (broken_ || length > rest_.size()) {
            broken_ = true;
            return {};
        }
        const auto taken = rest_.first(length);
        rest_ = rest_.subspan(length);
        return taken;
    }

    std::span<const std::byte> rest_;
    bool broken_ = false;
};

Error malformed(const char *what)
{
    return error(kExitServer, "the other side sent a %s that is no message of vma_lat; the connection is ended", what);
}

} // namespace

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
    if (type < static_cast<std::uint16_t>(Type::kPlan) || type > static_cast<std::uint16_t>(Type::kResult))
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

Bytes encode(const Counts &counts)
{
    Writer writer;
    for (const std::uint64_t number : {counts.sent, counts.received, counts.reordered, counts.duplicates,
                                       counts.damaged, counts.foreign, counts.timed, counts.first_ns, counts.last_ns})
        writer.number(number);
    return writer.take();
}

Failure decode(std::span<const std::byte> bytes, Counts &counts)
{
    Reader reader(bytes);
    for (std::uint64_t *number : {&counts.sent, &counts.received, &counts.reordered, &counts.duplicates,
                                  &counts.damaged, &counts.foreign, &counts.timed, &counts.first_ns, &counts.last_ns})
        reader.number(*number);
    if (!reader.complete() || counts.last_ns < counts.first_ns)
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
