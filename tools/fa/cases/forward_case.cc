#include "cases/forward_case.h"

#include <fmt/format.h>

#include <utility>

#include "cases/grad_args.h"
#include "flags/failure.h"
#include "flags/flag_values.h"
#include "npy/npy_array.h"

namespace fa::tool {
namespace {

std::vector<int64_t> PrefixSums(int64_t count, int64_t length) {
  std::vector<int64_t> sums;
  for (int64_t b = 1; b <= count; ++b) sums.push_back(b * length);
  return sums;
}

DType ParseType(const ForwardCaseFlags& flags) {
  return flags.takes_int8 && flags.dtype == "int8" ? DType::kI8 : ParseFloatType(flags.dtype);
}

}  // namespace

void AddForwardCaseFlags(CLI::App& command, ForwardCaseFlags& flags) {
  command.add_option("--shape", flags.shape, "B,N,Nkv,Sq,Sk,D[,Dv]; TND: B sequences of Sq and Sk rows")
      ->type_name("N,N,...")
      ->required();
  command.add_option("--dtype", flags.dtype, "Type of queries, keys and values; default: f32")
      ->type_name(flags.takes_int8 ? "f32|f16|bf16|int8" : "f32|f16|bf16");
  command.add_option("--layout", flags.layout, "Default: BNSD")->type_name("BNSD|BSND|BSH|SBH|TND|BNSD_BSND");
  AddMaskFlags(command, flags.mask);
}

ForwardCase::ForwardCase(const ForwardCaseFlags& flags) : dtype(ParseType(flags)) {
  const std::vector<int64_t> shape = ParseIntegers("--shape", flags.shape);
  if (shape.size() != 6 && shape.size() != 7) {
    throw UsageError(fmt::format("--shape: {} sizes, want B,N,Nkv,Sq,Sk,D[,Dv]", shape.size()));
  }
  // The size in bytes of each tensor of the call must fit into 63 bits.
  for (const auto& sizes :
       {std::vector{shape[0], shape[1], shape[3], shape[5]}, std::vector{shape[0], shape[2], shape[4], shape[5]},
        std::vector{shape[0], shape[1], shape[3], shape.back()},
        std::vector{shape[0], shape[2], shape[4], shape.back()}}) {
    if (!npy::BytesOf(sizes, npy::ElementType::kF32)) {
      throw UsageError(fmt::format("--shape: {}, want sizes of at least 0 and tensors below 2^63 bytes", flags.shape));
    }
  }
  batch = shape[0], heads = shape[1], heads_kv = shape[2], sq = shape[3], sk = shape[4], d = shape[5];
  dv = shape.back();
  if (heads < 1) throw UsageError(fmt::format("--shape: N={}, want at least 1", heads));
  if (heads_kv < 1 || heads % heads_kv != 0) {
    throw UsageError(fmt::format("--shape: Nkv={}, want a divisor of {} (N)", heads_kv, heads));
  }
  CheckHeadSize("--shape", "D", d);
  CheckHeadSize("--shape", "Dv", dv);
  options.layout = ParseLayout(flags.layout);
  options.heads = heads;
  MaskInputs mask = LoadMask(flags.mask);
  options.mask = std::move(mask.rule);
  mask_text = std::move(mask.text);

  static char placeholder;
  args.q = {&placeholder, dtype, TensorShape(options.layout, QuerySizes()), {}};
  args.k = {&placeholder, dtype, TensorShape(options.layout, KeySizes()), {}};
  args.v = {&placeholder, dtype, TensorShape(options.layout, ValueSizes()), {}};
  args.out = {&placeholder, dtype, TensorShape(OutputLayout(options.layout), OutSizes()), {}};
  if (mask.dense) args.dense_mask = dense_mask_.emplace(std::move(*mask.dense)).View();
  block_mask_ = LoadBlockMask(flags.mask, sq, sk);
  if (block_mask_) args.pair_mask = &*block_mask_;
  if (options.layout == Layout::kTND) {
    CheckListedSequences("--shape", batch);
    args.cu_q = cu_q_ = PrefixSums(batch, sq);
    args.cu_kv = cu_kv_ = PrefixSums(batch, sk);
  }
}

Dims ForwardCase::TensorShape(Layout layout, TensorSizes sizes) const {
  if (layout == Layout::kTND) sizes.seq *= sizes.batch;
  const std::vector<int64_t> shape = ShapeOf(layout, sizes);
  return Dims(std::span(shape));
}

AttentionGradArgs ForwardCase::GradArgs() const {
  static char placeholder;
  const auto output = [](const TensorView& like) {
    return MutableTensorView{&placeholder, like.dtype, like.shape, {}};
  };
  TensorSizes rows = QuerySizes();
  if (options.layout == Layout::kTND) rows.seq *= rows.batch;
  const std::vector<int64_t> stats = StatsShape(options.layout, rows);
  AttentionGradArgs grad = GradArgsOf(args);
  grad.out = args.out;
  grad.d_out = args.out;
  grad.softmax_max = grad.softmax_sum = {&placeholder, DType::kF32, Dims(std::span(stats)), {}};
  grad.dq = output(args.q);
  grad.dk = output(args.k);
  grad.dv = output(args.v);
  return grad;
}

std::vector<int64_t> ForwardCase::Shape() const {
  std::vector<int64_t> shape = {batch, heads, heads_kv, sq, sk, d};
  if (dv != d) shape.push_back(dv);
  return shape;
}

}  // namespace fa::tool
