#include "aclnn/operations/sparse_operation.h"

#include <string>
#include <string_view>

#include "aclnn/runtime/descriptors.h"

namespace fa::aclnn {

Result<Layout> SparseLayoutOf(const char* name, const char* layout) {
  if (layout == nullptr) return Layout::kBSND;
  for (const Layout known : {Layout::kBSND, Layout::kTND}) {
    if (std::string_view(layout) == Name(known)) return known;
  }
  return Status::InvalidArgument(std::string(name) + "=\"" + layout + "\", want \"BSND\" or \"TND\"");
}

Result<SparseLayouts> SparseLayoutsOf(const char* query_name, const char* query, const char* key_name, const char* key,
                                      const char* pages) {
  const auto layout = SparseLayoutOf(query_name, query);
  if (!layout.ok()) return layout.status();
  if (key == nullptr || std::string_view(key) == Name(*layout)) return SparseLayouts{.layout = *layout};
  if (pages != nullptr && std::string_view(key) == pages) return SparseLayouts{.layout = *layout, .paged = true};
  std::string text = std::string(key_name) + "=\"" + key + "\", want \"" + Name(*layout) + "\" (" + query_name + ")";
  if (pages != nullptr) text.append(" or \"").append(pages).append("\"");
  return Status::InvalidArgument(text);
}

Result<SparseMask> SparseMaskOf(int64_t sparse_mode, const char* name) {
  for (const SparseMask mask : {SparseMask::kNone, SparseMask::kRightDownCausal}) {
    if (sparse_mode == static_cast<int64_t>(mask)) return mask;
  }
  return Status::InvalidArgument(std::string(name) + "=" + std::to_string(sparse_mode) + ", want 0 or 3");
}

Status CheckCountOfEntries(const char* count_name, int64_t count, const char* name, const aclTensor* tensor) {
  const auto found = FindTensor(tensor);
  if (found == nullptr || found->shape.rank() == 0 || found->shape.rank() > Dims::kMaxRank) return Status::Ok();
  const int last = found->shape.rank() - 1;
  if (found->shape[last] == count) return Status::Ok();
  return Status::InvalidArgument(std::string(count_name) + "=" + std::to_string(count) + ", want " +
                                 std::to_string(found->shape[last]) + " (" + name + ".shape[" + std::to_string(last) +
                                 "])");
}

}  // namespace fa::aclnn
