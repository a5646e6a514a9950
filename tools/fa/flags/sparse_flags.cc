#include "flags/sparse_flags.h"

#include <fmt/format.h>

#include "flags/flag_values.h"

namespace fa::tool {
namespace {

void AddTileFlags(CLI::App& command, SparseFlags& flags, const char* text) {
  CLI::Option* tile = command.add_option("--tile", flags.tile, text)->type_name("N");
  command.add_option("--rope-columns", flags.rope_columns, "With --tile: rope columns of a row; default: 0")
      ->type_name("N")
      ->needs(tile);
}

}  // namespace

Layout SparseLayout(const SparseFlags& flags) {
  const Layout layout = ParseLayout(flags.layout);
  if (layout == Layout::kBSND || layout == Layout::kTND) return layout;
  throw UsageError(fmt::format("--layout: {}, want BSND or TND", flags.layout));
}

SparseMask MaskOf(const SparseFlags& flags) {
  for (const SparseMask mask : {SparseMask::kNone, SparseMask::kRightDownCausal}) {
    if (flags.sparse_mode == static_cast<int64_t>(mask)) return mask;
  }
  throw UsageError(fmt::format("--sparse-mode: {}, want 0 or 3", flags.sparse_mode));
}

int64_t KeyTileOf(const SparseFlags& flags) {
  if (flags.tile && *flags.tile < 1) throw UsageError(fmt::format("--tile: {}, want at least 1", *flags.tile));
  return flags.tile.value_or(0);
}

SparseMask RangeMaskOf(const char* flag, int64_t mask, bool band) {
  for (const SparseMask value : {SparseMask::kNone, SparseMask::kRightDownCausal, SparseMask::kBand}) {
    if (mask == static_cast<int64_t>(value) && (band || value != SparseMask::kBand)) return value;
  }
  throw UsageError(fmt::format("{}: {}, want {}", flag, mask, band ? "0, 3 or 4" : "0 or 3"));
}

int64_t CountOf(const SparseFlags& flags) {
  if (flags.sparse_count < 1) throw UsageError(fmt::format("--sparse-count: {}, want at least 1", flags.sparse_count));
  return flags.sparse_count;
}

LossReduction ReductionOf(const SparseFlags& flags) {
  if (flags.reduction == "mean") return LossReduction::kMean;
  if (flags.reduction == "sum") return LossReduction::kSum;
  throw UsageError(fmt::format("--reduction: '{}', want sum or mean", flags.reduction));
}

IndexerTarget TargetOf(const SparseFlags& flags) {
  if (flags.target == "l1") return IndexerTarget::kL1;
  if (flags.target == "head-mean") return IndexerTarget::kHeadMean;
  if (flags.target == "given") return IndexerTarget::kGiven;
  throw UsageError(fmt::format("--target: '{}', want head-mean, l1 or given", flags.target));
}

void AddSequenceFlags(CLI::App& command, SparseFlags& flags) {
  command.add_option("--layout", flags.layout, "Layout of all tensors; default: BSND")->type_name("BSND|TND");
  command.add_option("--dtype", flags.dtype, "bf16: uint16 files are bf16 bits; f16 and f32 are known from the file")
      ->type_name("f32|f16|bf16");
  command.add_option("--sparse-mode", flags.sparse_mode, "3 (default): causal to the last key; 0: all keys")
      ->type_name("N");
  command
      .add_option("--actual-seq-qlen", flags.actual_seq_qlen,
                  "Queries in use: TND inclusive prefix sums, BSND of each batch element")
      ->type_name("N,N,...");
  command
      .add_option("--actual-seq-kvlen", flags.actual_seq_kvlen,
                  "Keys in use, in the same form; keys in pages: of each batch element")
      ->type_name("N,N,...");
}

void AddSharedKvRowFlags(CLI::App& command, SparseFlags& flags) {
  AddTileFlags(command, flags,
               "Keys are rows of uint8: rope columns, e4m3 numbers, a scale of one byte (e8m0) per N numbers");
}

void AddSharedKvFlags(CLI::App& command, SparseFlags& flags) {
  SharedKvFlags& shared = flags.shared;
  command.add_option("--layout", flags.layout, "Layout of all tensors; default: BSND")->type_name("BSND|TND");
  command.add_option("--dtype", flags.dtype, "bf16: uint16 files are bf16 bits; f16 and f32 are known from the file")
      ->type_name("f32|f16|bf16");
  const auto list = [&](const char* flag, std::string& to, const char* text) {
    command.add_option(flag, to, text)->type_name("N,N,...");
  };
  list("--cu-q", shared.cu_q, "TND: inclusive prefix sums of the queries");
  list("--cu-ori", shared.cu_ori, "Likewise, of the original keys");
  list("--cu-cmp", shared.cu_cmp, "Likewise, of the compressed keys");
  list("--used-q", shared.used_q, "Queries in use of each batch element or sequence");
  list("--used-ori", shared.used_ori, "Original keys in use, likewise; keys in pages need them");
  list("--used-cmp", shared.used_cmp, "Compressed keys in use, likewise");
  list("--cmp-residual", shared.cmp_residual, "Tokens after the last compressed key, without --ori-kv");
  const auto number = [&](const char* flag, int64_t& to, const char* text) {
    command.add_option(flag, to, text)->type_name("N");
  };
  number("--cmp-ratio", flags.cmp_ratio, "Tokens per compressed key, default 1");
  number("--ori-mask", shared.ori_mask, "Original keys of a token: 0 (default) all, 3 causal, 4 the window");
  number("--cmp-mask", shared.cmp_mask, "Compressed keys of a token: 3 (default) causal, 0 all");
  number("--window-left", shared.window_left, "Keys before the token in the window; -1 (default): all");
  number("--window-right", shared.window_right, "Keys after the token in the window; -1 (default): all");
  command.add_flag("--ori-indices-are-slots", shared.ori_indices_are_slots,
                   "Entries of --ori-indices are rows of the pages, not keys");
}

void AddIndexFlags(CLI::App& command, SparseFlags& flags) {
  command.add_flag("--skip-bad-indices", flags.skip_bad_indices, "Skip indices that name no key; default: refuse them");
}

void AddScaleFlag(CLI::App& command, SparseFlags& flags) {
  command.add_option("--scale", flags.scale, "Scale of the attention's scores, default 1/sqrt(D + Drope)");
}

void AddBlockSizeFlag(CLI::App& command, SparseFlags& flags) {
  command.add_option("--sparse-block-size", flags.sparse_block_size, "Keys per index, 1 (default) to 128")
      ->type_name("N");
}

void AddCountFlag(CLI::App& command, SparseFlags& flags) {
  command.add_option("--sparse-count", flags.sparse_count, "Keys to choose per query")->type_name("N")->required();
}

void AddRowFormatFlags(CLI::App& command, SparseFlags& flags) {
  AddTileFlags(command, flags,
               "Keys are rows of int8 or uint8 (e4m3): numbers, rope columns, a float32 scale per N numbers");
}

void AddCompressionFlags(CLI::App& command, SparseFlags& flags) {
  command.add_option("--cmp-ratio", flags.cmp_ratio, "Tokens for which a key stands; default: 1")->type_name("N");
  command.add_option("--residual-kv", flags.residual_kv, "Tokens behind those of the last key, of each batch element")
      ->type_name("N,N,...");
  command.add_option("--used-q", flags.used_q, "TND: queries in use of each sequence; default: all")
      ->type_name("N,N,...");
  command.add_option("--used-kv", flags.used_kv, "TND: keys in use of each sequence; default: all")
      ->type_name("N,N,...");
}

void AddLossFlags(CLI::App& command, SparseFlags& flags) {
  command.add_option("--reduction", flags.reduction, "Reduction over the query tokens; default: sum")
      ->type_name("sum|mean");
  command
      .add_option("--target", flags.target,
                  "head-mean (default): mean of the attention's probabilities over its heads; l1: that divided by its "
                  "sum; given "
                  "(indexer-kl-loss only): --p-head-mean with any sum")
      ->type_name("head-mean|l1|given");
}

}  // namespace fa::tool
