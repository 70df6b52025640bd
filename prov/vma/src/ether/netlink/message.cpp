// SPDX-License-Identifier: BSD-2-Clause
#include "ether/netlink/message.hpp"

#include "core/made_once.hpp"

namespace vma::ether {

namespace {

struct Loaded {
    Mnl table{};
    bool is_whole = load();

    bool load()
    {
        const core::Library library("libmnl.so.0", "the network's configuration can't be read");
        return true VMA_MNL_FUNCTIONS(VMA_LIBRARY_FIND);
    }
};

// The process's; it doesn't change once it is loaded, so it needs no lock.
constinit core::MadeOnce<Loaded> g_loaded;

} // namespace

const Mnl *mnl() noexcept
{
    const Loaded &loaded = g_loaded.get();
    return loaded.is_whole ? &loaded.table : nullptr;
}

Attributes::Attributes(NetlinkBytes bytes) noexcept
{
    const auto keep = [](const nlattr *attribute, void *values) {
        const unsigned type = mnl()->type(attribute);
        if (type < kTypes)
            static_cast<NetlinkBytes *>(values)[type] = {static_cast<const std::uint8_t *>(mnl()->value(attribute)),
                                                         mnl()->value_size(attribute)};
        return MNL_CB_OK;
    };
    if (mnl() != nullptr)
        (void)mnl()->parse(bytes.data(), bytes.size(), keep, values_.data());
}

} // namespace vma::ether
