#include "flags/flag_names.h"

#include <algorithm>

namespace fa::tool {
namespace {

constexpr FlagName kFlags[] = {
    {"q", "--query"},
    {"k", "--key"},
    {"v", "--value"},
    {"q_rope", "--query-rope"},
    {"k_rope", "--key-rope"},
    {"q_index", "--query-index"},
    {"k_index", "--key-index"},
    {"mask", "--sparse-mode"},
    {"mask.pre", "--pre-tokens"},
    {"mask.next", "--next-tokens"},
    {"mask.prefix", "--prefix"},
    {"dense_mask", "--atten-mask"},
    {"pair_mask", "--block-mask"},
    {"heads", "--head-num"},
    {"cu_q", "--actual-seq-qlen"},
    {"cu_kv", "--actual-seq-kvlen"},
    {"lengths_q", "--actual-seq-lengths"},
    {"lengths_kv", "--actual-seq-lengths-kv"},
    {"dropout", "--seed"},
    {"d_out", "--dout"},
    {"shards.intervals", "--cut"},
    {"shards.strategy", "--strategy"},
    {"shards.heads_in_flight", "--heads-in-flight"},
    {"machines.ranks", "--ranks"},
};

}  // namespace

std::span<const FlagName> SharedFlagNames() { return kFlags; }

const char* FindFlag(std::string_view argument, std::span<const FlagName> names) {
  for (const std::span<const FlagName> table : {names, SharedFlagNames()}) {
    for (const auto& [name, flag] : table) {
      if (name == argument) return flag;
    }
  }
  return nullptr;
}

std::string FlagOf(std::string_view argument, std::span<const FlagName> names) {
  if (const char* flag = FindFlag(argument, names); flag != nullptr) return flag;
  std::string flag = "--" + std::string(argument);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::span<const FlagName> InferenceFlagNames() {
  static constexpr FlagName kNames[] = {
      {"cu_q", "--actual-seq-lengths"},
      {"cu_kv", "--actual-seq-lengths-kv"},
      {"out.dtype", "--out-dtype"},
  };
  return kNames;
}

std::span<const FlagName> SparseFlagNames() {
  static constexpr FlagName kNames[] = {
      {"lengths_q", "--actual-seq-qlen"},
      {"lengths_kv", "--actual-seq-kvlen"},
      {"block_size", "--sparse-block-size"},
      {"d_values", "--dvalues"},
      {"dweights", "--dw"},
      {"q_scale", "--query-scale"},
      {"k_scale", "--key-scale"},
      {"row_format", "--tile"},
      {"row_format.tile", "--tile"},
      {"row_format.rope", "--rope-columns"},
      {"row_format.columns", "--rope-columns"},
  };
  return kNames;
}

std::span<const FlagName> SharedKvFlagNames() {
  static constexpr FlagName kNames[] = {
      {"cu_q", "--cu-q"}, {"row_format.tile", "--tile"}, {"row_format.rope", "--rope-columns"}};
  return kNames;
}

}  // namespace fa::tool
