#include "support/cases/call_fields.h"

#include <string>
#include <type_traits>

#include "ops/bind/tensor_members.h"

namespace fa::test {
namespace {

/// Adds the fields of a list of tensors, such as keys: "k[0]", "k[1]", ...
void AddList(const char* name, std::span<const TensorView> views, std::vector<TensorField>* fields) {
  for (size_t b = 0; b < views.size(); ++b) {
    fields->emplace_back(std::string(name) + "[" + std::to_string(b) + "]", const_cast<TensorView*>(&views[b]));
  }
}

/// Returns the total size in bytes of the members of Args for which Fields has a field, and of the pair mask, which has
/// tests of its own.
template <typename Args>
constexpr size_t BytesOfFields() {
  size_t bytes = 0;
  for (const auto& member : ops::TensorMembers<Args>()) {
    bytes += member.input != nullptr ? sizeof(TensorView) : sizeof(MutableTensorView);
  }
  if constexpr (requires(Args args) { args.pair_mask; }) bytes += sizeof(const PairMask*);
  if constexpr (requires(Args args) { args.lengths_kv; }) bytes += 2 * sizeof(std::span<const int64_t>);
  if constexpr (requires(Args args) { args.residual_kv; }) bytes += 3 * sizeof(std::span<const int64_t>);
  if constexpr (requires(Args args) { args.cu_kv; }) bytes += 2 * sizeof(std::span<const int64_t>);
  if constexpr (std::is_base_of_v<DecodeAttentionArgs, Args>) {
    // The span of numbers is cu_q of a decode. In fused inference cu_q is counted with cu_kv, and the span of numbers
    // is length_prefix.
    bytes += sizeof(std::span<const int64_t>) + 3 * sizeof(std::span<const TensorView>);
  }
  if constexpr (requires(Args args) { args.cmp_residual; }) bytes += 7 * sizeof(std::span<const int64_t>);
  if constexpr (requires(Args args) { args.start_loc; }) bytes += sizeof(std::span<const int64_t>);
  if constexpr (std::is_same_v<Args, MergeByLseArgs>) bytes += 2 * sizeof(std::span<const TensorView>);
  return bytes;
}

template <typename Args>
CallFields Fields(Args* args) {
  static_assert(sizeof(Args) == BytesOfFields<Args>(), "a member of the arguments is missing in tensor_members.h");
  CallFields fields;
  for (const auto& [name, input, output, required] : ops::TensorMembers<Args>()) {
    if (input != nullptr) {
      fields.tensors.emplace_back(name, &(args->*input));
    } else {
      fields.tensors.emplace_back(name, &(args->*output));
    }
  }
  if constexpr (requires { args->lengths_kv; }) {
    fields.lengths.insert(fields.lengths.end(), {{"lengths_q", &args->lengths_q}, {"lengths_kv", &args->lengths_kv}});
  }
  if constexpr (requires { args->residual_kv; }) {
    fields.lengths.insert(
        fields.lengths.end(),
        {{"used_q", &args->used_q}, {"used_kv", &args->used_kv}, {"residual_kv", &args->residual_kv}});
  }
  if constexpr (requires { args->cu_kv; }) {
    fields.lengths.insert(fields.lengths.end(), {{"cu_q", &args->cu_q}, {"cu_kv", &args->cu_kv}});
  }
  if constexpr (requires { args->cmp_residual; }) {
    fields.lengths.insert(fields.lengths.end(), {{"cu_q", &args->cu_q},
                                                 {"cu_ori", &args->cu_ori},
                                                 {"cu_cmp", &args->cu_cmp},
                                                 {"used_q", &args->used_q},
                                                 {"used_ori", &args->used_ori},
                                                 {"used_cmp", &args->used_cmp},
                                                 {"cmp_residual", &args->cmp_residual}});
  }
  if constexpr (requires { args->start_loc; }) fields.lengths.push_back({"start_loc", &args->start_loc});
  if constexpr (std::is_same_v<Args, DecodeAttentionArgs>) fields.lengths.push_back({"cu_q", &args->cu_q});
  if constexpr (requires { args->length_prefix; }) fields.lengths.push_back({"length_prefix", &args->length_prefix});
  if constexpr (std::is_base_of_v<DecodeAttentionArgs, Args>) {
    AddList("k", args->k, &fields.tensors);
    AddList("v", args->v, &fields.tensors);
    AddList("k_rope", args->k_rope, &fields.tensors);
  }
  if constexpr (std::is_same_v<Args, MergeByLseArgs>) {
    AddList("lse", args->lse, &fields.tensors);
    AddList("local_out", args->local_out, &fields.tensors);
  }
  return fields;
}

}  // namespace

#define FA_FIELDS_OF(name, function, Args, Options, text) \
  CallFields FieldsOf(Args* args) { return Fields(args); }
FA_OPERATORS(FA_FIELDS_OF)
#undef FA_FIELDS_OF

}  // namespace fa::test
