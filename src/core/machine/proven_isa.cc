#include "core/machine/proven_isa.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>

#include "core/fp_environment.h"
#include "core/kernels/proof/proof.h"
#include "core/kernels/tile_use.h"

namespace fa::core {
namespace {

using kernels::Disproof;

/// What is wrong with the kernels that `level` adds to those of `below`, the level under it; empty: nothing.
std::string DisproofOf(Isa level, Isa below, const KernelSource& source) {
  std::string wrong;
  if (const auto& floats = source.floats(level, DType::kF32); floats.isa == level) {
    wrong = Disproof(floats, source.floats(below, DType::kF32));
  }
  if (const auto& pairs = source.floats(level, DType::kBF16); wrong.empty() && pairs.isa == level && pairs.pairs()) {
    wrong = Disproof(pairs, source.floats(level, DType::kF32));
  }
  if (const auto& int8 = source.int8(level); wrong.empty() && int8.isa == level) {
    wrong = Disproof(int8, source.int8(below));
  }
  if (const auto& indexer = source.indexer(level); wrong.empty() && indexer.isa == level) {
    wrong = Disproof(indexer, source.indexer(below));
  }
  return wrong;
}

}  // namespace

bool IsUnproven(Isa isa) { return Includes(isa, Isa::kNeon) || isa == Isa::kAvx512Amx || isa == Isa::kAmxEmulated; }

ProvenIsa Prove(Isa wanted, const KernelSource& source) {
  const FpEnvironment environment;
  const kernels::TileScope tiles;
  Isa below = Isa::kPortable;
  for (const Isa level : AllIsas()) {
    if (level == Isa::kPortable || !Includes(wanted, level)) continue;
    if (level == Isa::kAmxEmulated && level != wanted) continue;  // every CPU has it, none needs it
    if (source.unproven(level)) {
      const std::string wrong = DisproofOf(level, below, source);
      if (!wrong.empty()) {
        return {below, std::string(Name(level)) + ", for its " + wrong + " are wrong on this CPU; " + Name(below) +
                           " is used"};
      }
    }
    below = level;
  }
  return {wanted};
}

const ProvenIsa& ProvenLevel(Isa wanted) {
  // Not a static that one thread makes while others wait: in a child forked meanwhile they would wait for ever.
  static constinit std::array<std::atomic<const ProvenIsa*>, 16> proven{};
  std::atomic<const ProvenIsa*>& known = proven[static_cast<size_t>(wanted)];
  if (const ProvenIsa* made = known.load(std::memory_order_acquire); made != nullptr) return *made;
  auto own = std::make_unique<const ProvenIsa>(Prove(wanted, {.unproven = IsUnproven}));
  const ProvenIsa* first = nullptr;
  if (!known.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel)) return *first;
  if (!own->note.empty()) std::fprintf(stderr, "fa: not used: %s\n", own->note.c_str());
  return *own.release();
}

}  // namespace fa::core
