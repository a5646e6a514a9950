#include "files/infer_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

constexpr Layout kLayouts[] = {Layout::kBSH,       Layout::kBSND,     Layout::kBNSD,      Layout::kTND,
                               Layout::kNTD,       Layout::kNSD,      Layout::kBNSD_BSND, Layout::kBSH_BNSD,
                               Layout::kBSND_BNSD, Layout::kBSH_NBSD, Layout::kBSND_NBSD, Layout::kBNSD_NBSD,
                               Layout::kTND_NTD,   Layout::kNTD_TND};

std::string LayoutNames(const char* between) {
  std::string names;
  for (const Layout layout : kLayouts) names += (names.empty() ? "" : between) + std::string(Name(layout));
  return names;
}

}  // namespace

Layout ParseInferLayout(const std::string& text) {
  for (const Layout layout : kLayouts) {
    if (text == Name(layout)) return layout;
  }
  throw UsageError(fmt::format("--layout: '{}', want {}", text, LayoutNames(", ")));
}

void AddInferFlags(CLI::App& command, InferFlags& flags) {
  AddDecodeFlags(command, flags.decode);
  command.get_option("--key")->description(
      "Keys, of the query's type or int8, in the layout's first part; with --block-table pages [pages, page size, "
      "Nkv*D], [pages, Nkv, page size, D] or [pages, Nkv, D/D0, page size, D0]");
  command.get_option("--layout")
      ->description("Layout of inputs and, after the underscore, of the output; default: BNSD")
      ->type_name(LayoutNames("|"));
  command.get_option("--head-num")->description("Query heads; needed for layouts that begin with BSH");
  command.get_option("--atten-mask")
      ->description(
          "bool, int8 or uint8, 1 = drop: [Sq,S], [B,1,Sq,S]; modes 2 to 4: the 2048x2048 triangle; mode 9: "
          "[B,Sq,Sq], packed [sum(Sq*Sq)]");
  command.get_option("--sparse-mode")->description("0 to 4 or 9; 2 to 4 need no --atten-mask");
  command.get_option("--actual-seq-lengths")
      ->description("Queries of each batch element, or of all; packed: prefix sums");
  command.get_option("--actual-seq-lengths-kv")
      ->description("Keys of each batch element, or of all; packed without pages: prefix sums");
  command.add_option("--heads-kv", flags.heads_kv, "Key heads; compared with the files")->type_name("N");
  command.add_option("--q-scale", flags.q_scale, "float32 scales of int8 queries, in the shape of --query without D")
      ->type_name("NPY");
  command.add_option("--code-dtype", flags.code_dtype, "What int8 files of queries, keys and values hold; default: i8")
      ->type_name("i8|f8e4m3");
  command.add_option("--k-prefix", flags.k_prefix, "Keys in front of those of every batch element, of batch 1")
      ->type_name("NPY");
  command.add_option("--v-prefix", flags.v_prefix, "Values, likewise")->type_name("NPY");
  command.add_option("--length-prefix", flags.length_prefix, "Rows of the prefix in use; default: all")->type_name("N");
  command.add_option("--q-padding", flags.q_padding, "Left padding: queries in use end this many rows before the last")
      ->type_name("N");
  command.add_option("--kv-padding", flags.kv_padding, "Left padding of keys, likewise")->type_name("N");
  command.add_option("--lse-without-keys", flags.lse_without_keys, "lse of a row without keys; default: -inf")
      ->type_name("-inf|inf");
}

InferInputs::InferInputs(const InferFlags& flags) : read_(flags.decode, args, !flags.q_scale.empty()) {
  const DecodeFlags& decode = flags.decode;
  options.layout = ParseInferLayout(decode.layout);
  options.heads = HeadNumber(decode.head_num);
  options.heads_kv = flags.heads_kv;
  options.scale = decode.scale;
  options.block_size = decode.block_size.value_or(0);
  options.antiquant = ParseAntiquant(decode.antiquant_mode);
  if (flags.lse_without_keys != "-inf" && flags.lse_without_keys != "inf") {
    throw UsageError(fmt::format("--lse-without-keys: '{}', want -inf or inf", flags.lse_without_keys));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  options.lse_without_keys = flags.lse_without_keys == "inf" ? infinity : -infinity;
  if (decode.numbers.softcap != 0) throw UsageError("--softcap: given, want none for infer");
  if (packed()) {
    args.cu_q = read_.lengths_q;
    if (decode.block_table.empty()) {
      args.cu_kv = read_.lengths_kv;
      args.lengths_kv = {};
    }
  } else {
    args.lengths_q = read_.lengths_q;
  }
  args.q_scale = read_.files.Load("--q-scale", flags.q_scale);
  args.k_prefix = read_.files.Load("--k-prefix", flags.k_prefix);
  args.v_prefix = read_.files.Load("--v-prefix", flags.v_prefix);
  if (flags.length_prefix) length_prefix_ = {*flags.length_prefix};
  args.length_prefix = length_prefix_;
  const auto take = [](const std::optional<int64_t>& rows, int64_t& kept, TensorView& padding) {
    if (!rows) return;
    kept = *rows;
    padding = {&kept, DType::kI64, {1}, {}};
  };
  take(flags.q_padding, q_padding_, args.q_padding);
  take(flags.kv_padding, kv_padding_, args.kv_padding);
  TakeMask(decode.mask);
  TakeCodes(flags.code_dtype);
  ReadSizes();
  TakeBlockMask(decode.mask);
}

bool InferInputs::packed() const {
  const Layout layout = InputLayout(options.layout);
  return layout == Layout::kTND || layout == Layout::kNTD;
}

// Files hold f8e4m3 codes as int8, because .npy files have no type f8e4m3. With --code-dtype f8e4m3, int8 tensors count
// as f8e4m3.
void InferInputs::TakeCodes(const std::string& dtype) {
  if (dtype != "i8" && dtype != Name(DType::kF8E4M3)) {
    throw UsageError(fmt::format("--code-dtype: '{}', want i8 or {}", dtype, Name(DType::kF8E4M3)));
  }
  if (dtype == "i8") return;
  for (TensorView* codes : {&args.q, &read_.k, &read_.v, &args.k_prefix, &args.v_prefix}) {
    if (codes->dtype == DType::kI8) codes->dtype = DType::kF8E4M3;
  }
}

void InferInputs::TakeMask(const MaskFlags& flags) {
  if (flags.causal && flags.sparse_mode) throw UsageError("--causal: cannot be combined with --sparse-mode");
  if (!flags.prefix.empty()) throw UsageError("--prefix: given, want none for infer");
  options.sparse_mode = flags.causal ? 3 : flags.sparse_mode.value_or(0);
  const bool has_mask = !flags.atten_mask.empty() || !flags.block_mask.empty();
  const bool band = options.sparse_mode == 4 || (options.sparse_mode == 0 && has_mask);
  if (!band && (flags.pre_tokens || flags.next_tokens)) {
    throw UsageError(fmt::format("{}: sparse mode {} ignores it; for a window use --sparse-mode 4",
                                 flags.pre_tokens ? "--pre-tokens" : "--next-tokens", options.sparse_mode));
  }
  options.pre = flags.pre_tokens.value_or(Mask::kUnlimited);
  options.next = flags.next_tokens.value_or(Mask::kUnlimited);
  args.dense_mask = read_.files.Load("--atten-mask", flags.atten_mask);
}

void InferInputs::TakeBlockMask(const MaskFlags& flags) {
  if (flags.block_mask.empty()) {
    if (!flags.block_shape.empty()) throw UsageError("--block-shape: needs --block-mask");
    return;
  }
  block_mask_ = LoadBlockMask(flags, packed() ? LongestOf(args.cu_q) : query.seq, MostKeys());
  args.pair_mask = &*block_mask_;
}

// Returns the most keys of a sequence, including the shared prefix.
int64_t InferInputs::MostKeys() const {
  if (args.block_table.data != nullptr) {
    if (args.lengths_kv.empty()) throw UsageError("--actual-seq-lengths-kv: missing (--block-mask with --block-table)");
    return *std::max_element(args.lengths_kv.begin(), args.lengths_kv.end());
  }
  if (packed()) return LongestOf(args.cu_kv);
  const auto rows = [&](const char* flag, const Dims& shape) {
    // Any number will do, as rows do not depend on heads.
    const int64_t heads_kv = options.heads_kv > 0 ? options.heads_kv : 1;
    return SizesOf(flag, options.layout, {shape.begin(), shape.end()}, heads_kv).seq;
  };
  const int64_t own = rows("--key", read_.k.shape);
  if (args.k_prefix.data == nullptr) return own;
  return own + (length_prefix_.empty() ? rows("--k-prefix", args.k_prefix.shape) : length_prefix_[0]);
}

// If a shape is wrong, some sizes stay unknown here. The library then refuses the call and names the tensor.
void InferInputs::ReadSizes() {
  if (InputLayout(options.layout) == Layout::kBSH && options.heads == 0) {
    throw UsageError(fmt::format("--head-num: missing, layout {} needs it", Name(options.layout)));
  }
  const Dims &q = args.q.shape, &k = read_.k.shape, &v = read_.v.shape;
  query = SizesOf("--query", options.layout, {q.begin(), q.end()}, options.heads);
  const int rank = v.rank();
  if (rank == 0) return;
  dv = v[rank - 1];
  const bool paged = args.block_table.data != nullptr;
  if (paged && rank == 5) dv *= v[2];
  const bool heads_beside = rank == 3 && (paged || InputLayout(options.layout) == Layout::kBSH);
  if (!heads_beside || k.rank() != 3 || query.d == 0 || k[2] < query.d) return;
  dv /= k[2] / query.d;
}

}  // namespace fa::tool
