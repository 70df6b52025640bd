// SPDX-License-Identifier: BSD-2-Clause
// Prometheus' text format, version 0.0.4: families of samples with help, type and labels. It knows nothing of what is
// counted. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vma_stats {

enum class MetricType : std::uint8_t {
    kCounter, // its name ends in _total
    kGauge,
};

// What samples of one name have in common. Names have Prometheus' units: _bytes, _seconds, _ratio.
struct Family {
    const char *name;
    MetricType type;
    const char *help; // one sentence without its full stop
};

// `name="value"` with commas between. What a label's value may not have is replaced: `?` stands for each byte that is
// no UTF-8, of which one would make Prometheus refuse the whole page.
class Labels
{
public:
    Labels &add(const char *name, std::string_view value);
    static Labels of(const std::string &text) // another's text()
    {
        Labels labels;
        labels.text_ = text;
        return labels;
    }
    const std::string &text() const { return text_; }

private:
    std::string text_;
};

// Collects samples by their families, as the format wants them together, and writes them in the order in which the
// families were first seen. Who adds sees to it that no two samples of a family have the same labels.
class Exposition
{
public:
    void add(const Family &family, const Labels &labels, std::uint64_t value);
    void add_seconds(const Family &family, const Labels &labels, std::uint64_t nanoseconds);
    void add_percent(const Family &family, const Labels &labels, std::uint32_t percent); // as a ratio
    std::string text() const;

private:
    struct Entry {
        const Family *family;
        std::string samples;
    };
    void add_text(const Family &family, const Labels &labels, const char *value);
    std::vector<Entry> entries_;
};

} // namespace vma_stats
