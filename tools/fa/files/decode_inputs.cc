#include "files/decode_inputs.h"

#include <fmt/format.h>

#include <utility>

#include "files/attention_inputs.h"
#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

std::vector<int64_t> Sizes(const TensorView& view) { return {view.shape.begin(), view.shape.end()}; }

/// Throws UsageError if a decode does not take the layout.
const DecodeFlags& CheckLayout(const DecodeFlags& flags) {
  if (ParseLayout(flags.layout) != Layout::kTND || !flags.block_table.empty()) return flags;
  throw UsageError("--layout: TND, want BNSD, BSND, BSH, SBH or BNSD_BSND for decode without --block-table");
}

}  // namespace

void AddDecodeFlags(CLI::App& command, DecodeFlags& flags) {
  const auto file = [&command](const char* flag, std::string& path, const char* text) {
    return command.add_option(flag, path, text)->type_name("NPY");
  };
  file("--query", flags.query, "Queries, in the layout's own shape")->required();
  file("--key", flags.key,
       "Keys, of the query's type or int8; with --block-table pages [pages, page size, Nkv*D], BNSD also [pages, Nkv, "
       "page size, D], BSND [pages, page size, Nkv, D]")
      ->required();
  file("--value", flags.value, "Values, likewise")->required();
  file("--query-rope", flags.query_rope, "Second part of split heads: scores are Q K^T + Qr Kr^T");
  file("--key-rope", flags.key_rope, "Likewise, in the form of --key");
  command.add_option("--layout", flags.layout, "Layout of queries and outputs; default: BNSD")
      ->type_name("BNSD|BSND|BSH|SBH|BNSD_BSND|TND");
  command.add_option("--head-num", flags.head_num, "Query heads; needed for BSH and SBH")->type_name("N");
  command.add_option("--dtype", flags.dtype, "bf16: uint16 files are bf16 bits; f16 and f32 are known from the file")
      ->type_name("f32|f16|bf16");
  command.add_option("--scale", flags.scale, "Default 1/sqrt(D + Drope)");
  AddMaskFlags(command, flags.mask);
  command.get_option("--atten-mask")->description("bool, int8 or uint8, 1 = drop: [B,S], [B,Sq,S], [B,1|N,Sq,S]");
  file("--pse", flags.pse, "Bias [B|1,N,1|Sq,S], added after the scale");
  AddNumberFlags(command, flags.numbers);
  command
      .add_option("--actual-seq-lengths", flags.actual_seq_lengths,
                  "Queries of each batch element, or of all; TND: prefix sums")
      ->type_name("N,N,...");
  command.add_option("--actual-seq-lengths-kv", flags.actual_seq_lengths_kv, "Keys of each batch element, or of all")
      ->type_name("N,N,...");
  file("--block-table", flags.block_table, "int32 [B,n]: the pages of each batch element's keys");
  command.add_option("--block-size", flags.block_size, "Rows per page; compared with the files")->type_name("N");
  file("--k-scale", flags.k_scale,
       "int8 keys stand for (x + offset) * scale: [B|1,Nkv|1,S|1,groups|1], in pages [pages|1,Nkv|1,page "
       "size|1,groups|1]");
  file("--v-scale", flags.v_scale, "Scale of int8 values, in the same shapes");
  file("--k-offset", flags.k_offset, "Offset of these keys, shape of --k-scale, default 0");
  file("--v-offset", flags.v_offset, "Offset of these values, shape of --v-scale, default 0");
  file("--antiquant-scale", flags.antiquant_scale,
       "int8 keys stand for (x + offset) * scale: [2], or per column [2,Nkv,D]; entry 0 for keys, 1 for values");
  file("--antiquant-offset", flags.antiquant_offset, "Offset of these keys and values, same shape, default 0");
  command
      .add_option("--antiquant-mode", flags.antiquant_mode,
                  "0 (default): as above; 1: one per key, [2,B,S] or [2,B,Nkv,S]")
      ->type_name("N");
  file("--sink", flags.sink, "float32 [N] or [B|1,N,Sq], TND [T,N]: a virtual key of that score and value 0");
  file("--deq-scale1", flags.deq_scale1, "int8 queries: scale of Q K^T, one float32 or uint64");
  file("--quant-scale1", flags.quant_scale1, "int8 queries: scale of the probabilities, one float32");
  file("--deq-scale2", flags.deq_scale2, "int8 queries: scale of P V, one float32 or uint64");
  command.add_option("--out-dtype", flags.out_dtype,
                     "int8: quantized by --quant-scale2; default: the query's type, f16 of int8 queries");
  file("--quant-scale2", flags.quant_scale2, "Scale of an int8 output: one value, or one per column [N,Dv]");
  file("--quant-offset2", flags.quant_offset2, "Offset of an int8 output, added after the scale, default 0");
}

Antiquant ParseAntiquant(int64_t mode) {
  if (mode != 0 && mode != 1) throw UsageError(fmt::format("--antiquant-mode: {}, want 0 or 1", mode));
  return mode == 1 ? Antiquant::kPerToken : Antiquant::kPerTensorOrChannel;
}

InferenceFiles::InferenceFiles(const DecodeFlags& flags, DecodeAttentionArgs& args, bool scaled) : files(flags.dtype) {
  if (!flags.actual_seq_lengths.empty()) lengths_q = ParseIntegers("--actual-seq-lengths", flags.actual_seq_lengths);
  if (!flags.actual_seq_lengths_kv.empty()) {
    lengths_kv = ParseIntegers("--actual-seq-lengths-kv", flags.actual_seq_lengths_kv);
  }
  args.lengths_kv = lengths_kv;
  args.q = files.LoadFloats("--query", flags.query, /*int8_too=*/true);
  k = files.Load("--key", flags.key);
  v = files.Load("--value", flags.value);
  args.q_rope = files.LoadFloats("--query-rope", flags.query_rope);
  k_rope = files.LoadFloats("--key-rope", flags.key_rope);
  if (!flags.key_rope.empty()) args.k_rope = {&k_rope, 1};
  args.k = {&k, 1};
  args.v = {&v, 1};
  args.pse = files.Load("--pse", flags.pse);
  args.block_table = files.Load("--block-table", flags.block_table);
  args.k_scale = files.Load("--k-scale", flags.k_scale);
  args.v_scale = files.Load("--v-scale", flags.v_scale);
  args.k_offset = files.Load("--k-offset", flags.k_offset);
  args.v_offset = files.Load("--v-offset", flags.v_offset);
  args.antiquant_scale = files.Load("--antiquant-scale", flags.antiquant_scale);
  args.antiquant_offset = files.Load("--antiquant-offset", flags.antiquant_offset);
  args.sink = files.Load("--sink", flags.sink);
  args.deq_scale1 = files.Load("--deq-scale1", flags.deq_scale1);
  args.quant_scale1 = files.Load("--quant-scale1", flags.quant_scale1);
  args.deq_scale2 = files.Load("--deq-scale2", flags.deq_scale2);
  args.quant_scale2 = files.Load("--quant-scale2", flags.quant_scale2);
  args.quant_offset2 = files.Load("--quant-offset2", flags.quant_offset2);
  DType usual = args.q.dtype == DType::kI8 ? DType::kF16 : args.q.dtype;
  if (scaled) {
    if (args.q_rope.data != nullptr) usual = args.q_rope.dtype;
    for (const DType other : {DType::kF32, DType::kF16, DType::kBF16}) {
      if (flags.out_dtype == Name(other)) usual = other;
    }
  }
  const bool int8 = flags.out_dtype == "int8" || flags.out_dtype == Name(DType::kI8);
  if (!flags.out_dtype.empty() && !int8 && flags.out_dtype != Name(usual)) {
    throw UsageError(fmt::format("--out-dtype: '{}', want int8 or {}", flags.out_dtype, Name(usual)));
  }
  out_dtype = int8 ? DType::kI8 : usual;
}

DecodeInputs::DecodeInputs(const DecodeFlags& flags) : read_(CheckLayout(flags), args) {
  options.layout = ParseLayout(flags.layout);
  options.scale = flags.scale;
  CopyNumbers(flags.numbers, options);
  options.antiquant = ParseAntiquant(flags.antiquant_mode);
  (options.layout == Layout::kTND ? args.cu_q : args.lengths_q) = read_.lengths_q;
  if (!flags.mask.block_mask.empty()) throw UsageError("--block-mask: given, want none for decode (see fa run infer)");
  MaskInputs mask = LoadMask(flags.mask);
  options.mask = std::move(mask.rule);
  if (mask.dense) args.dense_mask = read_.files.Keep(std::move(*mask.dense));
  CheckBlockSize(flags);
  ReadSizes(flags.head_num);
}

void DecodeInputs::CheckBlockSize(const DecodeFlags& flags) const {
  if (!flags.block_size) return;
  if (flags.block_table.empty()) throw UsageError("--block-size: needs --block-table");
  const bool heads_first =
      read_.k.shape.rank() == 4 && (options.layout == Layout::kBNSD || options.layout == Layout::kBNSD_BSND);
  const int dim = heads_first ? 2 : 1;
  if (read_.k.shape.rank() > dim && read_.k.shape[dim] == *flags.block_size) return;
  throw UsageError(
      fmt::format("--block-size: {}, but --key has shape {}", *flags.block_size, npy::ShapeText(Sizes(read_.k))));
}

// If a shape is wrong, some sizes stay unknown here. The library then refuses the call and names the tensor.
void DecodeInputs::ReadSizes(std::optional<int64_t> head_num) {
  options.heads = HeadNumber(head_num);
  const bool fused = options.layout == Layout::kBSH || options.layout == Layout::kSBH;
  if (fused && !head_num) {
    throw UsageError(fmt::format("--head-num: missing, layout {} needs it", Name(options.layout)));
  }
  query = SizesOf("--query", options.layout, Sizes(args.q), options.heads);
  const int last = read_.v.shape.rank() - 1;
  if (last < 0 || read_.k.shape.rank() != last + 1) {
    throw UsageError(fmt::format("--value: shape {}, want as many dimensions as --key {}",
                                 npy::ShapeText(Sizes(read_.v)), npy::ShapeText(Sizes(read_.k))));
  }
  dv = read_.v.shape[last];
  const bool heads_beside = last == 2;
  if (!heads_beside) return;
  const int64_t heads_kv = query.d > 0 ? read_.k.shape[last] / query.d : 0;
  if (heads_kv == 0) {
    throw UsageError(fmt::format("--key: shape {}, want the last dimension a multiple of {} (head size of --query)",
                                 npy::ShapeText(Sizes(read_.k)), query.d));
  }
  dv /= heads_kv;
}

}  // namespace fa::tool
