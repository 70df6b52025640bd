// SPDX-License-Identifier: BSD-2-Clause
// The parameters: names, defaults and ranges of the VMA manual, and a few of our own. To add one, add a field to Params
// and a row, here (profile and log) or in rows/; nothing else knows their names.
#include "compat/src/config/table.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "compat/src/config/log.hpp"
#include "compat/src/config/rows_memory.hpp"
#include "compat/src/config/rows_own.hpp"
#include "compat/src/config/rows_process.hpp"
#include "compat/src/config/rows_progress.hpp"
#include "compat/src/config/rows_receive.hpp"
#include "compat/src/config/rows_stats.hpp"
#include "compat/src/config/rows_tcp.hpp"
#include "compat/src/config/rows_transmit.hpp"

namespace vma::config {

namespace {

constexpr std::int64_t level(Level value)
{
    return static_cast<std::int64_t>(value);
}

// The digits are those of the manual, older than the levels' own numbers.
constexpr Choice kTraceLevels[] = {
    {"none", level(Level::kNone), "NONE"},    {"panic", level(Level::kPanic), "PANIC"},
    {"error", level(Level::kError), "ERROR"}, {"warn", level(Level::kWarn), "WARNING"},
    {"warning", level(Level::kWarn), ""},     {"info", level(Level::kInfo), "INFO"},
    {"information", level(Level::kInfo), ""}, {"details", level(Level::kDetails), "DETAILS"},
    {"debug", level(Level::kDebug), "DEBUG"}, {"fine", level(Level::kFunc), "FINE"},
    {"func", level(Level::kFunc), ""},        {"finer", level(Level::kFuncAll), "FINER"},
    {"funcall", level(Level::kFuncAll), ""},  {"func_all", level(Level::kFuncAll), ""},
    {"all", level(Level::kFuncAll), ""},      {"0", level(Level::kPanic), ""},
    {"1", level(Level::kError), ""},          {"2", level(Level::kWarn), ""},
    {"3", level(Level::kInfo), ""},           {"4", level(Level::kDebug), ""},
    {"5", level(Level::kFunc), ""},           {"6", level(Level::kFuncAll), ""},
};

constexpr Choice kSpecs[] = {
    {"none", static_cast<std::int64_t>(Spec::kNone), "NONE"},
    {"0", static_cast<std::int64_t>(Spec::kNone), ""},
    {"latency", static_cast<std::int64_t>(Spec::kLatency), "Latency"},
    {"15", static_cast<std::int64_t>(Spec::kLatency), ""},
    {"ultra-latency", static_cast<std::int64_t>(Spec::kUltraLatency), "Ultra Latency"},
    {"10", static_cast<std::int64_t>(Spec::kUltraLatency), ""},
    {"multi_ring_latency", static_cast<std::int64_t>(Spec::kMultiRing), "Multi Ring Latency Profile"},
    {"29west", static_cast<std::int64_t>(Spec::k29West), "29West LBM Logic"},
    {"29", static_cast<std::int64_t>(Spec::k29West), ""},
    {"wombat_fh", static_cast<std::int64_t>(Spec::kWombat), "Wombat FH LBM Logic"},
    {"554", static_cast<std::int64_t>(Spec::kWombat), ""},
    {"mcd", static_cast<std::int64_t>(Spec::kMemcached), "Memcached Logic"},
    {"623", static_cast<std::int64_t>(Spec::kMemcached), ""},
    {"mcd-irq", static_cast<std::int64_t>(Spec::kMemcachedIrq), "Memcached Interrupt Mode"},
    {"624", static_cast<std::int64_t>(Spec::kMemcachedIrq), ""},
    {"rti", static_cast<std::int64_t>(Spec::kRti), "RTI Logic"},
    {"784", static_cast<std::int64_t>(Spec::kRti), ""},
    {"7750", static_cast<std::int64_t>(Spec::k7750), "7750 Low Latency Profile"},
};

constexpr Parameter kTable[] = {
    {.name = "VMA_SPEC",
     .label = "VMA Spec",
     .field = &Params::spec,
     .choices = kSpecs,
     .text = "A profile: defaults for other parameters, which a variable of their own still overrides. \"latency\" "
             "(15): the shortest way at the price of a processor that always polls; ultra-latency (10): likewise, "
             "and hardly ever a look at the kernel; multi_ring_latency: of one thread that only sends and one that "
             "only receives; 29west (29), wombat_fh (554), mcd (623), mcd-irq (624), rti (784), 7750: for the programs "
             "of these names. The entries below say what each changes."},
    {.name = "VMA_TRACELEVEL",
     .label = "Log Level",
     .field = &Params::trace_level,
     .fallback = level(Level::kInfo),
     .always_shown = true,
     .choices = kTraceLevels,
     .overrides = {{{Spec::k7750, level(Level::kWarn)}}},
     .text = "What is logged: none, panic (0), error (1), warn (2), info (3), details (all parameters at start-up, and "
             "of each connection whether it is accelerated, and if not, why), debug (4; of calls on sockets too), fine "
             "(5; of sends, receives and waits too), finer (6; by which way bytes went)."},
    {.name = "VMA_LOG_DETAILS",
     .label = "Log Details",
     .field = &Params::log_details,
     .max = 3,
     .text = "What each line starts with: 0 nothing, 1 the thread, 2 process and thread, 3 also the milliseconds "
             "since the library was loaded. 2 if VMA_TRACELEVEL is debug or more."},
    {.name = "VMA_LOG_COLORS",
     .label = "Log Colors",
     .field = &Params::log_colors,
     .fallback = 1,
     .text = "Colours by level; never when the log is not a terminal."},
    {.name = "VMA_LOG_FILE",
     .label = "Log File",
     .field = &Params::log_file,
     .always_shown = true,
     .text = "The file that the log is appended to instead of stderr. One %d in it stands for the process's id."},
};

template <std::size_t... Sizes> constexpr auto joined(const Parameter (&...groups)[Sizes])
{
    std::array<Parameter, (Sizes + ...)> all{};
    auto *at = all.begin();
    (..., (at = std::copy(std::begin(groups), std::end(groups), at)));
    return all;
}

constexpr auto kAll = joined(kTable, kProcessRows, kTransmitRows, kReceiveRows, kProgressRows, kTcpRows, kMemoryRows,
                             kStatsRows, kOwnRows);

// ---- as kept

constexpr std::size_t length_of(const char *text)
{
    return text == nullptr ? 0 : std::char_traits<char>::length(text) + 1;
}

constexpr std::size_t length_of_texts()
{
    std::size_t length = 1; // place 0 is none's
    for (const Parameter &row : kAll) {
        length += length_of(row.name) + length_of(row.label) + length_of(row.label_if_off) +
                  length_of(row.fallback_text) + length_of(row.text);
        for (const Choice &choice : row.choices)
            length += length_of(choice.word) + length_of(choice.shown);
        for (const BasicOverride<const char *> &override : row.overrides)
            length += length_of(override.word);
    }
    return length;
}

constexpr std::size_t count_of_choices()
{
    std::size_t count = 0;
    for (const Parameter &row : kAll)
        count += row.choices.size();
    return count;
}

struct Table {
    std::array<char, length_of_texts()> texts{};
    std::array<BasicChoice<Text>, count_of_choices()> choices{};
    std::array<Row, kAll.size()> rows{};
};

// Fills a table in the order of the rows.
struct Packer {
    Table table;
    std::uint32_t used = 1;
    std::uint16_t choices = 0;

    constexpr Text text(const char *from)
    {
        if (from == nullptr)
            return {};
        const Text kept = {used};
        used += static_cast<std::uint32_t>(std::copy_n(from, length_of(from), &table.texts[used]) - &table.texts[used]);
        return kept;
    }

    constexpr Choices choices_of(const Parameter &row)
    {
        const Choices kept = {choices, static_cast<std::uint16_t>(row.choices.size())};
        for (const Choice &choice : row.choices)
            table.choices[choices++] = {text(choice.word), choice.value, text(choice.shown)};
        return kept;
    }

    constexpr Row row(const Parameter &from)
    {
        Row kept = {text(from.name),
                    text(from.label),
                    text(from.label_if_off),
                    from.field,
                    from.fallback,
                    text(from.fallback_text),
                    from.min,
                    from.max,
                    from.power_of_two,
                    from.or_zero,
                    from.as_digit,
                    from.always_shown,
                    choices_of(from),
                    {},
                    from.idle,
                    text(from.text)};
        for (std::size_t i = 0; i < kept.overrides.size(); ++i)
            kept.overrides[i] = {from.overrides[i].spec, from.overrides[i].value, text(from.overrides[i].word)};
        return kept;
    }
};

constexpr Table packed()
{
    Packer packer;
    std::transform(kAll.begin(), kAll.end(), packer.table.rows.begin(),
                   [&packer](const Parameter &row) { return packer.row(row); });
    return packer.table;
}

constexpr Table kKept = packed();

constexpr Params defaults()
{
    Params params{};
    for (const Parameter &row : kAll) {
        set_number(params, row.field, row.fallback);
        set_text(params, row.field, row.fallback_text);
    }
    return params;
}

} // namespace

constinit Params g_params = defaults();

const char *Text::c_str() const
{
    return place != 0 ? &kKept.texts[place] : nullptr;
}

const BasicChoice<Text> *Choices::begin() const
{
    return &kKept.choices[first];
}

std::span<const Row> parameters()
{
    return kKept.rows;
}

} // namespace vma::config
