#include "aclnn/operations/sparse_operation.h"

#include <string>
#include <string_view>

namespace fa::aclnn {

Result<Layout> SparseLayoutOf(const char* name, const char* layout) {
  if (layout == nullptr) return Layout::kBSND;
  for (const Layout known : {Layout::kBSND, Layout::kTND}) {
    if (std::string_view(layout) == Name(known)) return known;
  }
  return Status::InvalidArgument(std::string(name) + "=\"" + layout + "\", want \"BSND\" or \"TND\"");
}

Result<SparseLayouts> SparseLayoutsOf(const char* query_name, const char* query, const char* key_name,
                                      const char* key) {
  const auto layout = SparseLayoutOf(query_name, query);
  if (!layout.ok()) return layout.status();
  if (key == nullptr || std::string_view(key) == Name(*layout)) return SparseLayouts{.layout = *layout};
  if (std::string_view(key) == "PA_BSND") return SparseLayouts{.layout = *layout, .paged = true};
  return Status::InvalidArgument(std::string(key_name) + "=\"" + key + "\", want \"" + Name(*layout) + "\" (" +
                                 query_name + ") or \"PA_BSND\"");
}

Result<SparseMask> SparseMaskOf(int64_t sparse_mode) {
  for (const SparseMask mask : {SparseMask::kNone, SparseMask::kRightDownCausal}) {
    if (sparse_mode == static_cast<int64_t>(mask)) return mask;
  }
  return Status::InvalidArgument("sparseMode=" + std::to_string(sparse_mode) + ", want 0 or 3");
}

}  // namespace fa::aclnn
