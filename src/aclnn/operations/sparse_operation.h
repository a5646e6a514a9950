#ifndef FA_ACLNN_SPARSE_OPERATION_H_
#define FA_ACLNN_SPARSE_OPERATION_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/operations/attention_call.h"
#include "aclnn/operations/planned_operation.h"
#include "aclnn/operations/sequence_lengths.h"
#include "aclnn/runtime/operands.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// The meaning of an operator's two layout strings.
struct SparseLayouts {
  Layout layout = Layout::kBSND;
  bool paged = false;  ///< whether keys lie in pages
};
/// Returns the layout that "BSND" or "TND" names. Null stands for "BSND".
[[nodiscard]] Result<Layout> SparseLayoutOf(const char* name, const char* layout);
/// Reads both layout strings. Keys have the layout of queries, or lie in pages and have the layout `pages`. Null stands
/// for the layout of queries.
[[nodiscard]] Result<SparseLayouts> SparseLayoutsOf(const char* query_name, const char* query, const char* key_name,
                                                    const char* key, const char* pages = "PA_BSND");
/// Returns the mask that a sparseMode means, which the parameter `name` holds.
[[nodiscard]] Result<SparseMask> SparseMaskOf(int64_t sparse_mode, const char* name = "sparseMode");
/// Checks that a count is the number of entries per list of a tensor.
[[nodiscard]] Status CheckCountOfEntries(const char* count_name, int64_t count, const char* name,
                                         const aclTensor* tensor);

/// An operator of the sparse family. Each aclTensor of the caller becomes one tensor of the library's call, except
/// ignored tensors and tensors of lengths.
///
/// If lengths lie in tensors, the first phase plans for the longest possible lengths. This plan checks everything else
/// and gives the size of the workspace. When the stream executes the call, Run plans again with the lengths that the
/// tensors then hold.
template <typename Args, typename Options>
class SparseOperation final : public PlannedOperation<Args> {
 public:
  using Planner = Result<PlanFor<Args>> (*)(const Args&, const Options&, Context*);

  /// @param own  the names of parameters that only this version of the operator has
  SparseOperation(Planner planner, Names names, std::span<const Rename> own = {})
      : PlannedOperation<Args>(Operands(), names, {own.begin(), own.end()}), planner_(planner) {}

  // Adds an input. Parameters are added in the order of the operator's signature. A null tensor is absent.
  void Input(const char* name, const aclTensor* tensor, TensorView Args::*member,
             Operands::Form form = Operands::Form::kRows) {
    inputs_.emplace_back(operands_.Input(name, tensor, form), member);
  }
  /// Adds an input whose type may also be ACL_FLOAT8_E4M3FN.
  void QuantizedInput(const char* name, const aclTensor* tensor, TensorView Args::*member) {
    Input(name, tensor, member, Operands::Form::kPages);
  }
  void Ignored(const char* name, const aclTensor* tensor) { operands_.Ignored(name, tensor); }
  void Output(const char* name, const aclTensor* tensor, MutableTensorView Args::*member) {
    outputs_.emplace_back(operands_.Output(name, tensor), member);
  }
  /// Adds an output that the call wants; otherwise ignores the tensor.
  void OutputIf(bool wanted, const char* name, const aclTensor* tensor, MutableTensorView Args::*member) {
    if (wanted) {
      Output(name, tensor, member);
    } else {
      operands_.Ignored(name, tensor, /*output=*/true);
    }
  }
  /// Adds the block table, which only keys in pages have.
  void Pages(const char* name, const aclTensor* table, bool paged, const char* pages = "PA_BSND") {
    if (paged) {
      if (table == nullptr) missing_ = std::string(name) + ": missing, want int32 [B,n] (keys are " + pages + ")";
      Input(name, table, &Args::block_table);
    } else {
      operands_.Ignored(name, table);
    }
  }
  void LengthsQ(const char* name, const aclTensor* tensor) { lengths_q_ = {name, tensor, operands_}; }
  void LengthsKv(const char* name, const aclTensor* tensor) { lengths_kv_ = {name, tensor, operands_}; }
  void LengthsQ(const char* name, const aclIntArray* array) { lengths_q_ = {name, array}; }
  void LengthsKv(const char* name, const aclIntArray* array) { lengths_kv_ = {name, array}; }

  /// Adds prefix sums with a leading 0. LengthsQ or LengthsKv then drop it.
  void SumsQ(const char* name, const aclTensor* tensor) { SetSums(name, tensor, lengths_q_, sums_q_); }
  void SumsKv(const char* name, const aclTensor* tensor) { SetSums(name, tensor, lengths_kv_, sums_kv_); }
  /// Adds a tensor of integers, one per sequence. The first phase plans without them.
  void Integers(const char* name, const aclTensor* tensor, std::span<const int64_t> Args::*member) {
    integers_.push_back({name, SequenceLengths(name, tensor, operands_), member});
  }

  Options options;

  [[nodiscard]] Status Prepare() {
    if (!operands_.status().ok()) return operands_.status();
    if (!missing_.empty()) return Status::InvalidArgument(missing_);
    if (!lengths_q_.status().ok()) return lengths_q_.status();
    if (!lengths_kv_.status().ok()) return lengths_kv_.status();
    for (const PerSequence& integers : integers_) {
      if (!integers.list.status().ok()) return integers.list.status();
    }
    Args args = TensorsOf(nullptr);
    const Lengths lengths(*this, nullptr, args);
    FA_RETURN_IF_ERROR(lengths.status);
    return this->Keep(planner_(args, options, nullptr));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    Args args = TensorsOf(&memory);
    const Lengths lengths(*this, &memory, args);
    FA_RETURN_IF_ERROR(lengths.status);
    const bool plan_again = lengths_q_.in_tensor() || lengths_kv_.in_tensor() || !lengths.others.empty();
    Status status =
        plan_again ? this->RunOtherPlan(planner_(args, options, nullptr), args, memory) : this->RunPlan(args, memory);
    if (!status.ok()) return status;
    operands_.ScatterOutputs(memory);
    return status;
  }

 private:
  // Owns the arrays of lengths to which `args` refers.
  struct Lengths {
    Lengths(const SparseOperation& operation, const CallMemory* memory, Args& args)
        : q(operation.lengths_q_.Values(operation.RowsOf(QueriesOf(args)), operation.operands_, memory)),
          kv(operation.lengths_kv_.Values(operation.KeysOf(args), operation.operands_, memory)) {
      status = DropZeros(operation, memory != nullptr, args);
      args.lengths_q = q;
      args.lengths_kv = kv;
      others.reserve(operation.integers_.size());  // spans point into the lists
      for (const auto& [name, list, member] : operation.integers_) {
        if (!list.in_tensor() || !status.ok()) continue;
        std::vector<int64_t> values = list.Values(0, operation.operands_, memory);
        if (const auto batch = operation.BatchOf(args); batch && std::ssize(values) != *batch) {
          status = WrongCount(name, std::ssize(values), *batch, "batch");
        }
        if (memory != nullptr) args.*member = others.emplace_back(std::move(values));
      }
    }
    [[nodiscard]] Status DropZeros(const SparseOperation& operation, bool known, const Args& args) {
      const char *of_q = operation.sums_q_, *of_kv = operation.sums_kv_;
      if (of_q != nullptr) FA_RETURN_IF_ERROR(DropLeadingZero(of_q, known, operation.RowsOf(QueriesOf(args)), q));
      if (of_kv != nullptr) FA_RETURN_IF_ERROR(DropLeadingZero(of_kv, known, operation.KeysOf(args), kv));
      if (of_q == nullptr || of_kv == nullptr || kv.size() == q.size()) return Status::Ok();
      return WrongCount(of_kv, std::ssize(kv) + 1, std::ssize(q) + 1, of_q);
    }
    [[nodiscard]] static Status WrongCount(const char* name, int64_t got, int64_t want, const char* source) {
      return Status::InvalidArgument(std::string(name) + " has " + std::to_string(got) + " entries, want " +
                                     std::to_string(want) + " (" + source + ")");
    }
    std::vector<int64_t> q, kv;
    std::vector<std::vector<int64_t>> others;
    Status status;
  };

  /// A tensor of integers, one per sequence.
  struct PerSequence {
    const char* name;
    SequenceLengths list;
    std::span<const int64_t> Args::*member;
  };

  void SetSums(const char* name, const aclTensor* tensor, SequenceLengths& lengths, const char*& sums) {
    lengths = {name, tensor, operands_};
    if (tensor != nullptr) sums = name;
  }

  [[nodiscard]] Args TensorsOf(const CallMemory* memory) const {
    Args args;
    for (const auto& [slot, member] : inputs_) args.*member = operands_.In(slot, memory);
    for (const auto& [slot, member] : outputs_) args.*member = operands_.Out(slot, memory);
    return args;
  }

  // Returns the number of rows per sequence. If a tensor's shape does not fit its layout, returns 0, and the library
  // refuses the call.
  [[nodiscard]] int64_t RowsOf(const TensorView& tensor) const {
    int dim = 0;  // operators without a layout have packed rows
    if constexpr (requires { options.layout; }) dim = options.layout == Layout::kTND ? 0 : 1;
    return tensor.shape.rank() > dim ? std::max<int64_t>(tensor.shape[dim], 0) : 0;
  }
  [[nodiscard]] int64_t KeysOf(const Args& args) const {
    if constexpr (requires { args.block_table; }) {
      const Dims &pages = args.k.shape, &table = args.block_table.shape;
      int64_t keys = 0;
      if (args.block_table.data != nullptr) {
        const bool known = pages.rank() > 1 && table.rank() > 1 && !__builtin_mul_overflow(pages[1], table[1], &keys);
        // no sequence has more keys than an int32 can count
        return known ? std::clamp<int64_t>(keys, 0, std::numeric_limits<int32_t>::max()) : 0;
      }
    }
    if constexpr (requires { args.k; }) {
      return RowsOf(args.k);
    } else {
      return RowsOf(args.k_index);
    }
  }
  /// Returns the number of sequences, if it does not depend on contents of tensors. `args` has its lengths.
  [[nodiscard]] std::optional<int64_t> BatchOf(const Args& args) const {
    if (sums_q_ != nullptr) return std::ssize(args.lengths_q);
    if constexpr (requires { options.layout; }) {
      const Dims& queries = QueriesOf(args).shape;
      if (options.layout == Layout::kBSND && queries.rank() > 0) return queries[0];
    }
    return {};
  }
  /// Returns the queries of the attention, or the indexer's queries if the operator has no attention.
  [[nodiscard]] static const TensorView& QueriesOf(const Args& args) {
    if constexpr (requires { args.q; }) {
      return args.q;
    } else {
      return args.q_index;
    }
  }

  using Operation::operands_;

  Planner planner_;
  std::vector<std::pair<Operands::Slot, TensorView Args::*>> inputs_;
  std::vector<std::pair<Operands::Slot, MutableTensorView Args::*>> outputs_;
  SequenceLengths lengths_q_, lengths_kv_;
  const char *sums_q_ = nullptr, *sums_kv_ = nullptr;  ///< the name of the lengths if they are sums with a leading 0
  std::vector<PerSequence> integers_;
  std::string missing_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_SPARSE_OPERATION_H_
