#include "files/attention_inputs.h"

#include <fmt/format.h>

#include <utility>

#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

std::vector<int64_t> Sizes(const TensorView& view) { return {view.shape.begin(), view.shape.end()}; }

}  // namespace

void AddOperandFlags(CLI::App& command, AttentionFlags& flags) {
  const auto file = [&command](const char* flag, std::string& path, const char* text) {
    command.add_option(flag, path, text)->type_name("NPY")->required();
  };
  file("--query", flags.query, "Queries, in the layout's own shape");
  file("--key", flags.key, "Keys");
  file("--value", flags.value, "Values");
  command.add_option("--layout", flags.layout, "Layout of all tensors; default: BNSD")
      ->type_name("BNSD|BSND|BSH|SBH|TND|BNSD_BSND");
  command.add_option("--head-num", flags.head_num, "Query heads; needed for BSH and SBH")->type_name("N");
  command.add_option("--dtype", flags.dtype, "bf16: uint16 files are bf16 bits; f16 and f32 are known from the file")
      ->type_name("f32|f16|bf16");
  command.add_option("--scale", flags.scale, "Default 1/sqrt(D + Drope)");
}

void AddScoreFlags(CLI::App& command, AttentionFlags& flags, const char* pse_types) {
  const auto file = [&command](const char* flag, std::string& path, const char* text) {
    command.add_option(flag, path, text)->type_name("NPY");
  };
  file("--query-rope", flags.query_rope, "Second part of the query heads");
  file("--key-rope", flags.key_rope, "Second part of the key heads");
  AddMaskFlags(command, flags.mask);
  file("--pse", flags.pse, "Position bias (types 0, 1) or slopes (types 2, 3)");
  command.add_option("--pse-type", flags.pse_type, pse_types)->type_name("N");
  file("--sink", flags.sink, "float32 [N] or [B|1,N,Sq], TND [T,N]: a virtual key of that score and value 0");
}

void AddAttentionFlags(CLI::App& command, AttentionFlags& flags) {
  AddOperandFlags(command, flags);
  AddScoreFlags(command, flags, "0: scale QK + pse; 1 (default): scale (QK + pse); 2, 3: slopes");
  command.add_option("--drop-mask", flags.drop_mask, "Dropout: uint8 bits, 1 = keep, LSB first, over [B,N,Sq,Sk]")
      ->type_name("NPY");
  command.add_option("--seed", flags.seed, "Dropout by Philox4x32-10 with this seed, instead of --drop-mask")
      ->type_name("N");
  command.add_option("--offset", flags.offset, "Offset of the dropout seed, default 0")->type_name("N");
  AddNumberFlags(command, flags.numbers);
  command.add_option("--actual-seq-qlen", flags.actual_seq_qlen, "TND: inclusive prefix sums of the query lengths")
      ->type_name("N,N,...");
  command.add_option("--actual-seq-kvlen", flags.actual_seq_kvlen, "TND: inclusive prefix sums of the key lengths")
      ->type_name("N,N,...");
}

AttentionInputs::AttentionInputs(const AttentionFlags& flags, InputFiles::Read read) : files_(flags.dtype, read) {
  options.layout = ParseLayout(flags.layout);
  ReadOptions(flags);
  ReadLengths(flags);
  LoadTensors(flags);
  ReadSizes(flags.head_num);
  ReadBlockMask(flags.mask);
}

void AttentionInputs::ReadBlockMask(const MaskFlags& flags) {
  const bool packed = options.layout == Layout::kTND;
  block_mask_ = LoadBlockMask(flags, packed ? LongestOf(cu_q_) : query.seq, packed ? LongestOf(cu_kv_) : value.seq);
  if (block_mask_) args.pair_mask = &*block_mask_;
}

void AttentionInputs::LoadTensors(const AttentionFlags& flags) {
  const auto operand = [&](const char* flag, const std::string& path) {
    return files_.LoadFloats(flag, path, flags.takes_int8);
  };
  args.q = operand("--query", flags.query);
  args.k = operand("--key", flags.key);
  args.v = operand("--value", flags.value);
  args.q_rope = LoadFloats("--query-rope", flags.query_rope);
  args.k_rope = LoadFloats("--key-rope", flags.key_rope);
  args.pse = Load("--pse", flags.pse);
  args.drop_mask = Load("--drop-mask", flags.drop_mask);
  args.sink = Load("--sink", flags.sink);
  MaskInputs mask = LoadMask(flags.mask, &files_);
  options.mask = std::move(mask.rule);
  args.dense_mask = mask.view;
}

void AttentionInputs::ReadSizes(std::optional<int64_t> head_num) {
  const Layout layout = options.layout;
  options.heads = HeadNumber(head_num);
  if (layout != Layout::kBSH && layout != Layout::kSBH) {
    query = SizesOf("--query", layout, Sizes(args.q), 0);
    value = SizesOf("--value", layout, Sizes(args.v), 0);
    return;
  }
  if (!head_num) throw UsageError(fmt::format("--head-num: missing, layout {} needs it", Name(layout)));
  query = SizesOf("--query", layout, Sizes(args.q), *head_num);
  // In BSH and SBH the shape does not give the number of key heads. The number follows from the head size of the
  // queries. Values have as many heads as keys.
  const std::vector<int64_t> key = Sizes(args.k);
  if (key.size() != 3 || query.d == 0 || key[2] == 0 || key[2] % query.d != 0) {
    throw UsageError(fmt::format("--key: shape {}, want 3 dimensions, the last a multiple of {} (head size of --query)",
                                 npy::ShapeText(key), query.d));
  }
  value = SizesOf("--value", layout, Sizes(args.v), key[2] / query.d);
}

void AttentionInputs::ReadLengths(const AttentionFlags& flags) {
  const auto read = [this](const char* flag, const std::string& text, std::vector<int64_t>& lengths) {
    const bool packed = options.layout == Layout::kTND;
    if (packed && text.empty()) throw UsageError(fmt::format("{}: missing, layout TND needs it", flag));
    if (!packed && !text.empty()) throw UsageError(fmt::format("{}: only for layout TND", flag));
    if (packed) lengths = ParseIntegers(flag, text);
  };
  read("--actual-seq-qlen", flags.actual_seq_qlen, cu_q_);
  read("--actual-seq-kvlen", flags.actual_seq_kvlen, cu_kv_);
  args.cu_q = cu_q_;
  args.cu_kv = cu_kv_;
}

void AttentionInputs::ReadOptions(const AttentionFlags& flags) {
  if (flags.pse_type < 0 || flags.pse_type > 3) {
    throw UsageError(fmt::format("--pse-type: {}, want 0 to 3", flags.pse_type));
  }
  if (flags.pse_type >= 2 && flags.pse.empty()) {
    throw UsageError(fmt::format("--pse: missing, --pse-type {} needs slopes", flags.pse_type));
  }
  if (!flags.offset.empty() && flags.seed.empty()) throw UsageError("--offset: needs --seed");
  if (!flags.seed.empty() && !flags.drop_mask.empty()) throw UsageError("--seed: cannot be combined with --drop-mask");
  if (flags.query_rope.empty() != flags.key_rope.empty()) {
    throw UsageError(fmt::format("{}: missing, the two rope tensors come together",
                                 flags.query_rope.empty() ? "--query-rope" : "--key-rope"));
  }
  options.scale = flags.scale;
  options.pse_type = static_cast<PseType>(flags.pse_type);
  CopyNumbers(flags.numbers, options);
  if (!flags.seed.empty()) {
    options.dropout = PhiloxState{.seed = ParseUnsigned("--seed", flags.seed),
                                  .offset = flags.offset.empty() ? 0 : ParseUnsigned("--offset", flags.offset)};
  }
}

}  // namespace fa::tool
