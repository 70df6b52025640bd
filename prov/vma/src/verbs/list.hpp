// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of the RDMA devices.
#pragma once

namespace vma::ofi {
struct Query;
class InfoList;
} // namespace vma::ofi

namespace vma::verbs {

void list_infos(const ofi::Query &query, ofi::InfoList &list) noexcept;

} // namespace vma::verbs
