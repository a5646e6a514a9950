// result_hashes [FIRST_SEED [CASES]] prints one line per random call, per level of this CPU and per number of threads.
// The line has a hash of all bytes of the outputs, and a hash of the text of the plan. If two builds print the same
// lines, they give the same bits.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/calls/families.h"
#include "fuzz/calls/moved_tensors.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

/// Computes the hash FNV-1a.
class Hash {
 public:
  void Add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) value_ = (value_ ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3U;
  }
  void Add(std::string_view text) { Add(text.data(), text.size()); }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Add(T number) { Add(&number, sizeof number); }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325U;
};

uint64_t HashOfOutputs(FuzzCall& call, Context* context) {
  call.TakeSnapshot().Forget();
  call.RestoreInputs();
  Hash hash;
  hash.Add(call.Run(context, {}).message());
  for (const TensorField& field : call.Tensors()) {
    if (!field.is_output() || field.absent()) continue;
    const std::vector<std::byte> elements = ElementsOf(field.view());
    hash.Add(elements.data(), elements.size());
  }
  return hash.value();
}

uint64_t HashOfPlan(const FuzzCall& call, Context* context) {
  Hash hash;
  const std::optional<Result<Plan>> plan = call.MakePlan(context);
  if (!plan || !plan->ok()) return hash.value();
  const PlanInfo info = (*plan)->info();
  hash.Add((*plan)->Describe());
  hash.Add(info.op);
  hash.Add(info.isa);
  hash.Add(info.reason);
  for (const std::string& kernel : info.kernels) hash.Add(kernel);
  for (const int64_t number : {info.block_q, info.block_k, info.tasks, info.edges, int64_t{info.workers}}) {
    hash.Add(number);
  }
  for (const double number : {info.flops, info.flops_full, info.flops_visited, info.efficiency}) hash.Add(number);
  hash.Add(info.workspace_bytes);
  for (const double load : info.load) hash.Add(load);
  for (const PlanTile& tile : info.tiles) {
    for (const int64_t number : {tile.batch, tile.head_kv, tile.head_begin, tile.head_end, tile.row_begin, tile.row_end,
                                 tile.key_begin, tile.key_end, tile.cost, int64_t{tile.worker}}) {
      hash.Add(number);
    }
  }
  return hash.value();
}

void PrintHashes(uint64_t first, uint64_t cases) {
  for (const Family& family : kFamilies) {
    for (uint64_t seed = first; seed < first + cases; ++seed) {
      const std::unique_ptr<FuzzCall> call = family.make(seed);
      for (const Isa isa : IsaLevels()) {
        for (const int threads : {1, 3}) {
          Context* context = ContextOf(isa, threads);
          std::printf("%s %" PRIu64 " %s %d outputs %016" PRIx64 " plan %016" PRIx64 "\n", family.name, seed, Name(isa),
                      threads, HashOfOutputs(*call, context), HashOfPlan(*call, context));
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa::test

int main(int argc, char** argv) {
  fa::test::PrintHashes(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1,
                        argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100);
  return 0;
}
