#ifndef FA_PLAN_H_
#define FA_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/status.h"

namespace fa {

struct AttentionArgs;
struct AttentionGradArgs;
struct PromptAttentionArgs;
struct DecodeAttentionArgs;
struct SparseAttentionArgs;
struct SparseAttentionGradArgs;
struct LightningIndexerArgs;
struct LightningIndexerGradArgs;
struct SparseIndexerLossArgs;
struct DenseIndexerLossArgs;

/// The tensors of a call of any operator, by reference.
class CallArgs {
 public:
  using Any = std::variant<const AttentionArgs*, const AttentionGradArgs*, const PromptAttentionArgs*,
                           const DecodeAttentionArgs*, const SparseAttentionArgs*, const SparseAttentionGradArgs*,
                           const LightningIndexerArgs*, const LightningIndexerGradArgs*, const SparseIndexerLossArgs*,
                           const DenseIndexerLossArgs*>;
  template <typename Args>
  requires std::is_constructible_v<Any, const Args*> CallArgs(const Args& args)
      : any_(&args) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] const Any& any() const { return any_; }

 private:
  Any any_;
};

/// Memory for one Run at a time; grows to what the plan wants and is reused. Not for concurrent calls.
class FA_API Workspace {
 public:
  Workspace() = default;
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// At least `bytes`, 64-byte aligned. Contents are not kept when it grows. @return kOutOfMemory
  Status Reserve(size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// One block of work in a plan: rows of one query head (or of folded heads) against an interval of keys.
struct PlanTile {
  int64_t batch = 0;
  int64_t head_kv = 0;
  int64_t head_begin = 0, head_end = 0;  ///< query heads
  int64_t row_begin = 0, row_end = 0;    ///< query rows of the sequence
  int64_t key_begin = 0, key_end = 0;    ///< keys visited
  int64_t cost = 0;                      ///< key blocks visited; 0 = the rows are only written
  int worker = 0;                        ///< whose range it starts in; backward: who runs it in the simulation
};

/// What will run and why.
struct PlanInfo {
  std::string op;                    ///< "forward"
  std::string isa;                   ///< level of the kernels
  std::vector<std::string> kernels;  ///< registry names, in order of use
  std::string reason;                ///< why this tile shape, in words
  int64_t block_q = 0, block_k = 0;  ///< rows and keys of a tile
  int64_t tasks = 0, edges = 0;      ///< of the task graph
  int workers = 0;
  double flops = 0;          ///< of kept pairs
  double flops_full = 0;     ///< were nothing masked
  double flops_visited = 0;  ///< of the pairs in visited blocks, after clipping
  size_t workspace_bytes = 0;
  std::vector<double> load;  ///< predicted busy share of each worker, 1 = the longest
  double efficiency = 0;     ///< simulated: work / (workers * makespan)
  std::vector<PlanTile> tiles;
};

/// A validated call, tiled and booked: a pure function of shapes, options and context, made once and run often.
/// Immutable; Run is const and may be called from many threads at once, each call with its own Workspace. The
/// context it was made with must outlive it.
class FA_API Plan {
 public:
  class Impl;
  explicit Plan(std::shared_ptr<const Impl> impl);

  /// Runs on tensors of exactly the planned shapes, strides, types and lengths. Allocates nothing from the second
  /// call with the same workspace on.
  /// @param args  the XArgs of the operator that the plan was made for
  /// @return kInvalidArgument (a tensor differs from the plan, null data, overlapping output), kOutOfMemory
  Status Run(CallArgs args, Workspace& workspace) const;
  /// As above, in memory of the caller's: workspace_bytes(), 64-byte aligned.
  Status Run(CallArgs args, std::span<std::byte> workspace) const;
  /// As above, with a workspace of the context's pool.
  Status Run(CallArgs args) const;

  [[nodiscard]] size_t workspace_bytes() const;
  [[nodiscard]] PlanInfo info() const;
  /// The plan in words: kernels, tile shape and why, tasks, FLOPs, memory, load of each worker.
  [[nodiscard]] std::string Describe() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace fa

#endif  // FA_PLAN_H_
