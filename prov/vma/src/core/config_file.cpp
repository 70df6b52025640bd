// SPDX-License-Identifier: BSD-2-Clause
#include "core/config_file.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <strings.h>
#include <utility>

#include "core/parse_number.hpp"
#include "core/quoted.hpp"

namespace vma::core {
namespace {

enum Key : unsigned { kTransport, kDevice, kInterface, kIp, kPort, kPriority, kDefault, kMac, kMtu, kBufsize, kKeys };

constexpr std::string_view kKeyNames[kKeys] = {"transport", "device",  "interface", "ip",  "port",
                                               "priority",  "default", "mac",       "mtu", "bufsize"};
constexpr char kVoid[] = ": this section admits no device";

constexpr struct {
    const char *name;
    std::optional<DeviceKind> kind; // nothing: a transport that CCI has and this provider has not
} kTransports[] = {
    {"verbs", DeviceKind::rdma},
    {"sm", DeviceKind::local},
    {"shm", DeviceKind::local},
    {"local", DeviceKind::local},
    {"eth", DeviceKind::ethernet},
    {"ethernet", DeviceKind::ethernet},
    {"sock", {}},
    {"tcp", {}},
    {"udp", {}},
    {"gni", {}},
    {"psm", {}},
    {"portals", {}},
};

// A section whose end is not seen yet.
struct Open {
    std::string name;
    unsigned line = 0;
    bool bad = false; // and that has been told
    std::array<std::optional<std::string>, kKeys> values;
    std::array<unsigned, kKeys> lines{};
};

std::string_view trimmed(std::string_view text)
{
    constexpr std::string_view kBlank = " \t\r\v\f";
    const std::size_t first = text.find_first_not_of(kBlank);
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<Key> key_named(std::string_view name)
{
    if (name == "driver") // as CCI's header calls it
        return kTransport;
    const auto *const found = std::find(std::begin(kKeyNames), std::end(kKeyNames), name);
    return found != std::end(kKeyNames) ? std::optional(static_cast<Key>(found - kKeyNames)) : std::nullopt;
}

} // namespace

// One walk through the text.
class ConfigParser
{
public:
    explicit ConfigParser(std::vector<ConfigProblem> &problems) noexcept : problems_(problems) {}

    ConfigFile parse(std::string_view text)
    {
        if (text.size() > kMostConfigBytes) {
            warn(0, "it has more than 65536 bytes: no device of this provider is used");
            return {};
        }
        for (unsigned number = 1; !text.empty(); ++number) {
            const std::size_t length = std::min(text.find('\n'), text.size());
            take_line(number, text.substr(0, length));
            text.remove_prefix(std::min(length + 1, text.size()));
        }
        finish();
        if (file_.sections_.empty())
            warn(0,
                 "no section of it admits a device, as \"[name]\" with \"transport = verbs\" would: no device of this "
                 "provider is used");
        if (untold_ != 0)
            problems_.push_back({0, true, std::to_string(untold_) + " more such lines are not shown"});
        return std::move(file_);
    }

private:
    void add(unsigned line, bool is_warning, std::string text)
    {
        if (problems_.size() < kMostConfigProblems)
            problems_.push_back({line, is_warning, std::move(text)});
        else
            ++untold_;
    }
    void warn(unsigned line, std::string text) { add(line, true, std::move(text)); }
    void tell(unsigned line, std::string text) { add(line, false, std::move(text)); }

    // A line that means nothing could have been meant to keep a device out.
    void spoil(unsigned line, const std::string &what)
    {
        warn(line, what + (open_ ? kVoid : ": it stands in no section and is not looked at"));
        if (open_)
            open_->bad = true;
    }

    void take_line(unsigned number, std::string_view line)
    {
        if (line.size() > kMostConfigLine)
            return spoil(number, "the line has more than 1023 bytes");
        line = trimmed(line.substr(0, line.find('#')));
        if (line.empty())
            return;
        if (line.front() == '[')
            return take_header(number, line);
        const std::size_t equal = line.find('=');
        if (equal == line.npos)
            return spoil(number, quoted(line) + " is no \"key = value\" and no \"[section]\"");
        take_value(number, trimmed(line.substr(0, equal)), trimmed(line.substr(equal + 1)));
    }

    void take_header(unsigned number, std::string_view line)
    {
        finish();
        open_.emplace();
        open_->line = number;
        const std::string_view name = line.size() > 2 ? trimmed(line.substr(1, line.size() - 2)) : std::string_view();
        if (line.back() != ']' || name.empty() || name.find_first_of("[]") != name.npos)
            return spoil(number, quoted(line) + " is no section's name within [ and ]");
        open_->name = quoted(name);
        if (++headers_ > kMostConfigSections)
            spoil(number, "there are more than 64 sections");
    }

    void take_value(unsigned number, std::string_view name, std::string_view value)
    {
        const std::optional<Key> key = key_named(name);
        if (!key)
            return spoil(number,
                         quoted(name) +
                             " is no key; these are: transport, device, interface, ip, port, priority, default, "
                             "mac, mtu, bufsize");
        if (!open_ || value.empty())
            return spoil(number,
                         quoted(name) + (value.empty() ? " has no value behind its =" : " belongs to a device"));
        if (open_->values[*key])
            return spoil(number,
                         quoted(name) + " is there a second time, after line " + std::to_string(open_->lines[*key]));
        open_->values[*key] = value;
        open_->lines[*key] = number;
    }

    // The section that is open ends here.
    void finish()
    {
        if (open_ && !open_->bad)
            close_section(*open_);
        open_.reset();
    }

    void close_section(const Open &open)
    {
        if (!open.values[kTransport])
            return warn(open.line, "section " + open.name +
                                       " has no \"transport\", which was expected to be verbs, sm or eth" + kVoid);
        const std::string &transport = *open.values[kTransport];
        const auto *const known = std::find_if(std::begin(kTransports), std::end(kTransports), [&](const auto &item) {
            return ::strcasecmp(item.name, transport.c_str()) == 0;
        });
        if (known == std::end(kTransports))
            return warn(open.lines[kTransport],
                        quoted(transport) + " is no transport; verbs, sm or eth was expected" + kVoid);
        if (!known->kind)
            return tell(open.lines[kTransport],
                        "the transport " + quoted(transport) + " is not this provider's" + kVoid);
        ConfigSection section{open.name, *known->kind, {}, kUsualPriority};
        if (!take_filters(open, section))
            return;
        take_priority(open, section);
        for (const Key key : {kMtu, kBufsize})
            ignore(open, key, "an endpoint's hints say how large its messages and queues are");
        file_.sections_.push_back(std::move(section));
    }

    void ignore(const Open &open, Key key, const char *why)
    {
        if (open.values[key])
            warn(open.lines[key], "\"" + std::string(kKeyNames[key]) + "\" is ignored: " + why);
    }

    // False: the section is void.
    bool take_filters(const Open &open, ConfigSection &section)
    {
        if (section.kind == DeviceKind::local) {
            for (const Key key : {kDevice, kInterface, kIp, kPort, kMac})
                ignore(open, key, "processes of one host reach each other by shared memory, which has none");
            return true;
        }
        if (open.values[kMac]) {
            warn(open.lines[kMac],
                 "devices are not chosen by \"mac\"; \"interface\" was expected: this section admits no device");
            return false;
        }
        if (section.kind != DeviceKind::rdma)
            ignore(open, kPort, "on an Ethernet port the kernel gives ports out");
        if (open.values[kIp] && open.values[kInterface])
            tell(open.lines[kInterface], "\"interface\" is ignored: \"ip\" is there too, and is what counts");
        const auto text = [&open](Key key) { return open.values[key] ? open.values[key]->c_str() : nullptr; };
        const FilterTexts texts = {text(kDevice), open.values[kIp] ? nullptr : text(kInterface), text(kIp),
                                   section.kind == DeviceKind::rdma ? text(kPort) : nullptr};
        const FilterError error = parse_filters(texts, section.admits);
        if (error.where == nullptr)
            return true;
        const Key key = error.where == &FilterTexts::devices      ? kDevice
                        : error.where == &FilterTexts::interfaces ? kInterface
                        : error.where == &FilterTexts::addresses  ? kIp
                                                                  : kPort;
        warn(open.lines[key], "\"" + std::string(kKeyNames[key]) + "\": " + error.what + kVoid);
        return false;
    }

    void take_priority(const Open &open, ConfigSection &section)
    {
        if (open.values[kPriority] && !parse_number(*open.values[kPriority], 100U, section.priority)) {
            section.priority = kUsualPriority;
            warn(open.lines[kPriority], "\"priority\": " + quoted(*open.values[kPriority]) +
                                            " is no number from 0 to 100: the section has 50");
        }
        if (!open.values[kDefault])
            return;
        const std::string &value = *open.values[kDefault];
        const bool is_set = value == "1" || value == "true";
        if (!is_set && value != "0" && value != "false")
            return warn(open.lines[kDefault],
                        "\"default\": " + quoted(value) + " is none of 0, 1, false and true: 0 is taken");
        if (is_set && std::exchange(has_default_, true))
            return warn(open.lines[kDefault], "a section before has \"default\" already: 0 is taken");
        if (is_set)
            section.priority = kFirst;
    }

    std::vector<ConfigProblem> &problems_;
    ConfigFile file_;
    std::optional<Open> open_;
    std::size_t headers_ = 0;
    std::size_t untold_ = 0;
    bool has_default_ = false;
};

ConfigFile parse_config(std::string_view text, std::vector<ConfigProblem> &problems) noexcept
{
    return ConfigParser(problems).parse(text);
}

namespace {

bool fits(const ConfigSection &section, DeviceKind kind, std::string_view device, std::string_view interface,
          const in6_addr &address)
{
    return section.kind == kind && (kind == DeviceKind::local || (section.admits.admits_device(device) &&
                                                                  section.admits.admits(interface, address)));
}

} // namespace

std::optional<unsigned> ConfigFile::priority_of(DeviceKind kind, std::string_view device, std::string_view interface,
                                                const in6_addr &address) const noexcept
{
    std::optional<unsigned> highest;
    for (const ConfigSection &section : sections_) {
        if (fits(section, kind, device, interface, address))
            highest = std::max(highest.value_or(0), section.priority);
    }
    return highest;
}

std::optional<PortRange> ConfigFile::ports_of(DeviceKind kind, std::string_view device, std::string_view interface,
                                              const in6_addr &address) const noexcept
{
    for (const ConfigSection &section : sections_) {
        if (section.admits.ports && fits(section, kind, device, interface, address))
            return section.admits.ports;
    }
    return std::nullopt;
}

} // namespace vma::core
