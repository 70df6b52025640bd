// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of the local device.
#pragma once

namespace vma::ofi {
struct Query;
class InfoList;
} // namespace vma::ofi

namespace vma::local {

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept;

} // namespace vma::local
