// SPDX-License-Identifier: BSD-2-Clause
// The configuration file: which devices may be used, in sections as CCI's file has them. Here is the meaning of its
// text; who reads the file, and which one, is ofi/info/config's. The text is not trusted: whatever it says, parsing
// ends with what is good of it and a bounded list of what is not.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/filters.hpp"

namespace vma::core {

enum class DeviceKind { local, rdma, ethernet };

// One section that means something.
struct ConfigSection {
    std::string name; // for the log
    DeviceKind kind = DeviceKind::local;
    Filters admits;        // of a device on a wire
    unsigned priority = 0; // 0 to 100, the highest first; kFirst of the one with `default`
};

inline constexpr unsigned kUsualPriority = 50;
inline constexpr unsigned kFirst = 101;

struct ConfigProblem {
    unsigned line = 0;      // from 1; 0: of the whole file
    bool is_warning = true; // else it is only worth knowing
    std::string text;       // what was wrong, what was expected, what happens now
};

// With a file only what its sections describe may be used.
class ConfigFile
{
public:
    // The highest priority of the sections that admit a device over this interface and address, which mean nothing
    // for DeviceKind::local. Nothing: none does.
    std::optional<unsigned> priority_of(DeviceKind kind, std::string_view device, std::string_view interface,
                                        const in6_addr &address) const noexcept;
    // The ports of the first section that has some and admits the same.
    std::optional<PortRange> ports_of(DeviceKind kind, std::string_view device, std::string_view interface,
                                      const in6_addr &address) const noexcept;

    const std::vector<ConfigSection> &sections() const noexcept { return sections_; }

private:
    friend class ConfigParser;
    std::vector<ConfigSection> sections_;
};

inline constexpr std::size_t kMostConfigBytes = 65536;
inline constexpr std::size_t kMostConfigLine = 1023;
inline constexpr std::size_t kMostConfigSections = 64;
inline constexpr std::size_t kMostConfigProblems = 100; // further ones are counted, in one that is the last

ConfigFile parse_config(std::string_view text, std::vector<ConfigProblem> &problems) noexcept;

} // namespace vma::core
