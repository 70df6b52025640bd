// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/pcapng.hpp"

#include <string.h>

namespace vma_dump {

namespace {

enum class Type : std::uint32_t { kSection = 0x0a0d0d0a, kInterface = 1, kStatistics = 5, kPacket = 6 };

enum Option : std::uint16_t {
    kEnd = 0,
    kComment = 1,
    kSystem = 3,  // of a section
    kProgram = 4, //
    kName = 2,    // of an interface
    kDescription = 3,
    kResolution = 9,
    kFlags = 2, // of a packet
    kPacketDrops = 4,
    kReceived = 4, // of statistics
    kDrops = 5,
};

constexpr std::uint32_t kByteOrder = 0x1a2b3c4d;
constexpr std::uint16_t kEthernet = 1;
constexpr std::uint8_t kNanoseconds = 9;
constexpr std::uint32_t kInbound = 1;
constexpr std::uint32_t kOutbound = 2;

template <typename T> void add(std::string &out, T value)
{
    char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof bytes);
}

void pad(std::string &out, std::size_t length)
{
    out.append(-length % 4, '\0');
}

void add_option(std::string &out, Option option, std::string_view value)
{
    if (value.empty())
        return;
    value = value.substr(0, 0xfff0);
    add(out, static_cast<std::uint16_t>(option));
    add(out, static_cast<std::uint16_t>(value.size()));
    out.append(value);
    pad(out, value.size());
}

template <typename T> void add_number(std::string &out, Option option, T value)
{
    char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    add_option(out, option, {bytes, sizeof bytes});
}

// Its length stands before and behind it.
class Block
{
public:
    Block(std::string &out, Type type) : out_(out), start_(out.size())
    {
        add(out_, static_cast<std::uint32_t>(type));
        add(out_, std::uint32_t{0});
    }
    ~Block()
    {
        add(out_, std::uint32_t{kEnd}); // of its options
        const auto length = static_cast<std::uint32_t>(out_.size() + sizeof(std::uint32_t) - start_);
        memcpy(out_.data() + start_ + sizeof(std::uint32_t), &length, sizeof length);
        add(out_, length);
    }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

private:
    std::string &out_;
    const std::size_t start_;
};

void add_time(std::string &out, std::uint64_t time_ns)
{
    add(out, static_cast<std::uint32_t>(time_ns >> 32));
    add(out, static_cast<std::uint32_t>(time_ns));
}

} // namespace

void add_section(std::string &out, std::string_view program, std::string_view system)
{
    const Block block(out, Type::kSection);
    add(out, kByteOrder);
    add(out, std::uint16_t{1}); // version 1.0
    add(out, std::uint16_t{0});
    add(out, ~std::uint64_t{0}); // how long it will be is not known
    add_option(out, kSystem, system);
    add_option(out, kProgram, program);
}

void add_interface(std::string &out, std::string_view name, std::string_view description, std::uint32_t snap)
{
    const Block block(out, Type::kInterface);
    add(out, kEthernet);
    add(out, std::uint16_t{0});
    add(out, snap);
    add_option(out, kName, name);
    add_option(out, kDescription, description);
    add_number(out, kResolution, kNanoseconds);
}

void add_packet(std::string &out, std::uint32_t interface, std::uint64_t time_ns, const Frame &frame,
                const PacketNotes &notes)
{
    const Block block(out, Type::kPacket);
    add(out, interface);
    add_time(out, time_ns);
    add(out, frame.captured);
    add(out, frame.length);
    out.append(reinterpret_cast<const char *>(frame.bytes), frame.captured);
    pad(out, frame.captured);
    add_number(out, kFlags, notes.is_out ? kOutbound : kInbound);
    if (notes.dropped != 0)
        add_number(out, kPacketDrops, notes.dropped);
    add_option(out, kComment, notes.comment);
}

void add_statistics(std::string &out, std::uint32_t interface, std::uint64_t time_ns, std::uint64_t received,
                    std::uint64_t dropped)
{
    const Block block(out, Type::kStatistics);
    add(out, interface);
    add_time(out, time_ns);
    add_number(out, kReceived, received);
    add_number(out, kDrops, dropped);
}

} // namespace vma_dump
