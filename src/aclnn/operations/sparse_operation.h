#ifndef FA_ACLNN_SPARSE_OPERATION_H_
#define FA_ACLNN_SPARSE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/operations/memberwise_operation.h"
#include "aclnn/operations/names.h"
#include "aclnn/operations/sequence_lengths.h"
#include "aclnn/runtime/operands.h"
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
/// Reads both layout strings. Keys have the layout of queries or, if `pages` is not null, lie in pages and have the
/// layout `pages`. Null strings stand for the layout of queries.
[[nodiscard]] Result<SparseLayouts> SparseLayoutsOf(const char* query_name, const char* query, const char* key_name,
                                                    const char* key, const char* pages = "PA_BSND");
/// Returns the mask that a sparseMode means. `name` is the name of the parameter in errors.
[[nodiscard]] Result<SparseMask> SparseMaskOf(int64_t sparse_mode, const char* name = "sparseMode");
/// Checks that `count` is the number of entries of each list in `tensor`.
[[nodiscard]] Status CheckCountOfEntries(const char* count_name, int64_t count, const char* name,
                                         const aclTensor* tensor);

/// A parameter that is a tensor.
struct NamedTensor {
  const char* name = "";
  const aclTensor* tensor = nullptr;
};
/// The tensors of lengths of an operator that has both prefix sums and numbers of rows in use. The members stand in the
/// order of the operator's signature.
struct SequenceLists {
  NamedTensor cu_q, cu_kv, used_q, used_kv, residual_kv;
};

/// An operator of the sparse family. Each aclTensor of the caller becomes one tensor of the library's call, except
/// ignored tensors and tensors of lengths.
///
/// If lengths lie in tensors, the first phase plans for the longest possible lengths. This plan checks everything else
/// and gives the size of the workspace. When the stream executes the call, Run plans again with the lengths that the
/// tensors then hold.
template <typename Args, typename Options>
class SparseOperation final : public MemberwiseOperation<Args, Options> {
  using Base = MemberwiseOperation<Args, Options>;

 public:
  /// @param own  the names of parameters that only this version of the operator has
  SparseOperation(typename Base::Planner planner, Names names, std::span<const Rename> own = {})
      : Base(planner, names, {own.begin(), own.end()}) {}

  /// Adds an input whose type may also be ACL_FLOAT8_E4M3FN.
  void QuantizedInput(const char* name, const aclTensor* tensor, TensorView Args::*member) {
    this->Input(name, tensor, member, Operands::Form::kPages);
  }
  /// Adds the block table, which only keys in pages have.
  void Pages(const char* name, const aclTensor* table, bool paged, const char* pages = "PA_BSND") {
    if (paged) {
      if (table == nullptr) missing_ = std::string(name) + ": missing, want int32 [B,n] (keys are " + pages + ")";
      this->Input(name, table, &Args::block_table);
    } else {
      operands_.Ignored(name, table);
    }
  }
  void LengthsQ(const char* name, const aclTensor* tensor) { lengths_q_ = {name, tensor, operands_}; }
  void LengthsKv(const char* name, const aclTensor* tensor) { lengths_kv_ = {name, tensor, operands_}; }
  void LengthsQ(const char* name, const aclIntArray* array) { lengths_q_ = {name, array}; }
  void LengthsKv(const char* name, const aclIntArray* array) { lengths_kv_ = {name, array}; }

  /// Adds prefix sums with a leading 0, which is not passed to the library.
  void SumsQ(const char* name, const aclTensor* tensor) { SetSums(name, tensor, lengths_q_, sums_q_); }
  void SumsKv(const char* name, const aclTensor* tensor) { SetSums(name, tensor, lengths_kv_, sums_kv_); }
  /// Adds a tensor of integers, one per sequence. The first phase plans without them.
  void Integers(const char* name, const aclTensor* tensor, std::span<const int64_t> Args::*member) {
    integers_.push_back({name, SequenceLengths(name, tensor, operands_), member});
  }

  /// Adds the tensors of lengths. The layouts decide which argument of the library each tensor becomes. Only packed
  /// rows have prefix sums.
  void Sequences(const SequenceLists& of, const SparseLayouts& layouts) {
    const bool sums_q = layouts.layout == Layout::kTND, sums_kv = sums_q && !layouts.paged;
    if (sums_q) SumsQ(of.cu_q.name, of.cu_q.tensor);
    if (sums_kv) SumsKv(of.cu_kv.name, of.cu_kv.tensor);
    if (sums_q) {
      Integers(of.used_q.name, of.used_q.tensor, &Args::used_q);
    } else {
      LengthsQ(of.used_q.name, of.used_q.tensor);
    }
    if (sums_kv) {
      Integers(of.used_kv.name, of.used_kv.tensor, &Args::used_kv);
    } else {
      LengthsKv(of.used_kv.name, of.used_kv.tensor);
    }
    Integers(of.residual_kv.name, of.residual_kv.tensor, &Args::residual_kv);
  }
  /// Reserves `bytes` of the workspace and returns their offset.
  size_t Book(size_t bytes) { return operands_.Book(bytes); }

  [[nodiscard]] Status Prepare() {
    if (!operands_.status().ok()) return operands_.status();
    if (!missing_.empty()) return Status::InvalidArgument(missing_);
    if (!lengths_q_.status().ok()) return lengths_q_.status();
    if (!lengths_kv_.status().ok()) return lengths_kv_.status();
    for (const PerSequence& integers : integers_) {
      if (!integers.list.status().ok()) return integers.list.status();
    }
    Args args = this->TensorsOf(nullptr);
    const Lengths lengths(*this, nullptr, args);
    FA_RETURN_IF_ERROR(lengths.status);
    return this->KeepPlanOf(args);
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    Args args = this->TensorsOf(&memory);
    const Lengths lengths(*this, &memory, args);
    FA_RETURN_IF_ERROR(lengths.status);
    const bool plan_again = lengths_q_.in_tensor() || lengths_kv_.in_tensor() || !lengths.others.empty();
    return this->RunAndScatter(args, memory, plan_again);
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
      others.reserve(operation.integers_.size());  // spans point into `others`, so it must not move
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

  // Returns the number of rows per sequence. If a tensor's shape does not fit its layout, returns 0, and the library
  // refuses the call.
  [[nodiscard]] int64_t RowsOf(const TensorView& tensor) const {
    Layout layout = Layout::kTND;  // operators without a layout have packed rows
    if constexpr (requires { this->options.layout; }) layout = this->options.layout;
    return RowsPerSequence(tensor.shape, layout);
  }
  [[nodiscard]] int64_t KeysOf(const Args& args) const {
    if constexpr (requires { args.block_table; }) {
      if (args.block_table.data != nullptr) return MostPagedKeys(args.k.shape, args.block_table.shape);
    }
    if constexpr (!requires { args.k_index; }) {
      return RowsOf(args.k);
    } else if constexpr (!requires { args.k; }) {
      return RowsOf(args.k_index);
    } else {
      return RowsOf(args.k.data != nullptr ? args.k : args.k_index);
    }
  }
  /// Returns the number of sequences, if it does not depend on contents of tensors. The lengths in `args` must be set.
  [[nodiscard]] std::optional<int64_t> BatchOf(const Args& args) const {
    if (sums_q_ != nullptr) return std::ssize(args.lengths_q);
    if constexpr (requires { this->options.layout; }) {
      const Dims& queries = QueriesOf(args).shape;
      if (this->options.layout == Layout::kBSND && queries.rank() > 0) return queries[0];
    }
    return {};
  }
  /// Returns the queries of the attention, or the indexer's queries if the call has no attention.
  [[nodiscard]] static const TensorView& QueriesOf(const Args& args) {
    if constexpr (!requires { args.q_index; }) {
      return args.q;
    } else if constexpr (!requires { args.q; }) {
      return args.q_index;
    } else {
      return args.q.data != nullptr ? args.q : args.q_index;
    }
  }

  using Base::operands_;

  SequenceLengths lengths_q_, lengths_kv_;
  const char *sums_q_ = nullptr, *sums_kv_ = nullptr;  ///< the name of the lengths if they are sums with a leading 0
  std::vector<PerSequence> integers_;
  std::string missing_;
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_SPARSE_OPERATION_H_
