#include "cases/decode_case.h"

#include <fmt/format.h>

#include <string>

#include "flags/failure.h"

namespace fa::tool {
namespace {

/// Returns the type of compressed keys that --dtype names. Returns nothing if --dtype names another type.
std::optional<DType> CompressedType(const std::string& dtype) {
  if (dtype == "int8") return DType::kI8;
  if (dtype == "e4m3") return DType::kF8E4M3;
  if (dtype == "e5m2") return DType::kF8E5M2;
  if (dtype == "int4") return DType::kI4x8;
  return std::nullopt;
}

ForwardCaseFlags DenseFlags(const DecodeCaseFlags& flags) {
  if (flags.block_size < 0) throw UsageError(fmt::format("--block-size: {}, want at least 0", flags.block_size));
  ForwardCaseFlags dense = flags.forward;
  if (dense.layout == "TND") throw UsageError("--layout: TND, want BNSD, BSND, BSH, SBH or BNSD_BSND for decode");
  if (CompressedType(dense.dtype)) dense.dtype = "bf16";
  return dense;
}

}  // namespace

void AddDecodeCaseFlags(CLI::App& command, DecodeCaseFlags& flags) {
  AddForwardCaseFlags(command, flags.forward);
  command.get_option("--dtype")
      ->description("Default: f32; int8, e4m3, e5m2, int4: keys and values, with bf16 queries")
      ->type_name("f32|f16|bf16|int8|e4m3|e5m2|int4");
  command.get_option("--layout")->type_name("BNSD|BSND|BSH|SBH|BNSD_BSND");
  command
      .add_option("--block-size", flags.block_size,
                  "Rows per page of keys and values, with pages in random order; 0 (default): no pages")
      ->type_name("N");
}

DecodeCase::DecodeCase(const DecodeCaseFlags& flags)
    : compressed(CompressedType(flags.forward.dtype)), forward(DenseFlags(flags)), block_size(flags.block_size) {
  static char placeholder;
  options.layout = forward.options.layout;
  options.heads = forward.options.heads;
  options.mask = forward.options.mask;
  args.q = forward.args.q;
  args.out = forward.args.out;
  args.dense_mask = forward.args.dense_mask;
  args.pair_mask = forward.args.pair_mask;
  k_ = Keys(forward.args.k, forward.d);
  v_ = Keys(forward.args.v, forward.dv);
  args.k = {&k_, 1};
  args.v = {&v_, 1};
  if (compressed) args.antiquant_scale = {&placeholder, DType::kF32, {2}, {}};
  if (!paged()) return;
  lengths_ = {forward.sk};
  args.lengths_kv = lengths_;
  args.block_table = {&placeholder, DType::kI32, {forward.batch, pages_of_one()}, {}};
}

Layout DecodeCase::PageLayout() const {
  const bool heads_first = options.layout == Layout::kBNSD || options.layout == Layout::kBNSD_BSND;
  return heads_first ? Layout::kBNSD : Layout::kBSH;
}

TensorSizes DecodeCase::PageSizes(int64_t d) const {
  return {.batch = forward.batch * pages_of_one(), .seq = block_size, .heads = forward.heads_kv, .d = d};
}

TensorView DecodeCase::Keys(const TensorView& dense, int64_t d) const {
  TensorView keys = dense;
  if (compressed) keys.dtype = *compressed;
  if (paged()) {
    const std::vector<int64_t> shape = ShapeOf(PageLayout(), PageSizes(d));
    keys.shape = Dims(std::span(shape));
  }
  if (compressed == DType::kI4x8) {
    if (d % 8 != 0) throw UsageError(fmt::format("--dtype: int4, but a head has {} columns, want a multiple of 8", d));
    keys.shape[keys.shape.rank() - 1] /= 8;
  }
  return keys;
}

}  // namespace fa::tool
